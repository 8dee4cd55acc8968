//! Starts the server: binds its addresses and answers requests until the process exits.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use minijinja::context;
use runner_engine::file_lock::{FileLock, FileLockError, LockMode};
use runner_engine::files::{SMALL, read_no_link};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::address::ServeSettings;
use super::codes::code_file;
use super::events::report_changes;
use super::openapi::AnswerSchemas;
use super::render::Renderer;
use super::secrets::{folder, write};
use super::state::{CommandCaller, Web};
use super::{connections, router};
use crate::config::Listen;
use crate::env::Env;
use crate::socket::socket_address;
use crate::ui::Failure;

/// The name of the Unix socket, in the state folder.
const SOCKET: &str = "serve.sock";
/// Maximum number of simultaneous event streams.
const STREAMS: usize = 32;
/// The stack size of a thread that runs a command, in bytes.
const STACK: usize = 8 * 1024 * 1024;
/// How long a thread that runs commands waits for the next command.
const IDLE: Duration = Duration::from_secs(5);

/// The program's commands: a function that calls one, and the schemas of their responses.
pub type Commands = (CommandCaller, AnswerSchemas);

/// The serving process, as recorded in the lock file.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    address: Option<SocketAddr>,
}

/// A server with bound addresses.
pub struct Server {
    home: Env,
    settings: ServeSettings,
    tcp: Option<TcpListener>,
    unix: UnixListener,
    socket: PathBuf,
    _lock: FileLock,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _already_gone = fs::remove_file(&self.socket);
    }
}

/// The result of binding the addresses.
pub enum Bound {
    Server(Box<Server>),
    /// Another process is already serving, at this address if it has one.
    Elsewhere {
        pid: u32,
        address: Option<SocketAddr>,
    },
}

impl Server {
    /// Binds the addresses, unless another process is already serving.
    ///
    /// # Errors
    /// Returns an error if the settings are invalid, if the lock cannot be used, if another process
    /// is starting to serve, or if an address cannot be bound.
    pub fn bind(home: &Env, settings: ServeSettings) -> Result<Bound, Failure> {
        settings.check()?;
        home.make_state()?;
        let path = home.state.join("serve.lock");
        let cannot = |error: io::Error| {
            Failure::cannot_write(format!("cannot lock {}: {error}", path.display()))
        };
        let file = FileLock::open(&path).map_err(cannot)?;
        let mut lock =
            match FileLock::take(file, LockMode::Exclusive) {
                Ok(lock) => lock,
                Err(FileLockError::Io(error)) => return Err(cannot(error)),
                Err(FileLockError::Held { content }) => {
                    return match serde_json::from_str::<Holder>(&content) {
                        Ok(Holder { pid, address }) => Ok(Bound::Elsewhere { pid, address }),
                        Err(_) => Err(Failure::later("another process is starting to serve")
                            .hint("runner serve")),
                    };
                }
            };
        let tcp = settings.listen.map(|Listen(at)| {
            TcpListener::bind(at).map_err(|error| {
                Failure::environment(format!("cannot listen at {at}: {error}"))
                    .hint(format!("runner serve --listen {}:0   (any free port)", ip(at)))
            })
        });
        let tcp = tcp.transpose()?;
        let address = tcp.as_ref().and_then(|tcp| tcp.local_addr().ok());
        let socket = home.state.join(SOCKET);
        let unix = bind_unix(home, &socket)?;
        let holder = Holder { pid: std::process::id(), address };
        let text = serde_json::to_vec(&holder).expect("a holder has string keys only");
        lock.write(&text).map_err(cannot)?;
        let server = Self { home: home.clone(), settings, tcp, unix, socket, _lock: lock };
        Ok(Bound::Server(Box::new(server)))
    }

