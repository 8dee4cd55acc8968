//! A model API that misbehaves intentionally, over real sockets.
//!
//! The server uses one thread per connection. A `Behaviour` (`behaviours.rs`) selects its actions,
//! in one of the four dialects (`dialect.rs`). A behaviour that stalls waits until the client
//! disconnects, for at most 60 seconds.
#![allow(dead_code, reason = "each test uses only a part of this module")]
#![allow(clippy::unwrap_used, reason = "the setup of a test may panic")]

pub mod behaviours;
pub mod dialect;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A time limit that exceeds the longest wait of any test. It ends the threads of a failing test.
const FOR_EVER: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default)]
pub struct SeenRequest {
    /// The request line, such as `POST /v1/messages HTTP/1.1`.
    pub line: String,
    pub headers: Vec<String>,
    pub body: Vec<u8>,
}

impl SeenRequest {
    /// Returns whether the request calls a model. Other requests ask for the list of models.
    pub fn is_call(&self) -> bool {
        self.line.starts_with("POST")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}:");
        let line = (self.headers.iter()).find(|line| {
            line.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(&prefix))
        })?;
        Some(line[prefix.len()..].trim())
    }
}

/// A connection, encrypted or not.
pub trait Wire: Read + Write + Send {
    /// Sets the maximum time that a read may take.
    fn patience(&self, patience: Duration);
}

impl Wire for TcpStream {
    fn patience(&self, patience: Duration) {
        self.set_read_timeout(Some(patience)).unwrap();
    }
}

/// The server's side of one connection.
pub struct Talk {
    wire: Box<dyn Wire>,
    /// Whether the client has disconnected.
    pub gone: bool,
}

impl Talk {
    /// Sends bytes, and records whether the client has disconnected.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        if self.gone {
            return;
        }
        let sent = self.wire.write_all(bytes.as_ref());
        self.gone = sent.and_then(|()| self.wire.flush()).is_err();
    }

    /// Sends a reply's status line and headers.
    pub fn head(&mut self, status: u16, headers: &[(&str, &str)]) {
        let mut head = format!("HTTP/1.1 {status} Whatever\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.send(head + "\r\n");
    }

    pub fn reply(&mut self, status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) {
        let length = body.as_ref().len().to_string();
        let all = [headers, &[("content-length", &length)]].concat();
        self.head(status, &all);
        self.send(body);
    }

    pub fn chunk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        if bytes.is_empty() {
            return;
        }
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.send(chunk);
    }

    /// Ends a chunked body.
    pub fn end(&mut self) {
        self.send("0\r\n\r\n");
    }

    /// Waits until the client sends data or disconnects, for at most [`FOR_EVER`].
    pub fn wait(&mut self) {
        self.pause(FOR_EVER);
    }

    /// Waits until the client sends data or disconnects, for at most `how_long`.
    pub fn pause(&mut self, how_long: Duration) {
        if self.gone {
            return;
        }
        self.wire.patience(how_long);
        let mut byte = [0; 64];
        match self.wire.read(&mut byte) {
            Ok(0) => self.gone = true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => self.gone = true,
        }
    }

    fn next_request(&mut self) -> Option<SeenRequest> {
        self.wire.patience(FOR_EVER);
        let mut all = Vec::new();
        let mut piece = [0; 16 * 1024];
        let end = loop {
            if let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            match self.wire.read(&mut piece) {
                Ok(0) | Err(_) => return None,
                Ok(length) => all.extend_from_slice(&piece[..length]),
            }
        };
        let head = String::from_utf8_lossy(&all[..end]).into_owned();
        let mut lines = head.lines().filter(|line| !line.is_empty());
        let mut seen = SeenRequest {
            line: lines.next()?.to_owned(),
            headers: lines.map(str::to_owned).collect(),
            body: all[end..].to_vec(),
        };
        let length = seen.header("content-length").map_or(0, |it| it.parse().unwrap());
        while seen.body.len() < length {
            match self.wire.read(&mut piece) {
                Ok(0) | Err(_) => return None,
                Ok(more) => seen.body.extend_from_slice(&piece[..more]),
            }
        }
        Some(seen)
    }
}

/// A server that stops when it is dropped.
pub struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    over: Arc<AtomicBool>,
}

type Answer = dyn Fn(&mut Talk, &SeenRequest) + Send + Sync;
type Wrap = dyn Fn(TcpStream) -> Option<Box<dyn Wire>> + Send + Sync;

impl Server {
    /// Starts a server on a free port of the loopback address.
    pub fn start(answer: impl Fn(&mut Talk, &SeenRequest) + Send + Sync + 'static) -> Self {
        Self::with("127.0.0.1:0", |stream| Some(Box::new(stream)), answer).unwrap()
    }

    /// Starts a server on this address. `wrap` converts each connection into a [`Wire`], or returns
    /// `None` to close it.
    pub fn with(
        address: &str,
        wrap: impl Fn(TcpStream) -> Option<Box<dyn Wire>> + Send + Sync + 'static,
        answer: impl Fn(&mut Talk, &SeenRequest) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let over = Arc::new(AtomicBool::new(false));
        let (answer, wrap): (Arc<Answer>, Arc<Wrap>) = (Arc::new(answer), Arc::new(wrap));
        let (all, done) = (seen.clone(), over.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if done.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                stream.set_nodelay(true).unwrap();
                let (answer, wrap, all) = (answer.clone(), wrap.clone(), all.clone());
                std::thread::spawn(move || converse(stream, &*wrap, &*answer, &all));
            }
        });
        Ok(Self { address, seen, over })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn seen(&self) -> Vec<SeenRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// Counts the requests that called a model.
    pub fn calls(&self) -> usize {
        self.seen().iter().filter(|seen| seen.is_call()).count()
    }
}

fn converse(stream: TcpStream, wrap: &Wrap, answer: &Answer, all: &Mutex<Vec<SeenRequest>>) {
    let Some(wire) = wrap(stream) else { return };
    let mut talk = Talk { wire, gone: false };
    while let Some(seen) = talk.next_request() {
        all.lock().unwrap().push(seen.clone());
        answer(&mut talk, &seen);
        let closes = seen.header("x-close").is_some();
        if talk.gone || closes {
            return;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // A connection wakes up the listener, which then stops.
        let _gone = TcpStream::connect(self.address);
    }
}
