//! The server side of the control socket.
//!
//! ```text
//! connect ──same user?──> line ──> request ──> the loop ──> reply ──> line …
//!             │ no: closed  │ invalid: error, next line; too long: error, closed
//!                           └ follow: a separate thread writes until the run is settled
//! ```
//!
//! Each client has its own task. Line length, read and write times, and the number of clients are
//! limited, so a slow client never blocks the loop. If there are too many clients, a new one
//! replaces the client that has waited longest without a request. This module must never write to
//! the database or make a decision.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use runner_engine::ids::RunId;
use rustix::process::geteuid;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::machine::DaemonRequest;
use super::protocol::{LONGEST, Reply, Request};
use crate::env::Env;
use crate::follow::{self, FollowEnd};
use crate::socket::socket_address;
use crate::ui::{Failure, log};

/// Maximum time to wait for a client's next request, or for a client to accept a reply.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of simultaneous clients.
const CLIENTS: usize = 64;

pub const NAME: &str = "control.sock";

pub struct SocketRequest {
    pub what: DaemonRequest,
    /// The channel for the reply.
    pub reply: oneshot::Sender<Reply>,
}

/// The listening socket. Dropping it deletes the socket file.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Binds the socket and serves it on the current runtime. The caller must hold the daemon's
    /// lock, because an existing socket file is deleted.
    pub fn serve(home: &Env, questions: mpsc::Sender<SocketRequest>) -> Result<Self, Failure> {
        let path = home.state.join(NAME);
        let cannot = |error: io::Error| Failure::not_made(&path, error);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
            _ => {}
        }
        let (_folder, address) = socket_address(&home.state, NAME).map_err(cannot)?;
        let listener = net::UnixListener::bind(&address).map_err(cannot)?;
        // The state folder is already private; the socket's mode is an additional safeguard.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let listener = UnixListener::from_std(listener).map_err(cannot)?;
        tokio::spawn(accept(home.clone(), listener, questions));
        Ok(Self { path })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _already_gone = fs::remove_file(&self.path);
    }
}

async fn accept(home: Env, listener: UnixListener, questions: mpsc::Sender<SocketRequest>) {
    let places = Arc::new(Semaphore::new(CLIENTS));
    let crowded = Arc::new(Notify::new());
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                // The process may be out of file descriptors. The pause prevents a busy loop.
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let ours = stream.peer_cred().map(|peer| peer.uid());
        if !ours.as_ref().is_ok_and(|uid| *uid == geteuid().as_raw()) {
            tracing::warn!(
                ?ours,
                "a connection from another user to the control socket was refused"
            );
            continue;
        }
        let place = match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                crowded.notify_one();
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
                place
            }
        };
        let client = Client {
            home: home.clone(),
            questions: questions.clone(),
            crowded: Arc::clone(&crowded),
        };
        tokio::spawn(async move {
            // A client may disconnect at any time.
            let _gone = client.talk(stream, place).await;
        });
    }
}

/// The state that one client's task needs.
struct Client {
    home: Env,
    questions: mpsc::Sender<SocketRequest>,
    /// Wakes the client that has waited longest for its next request, so that it is disconnected in
    /// favour of a new client.
    crowded: Arc<Notify>,
}

impl Client {
    async fn talk(self, stream: UnixStream, place: OwnedSemaphorePermit) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            let mut limited = (&mut stream).take(LONGEST as u64 + 1);
            let read = timeout(PATIENCE, limited.read_until(b'\n', &mut line));
            let count = tokio::select! {
                biased;
                count = read => count??,
                () = self.crowded.notified() => return Ok(()),
            };
            if count == 0 {
                return Ok(());
            }
            if line.len() > LONGEST {
                let why = format!("a request is one line of at most {LONGEST} bytes");
                // The stream continues in the middle of this line, so no other request can be read.
                return write(&mut stream, &Reply::error(why)).await;
            }
            let what = match serde_json::from_slice(&line) {
                Err(error) => {
                    let why = format!("no such request: {error}");
                    write(&mut stream, &Reply::error(why)).await?;
                    continue;
                }
                Ok(Request::Follow { run, from }) => {
                    return follow_apart(self.home, stream.into_inner(), run, from, place);
                }
                Ok(Request::Status {}) => DaemonRequest::Status,
                Ok(Request::Tick {}) => DaemonRequest::Tick,
                Ok(Request::Cancel { run }) => DaemonRequest::Cancel(run),
            };
            let (reply, answer) = oneshot::channel();
            let asked = self.questions.send(SocketRequest { what, reply }).await;
            let reply = match asked {
                Ok(()) => answer.await.ok(),
                Err(_) => None,
            };
            let reply = reply.unwrap_or_else(|| Reply::error("the daemon has ended"));
            write(&mut stream, &reply).await?;
        }
    }
}

fn line(reply: &Reply) -> Vec<u8> {
    let mut line = serde_json::to_vec(reply).expect("a reply has string keys only");
    line.push(b'\n');
    line
}

async fn write(stream: &mut BufReader<UnixStream>, reply: &Reply) -> io::Result<()> {
    timeout(PATIENCE, stream.write_all(&line(reply))).await?
}

/// Follows a run on a separate thread, because following blocks on files. The thread ends when the
/// client disconnects or the run is settled.
fn follow_apart(
    home: Env,
    stream: UnixStream,
    run: RunId,
    from: u64,
    place: OwnedSemaphorePermit,
) -> io::Result<()> {
    let mut stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let client = stream.try_clone()?;
    thread::Builder::new()
        .name("follow".to_owned())
        .stack_size(256 * 1024)
        .spawn(move || {
            use std::io::Write as _;
            let done = follow::follow(
                &home,
                &run,
                &[(log::FILE, from)],
                &[client.as_fd()],
                &mut |_, text, end| {
                    let text = text.to_owned();
                    stream.write_all(&line(&Reply::Log { text, end }))
                },
            );
            let last = match done {
                Ok(FollowEnd::Settled(row)) => Reply::Over { outcome: follow::outcome(&row) },
                Ok(FollowEnd::Abandoned) => return,
                Err(failure) => Reply::error(failure.to_string()),
            };
            let _gone = stream.write_all(&line(&last));
            drop(place);
        })
        .map(|_detached| ())
}