    /// Returns the address of the pages, or `None` if only the Unix socket is served.
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok())
    }

    /// Returns the path of the Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// Creates a runtime for a server. Its threads for commands end soon after their last command.
    ///
    /// # Errors
    /// Returns an error if the runtime cannot be created.
    pub fn runtime() -> Result<Runtime, Failure> {
        Builder::new_current_thread()
            .enable_all()
            .thread_stack_size(STACK)
            .thread_keep_alive(IDLE)
            .build()
            .map_err(|error| Failure::internal(format!("cannot start the server's loop: {error}")))
    }

    /// Reads the secrets and creates the login code. Call [`Ready::answer`] on the returned server
    /// to answer requests.
    ///
    /// # Errors
    /// Returns an error if the database cannot be opened, or if the secrets or the code cannot be
    /// created, read or written.
    pub fn prepare(self, (caller, answers): Commands) -> Result<Ready, Failure> {
        // A database in an older format records no changes, so it is migrated once, here.
        if self.home.store_path().exists() {
            self.home.store()?;
        }
        let (sender, changes) = watch::channel(0);
        let hosts = self.address().map(|at| self.settings.hosts(at)).unwrap_or_default();
        let web = Arc::new(Web::new((self.home.clone(), caller), hosts, changes, STREAMS)?);
        Ok(Ready { server: self, web, sender, answers })
    }
}

/// A server that is ready to answer requests.
pub struct Ready {
    server: Server,
    web: Arc<Web>,
    sender: watch::Sender<i64>,
    answers: AnswerSchemas,
}

impl Ready {
    /// Answers requests until the future is dropped.
    ///
    /// # Errors
    /// Returns an error if a bound address cannot be used.
    pub async fn answer(self) -> Result<(), Failure> {
        let cannot = |error: io::Error| Failure::internal(format!("cannot serve: {error}"));
        let router = router::router(&self.web, self.answers);
        let unix = self.server.unix.try_clone().map_err(cannot)?;
        unix.set_nonblocking(true).map_err(cannot)?;
        let unix = tokio::net::UnixListener::from_std(unix).map_err(cannot)?;
        let tcp = match &self.server.tcp {
            Some(tcp) => {
                let tcp = tcp.try_clone().map_err(cannot)?;
                tcp.set_nonblocking(true).map_err(cannot)?;
                Some(tokio::net::TcpListener::from_std(tcp).map_err(cannot)?)
            }
            None => None,
        };
        tokio::spawn(report_changes(self.server.home.clone(), self.sender));
        if let Some(tcp) = tcp {
            tokio::spawn(connections::tcp(tcp, router.clone()));
        }
        connections::unix(unix, router).await;
        Ok(())
    }

    /// Answers requests on a separate thread until the process exits.
    ///
    /// # Errors
    /// Returns an error if the runtime or the thread cannot be started.
    pub fn answer_apart(self) -> Result<(), Failure> {
        let runtime = Server::runtime()?;
        let started = thread::Builder::new().name("serve".to_owned()).spawn(move || {
            if let Err(failure) = runtime.block_on(self.answer()) {
                tracing::error!("{failure}");
            }
        });
        started
            .map(|_detached| ())
            .map_err(|error| Failure::internal(format!("cannot start a thread: {error}")))
    }
}

fn ip(at: SocketAddr) -> String {
    match at {
        SocketAddr::V4(at) => at.ip().to_string(),
        SocketAddr::V6(at) => format!("[{}]", at.ip()),
    }
}

/// Binds the Unix socket. The caller holds the lock, so any existing socket file is stale.
fn bind_unix(home: &Env, socket: &PathBuf) -> Result<UnixListener, Failure> {
    let cannot = |error: io::Error| Failure::not_made(socket, error);
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
        _ => {}
    }
    let (_folder, address) = socket_address(&home.state, SOCKET).map_err(cannot)?;
    let listener = UnixListener::bind(&address).map_err(cannot)?;
    // The state folder is already private; the socket's mode is an additional safeguard.
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600)).map_err(cannot)?;
    Ok(listener)
}

/// Writes the HTML file that posts the login code to the server, and returns the file's path. Only
/// its owner may read the file, and the login deletes it.
///
/// # Errors
/// Returns an error if there is no code, or if the file cannot be written.
pub fn open_page(home: &Env, address: SocketAddr) -> Result<PathBuf, Failure> {
    let path = code_file(home);
    let code = read_no_link(&path, SMALL).map_err(|error| Failure::unreadable(&path, error))?;
    let code = String::from_utf8_lossy(&code).trim().to_owned();
    let page = Renderer::new().page("open.html", context! { address => address.to_string(), code });
    let path = folder(home).join("open.html");
    write(&path, page.as_bytes())?;
    Ok(path)
}
