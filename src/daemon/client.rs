//! Speaking to the daemon, from another command. Everything here is bounded in time, and no daemon
//! is no error.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use runner_engine::ids::RunId;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::protocol::{DaemonStatus, Reply, Request};
use super::socket::address;
use crate::cli::Failure;
use crate::env::Env;

/// How long a reply may take; a tick may have much to do.
const PATIENCE: Duration = Duration::from_secs(10);
/// No reply is longer than this.
const LONGEST: u64 = 16 * 1024 * 1024;

/// A connection to the daemon.
pub struct Client {
    stream: BufReader<UnixStream>,
}

/// How following through the daemon ended.
pub enum Stream {
    /// The run is settled, with this outcome.
    Over(String),
    /// The daemon went away or was silent for long, or nobody reads, after so many bytes of the log.
    Lost(u64),
}

/// Notifies the daemon that something has changed. Returns `false` if no daemon runs.
pub fn wake(home: &Env) -> bool {
    let Some(mut daemon) = Client::connect(home) else {
        return false;
    };
    // Without it the daemon finds out by itself, a little later.
    daemon.send(&Request::Tick {}).is_ok()
}

impl Client {
    /// Connects to the daemon. Returns `None` if none listens.
    pub fn connect(home: &Env) -> Option<Self> {
        let (_folder, address) = address(&home.state).ok()?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        // Never waits: a socket whose queue is full is as good as none.
        connect(&socket, &SocketAddrUnix::new(&address).ok()?).ok()?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        Some(Self { stream: BufReader::new(stream) })
    }

    /// Asks for one reply. A refusal is a failure.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        let silent = |error: io::Error| {
            Failure::environment(format!("the daemon does not answer: {error}")).hint(
                "runner status; if it still does not answer, stop that process and start it again",
            )
        };
        self.send(request).map_err(silent)?;
        match self.receive().map_err(silent)? {
            Reply::Error { why } => Err(Failure::environment(format!("the daemon says: {why}"))),
            reply => Ok(reply),
        }
    }

    pub fn status(&mut self) -> Result<DaemonStatus, Failure> {
        match self.ask(&Request::Status {})? {
            Reply::Status(status) => Ok(status),
            other => Err(Failure::internal(format!("the daemon answered {other:?}"))),
        }
    }

    /// Streams a run's log from byte `from` on, for as long as `sink` wants more.
    pub fn follow(
        mut self,
        run: &RunId,
        from: u64,
        sink: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Stream, Failure> {
        let mut known = from;
        let request = Request::Follow { run: run.clone(), from };
        if self.send(&request).is_err() {
            return Ok(Stream::Lost(known));
        }
        loop {
            match self.receive() {
                Ok(Reply::Log { text, end }) => {
                    known = end;
                    if !sink(&text) {
                        return Ok(Stream::Lost(known));
                    }
                }
                Ok(Reply::Over { outcome }) => return Ok(Stream::Over(outcome)),
                Ok(Reply::Error { why }) => {
                    return Err(Failure::data(format!("the daemon says: {why}")));
                }
                Ok(_) | Err(_) => return Ok(Stream::Lost(known)),
            }
        }
    }

    /// Sends a request and does not wait for its answer.
    fn send(&mut self, request: &Request) -> io::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)
    }

    fn receive(&mut self) -> io::Result<Reply> {
        let mut line = Vec::new();
        (&mut self.stream).take(LONGEST).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&line)?)
    }
}
