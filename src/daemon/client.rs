//! The client side of the control socket. Every operation has a time limit, and a missing daemon is
//! not an error.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use runner_engine::ids::RunId;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::protocol::{DaemonStatus, Reply, Request};
use super::socket::NAME;
use crate::env::Env;
use crate::socket::socket_address;
use crate::ui::Failure;

/// Maximum time to wait for a reply.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum length of a reply in bytes.
const LONGEST: u64 = 16 * 1024 * 1024;

pub struct Client {
    stream: BufReader<UnixStream>,
}

/// The result of following a run through the daemon.
pub enum Stream {
    /// The run is settled with this outcome.
    Over(String),
    /// The daemon exited or was silent for too long, or the reader is gone. Contains the offset in
    /// the log up to which lines were passed on.
    Lost(u64),
}

/// Notifies the daemon that the database has changed. Returns `false` if no daemon is listening or
/// the request cannot be sent.
pub fn wake(home: &Env) -> bool {
    let Some(mut daemon) = Client::connect(home) else { return false };
    // If the request fails, the daemon's next regular tick notices the change.
    daemon.send(&Request::Tick {}).is_ok()
}

impl Client {
    /// Connects to the daemon. Returns `None` if no connection can be made.
    pub fn connect(home: &Env) -> Option<Self> {
        let (_folder, address) = socket_address(&home.state, NAME).ok()?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        // The nonblocking connect fails immediately if the daemon's backlog is full.
        connect(&socket, &SocketAddrUnix::new(&address).ok()?).ok()?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        Some(Self { stream: BufReader::new(stream) })
    }

    /// Sends a request and returns its reply. [`Reply::Error`] becomes an error.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        let silent = |error: io::Error| {
            Failure::environment(format!("the daemon does not answer: {error}")).hint(
                "runner status; if the daemon still does not answer, stop it and start it again",
            )
        };
        self.send(request).map_err(silent)?;
        match self.receive().map_err(silent)? {
            Reply::Error { why } => {
                Err(Failure::environment(format!("the daemon reported: {why}")))
            }
            reply => Ok(reply),
        }
    }

    pub fn status(&mut self) -> Result<DaemonStatus, Failure> {
        match self.ask(&Request::Status {})? {
            Reply::Status(status) => Ok(status),
            other => Err(Failure::internal(format!("the daemon answered {other:?}"))),
        }
    }

    /// Streams a run's log from offset `from` until the run is settled or `sink` returns `false`.
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
                    return Err(Failure::data(format!("the daemon reported: {why}")));
                }
                Ok(_) | Err(_) => return Ok(Stream::Lost(known)),
            }
        }
    }

    /// Sends a request without waiting for the reply.
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
