//! Provides a proxy through which a child can reach the hosts listed by its job, and no others.
//!
//! ```text
//! child ──CONNECT host:port──> listener in the child's network namespace ──> this thread, outside
//!                                        listed: connect and copy · else: 403 · recorded in both cases
//! ```
//!
//! The child has its own network namespace, and the listener is the only connection to the outside.
//! The first process inside the sandbox creates the listener and passes it to the launch
//! supervisor, which accepts the connections in the host's network. The proxy reads only the host
//! names in requests, and copies all other data without interpreting it. It must never connect to a
//! host that is not listed, and never keep what it copies.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::process::wait::poll_within;
use crate::sandbox::RequestedHost;

/// Maximum size of a request's head in bytes.
const LONGEST: usize = 8 * 1024;
/// Time limit for each read and each write until a tunnel has been established.
const HEAD_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for connecting to one address of a host.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent connections.
const CONNECTIONS: usize = 128;
/// Maximum number of different hosts in a report. Requests for additional hosts are counted
/// together.
const HOSTS: usize = 100;
/// The name under which requests are counted if their host is not a valid name, or if the report
/// already contains [`HOSTS`] hosts.
const OTHERS: &str = "others";

/// The proxy for one child. It runs until this process exits.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    allowed: Arc<Vec<String>>,
    requested: Arc<Mutex<BTreeMap<(String, bool), u64>>>,
    /// Each connection holds a clone, so the reference count shows how many connections are open.
    open: Arc<()>,
}

/// A request from the child.
#[derive(Debug, PartialEq, Eq)]
enum ProxyRequest {
    /// A tunnel to this `host:port`.
    Tunnel(String),
    /// Another request, for a URL with this `host:port`.
    Other(String),
}

/// Delay before the next attempt after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// Returns whether a later attempt to accept a connection may succeed.
fn is_temporary(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(
            Errno::MFILE
                | Errno::NFILE
                | Errno::NOBUFS
                | Errno::NOMEM
                | Errno::CONNABORTED
                | Errno::INTR
        )
    )
}

impl Proxy {
    /// Starts a thread that serves `listener`. `allowed` lists the hosts that the child may reach,
    /// as `host:port` in lower case.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn serve(listener: OwnedFd, allowed: &[String]) -> io::Result<Self> {
        let proxy = Self {
            allowed: Arc::new(allowed.to_vec()),
            requested: Arc::default(),
            open: Arc::default(),
        };
        let listener = TcpListener::from(listener);
        let accepting = proxy.clone();
        thread::Builder::new().spawn(move || {
            loop {
                let client = match listener.accept() {
                    Ok((client, _)) => client,
                    Err(error) if is_temporary(&error) => {
                        poll_within(&mut [], Some(PAUSE));
                        continue;
                    }
                    // The child can open no more connections.
                    Err(_) => break,
                };
                let proxy = accepting.clone();
                // The proxy and its accept thread hold one clone each, and this iteration holds a
                // third.
                if Arc::strong_count(&proxy.open) < CONNECTIONS + 3 {
                    let _dropped_if_no_thread_starts =
                        thread::Builder::new().spawn(move || drop(proxy.attend(client)));
                }
            }
        })?;
        Ok(proxy)
    }

    /// Returns the hosts that the child requested, in alphabetical order.
    pub fn requested(&self) -> Vec<RequestedHost> {
        let requested = self.requested.lock().unwrap_or_else(PoisonError::into_inner);
        let hosts = requested.iter().map(|((host, reached), count)| RequestedHost {
            host: host.clone(),
            allowed: *reached,
            count: *count,
        });
        hosts.collect()
    }

    fn attend(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(HEAD_LIMIT))?;
        client.set_write_timeout(Some(HEAD_LIMIT))?;
        let Some((head, rest)) = head(&mut client)? else {
            return answer(&mut client, "400 Bad Request", "the request cannot be parsed");
        };
        let host = match parse(&head) {
            Some(ProxyRequest::Tunnel(host)) => host,
            Some(ProxyRequest::Other(host)) => {
                self.note(&host, false);
                return answer(
                    &mut client,
                    "405 Method Not Allowed",
                    "only encrypted connections (https) are possible",
                );
            }
            None => {
                self.note(OTHERS, false);
                return answer(&mut client, "400 Bad Request", "the request cannot be parsed");
            }
        };
        let allowed = self.allowed.contains(&host);
        self.note(&host, allowed);
        if !allowed {
            let why = format!("{host} is not listed in this job's `network` setting");
            return answer(&mut client, "403 Forbidden", &why);
        }
        let mut server = match connect(&host) {
            Ok(server) => server,
            Err(error) => {
                let why = format!("{host} cannot be reached: {error}");
                return answer(&mut client, "502 Bad Gateway", &why);
            }
        };
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        server.write_all(&rest)?;
        client.set_read_timeout(None)?;
        client.set_write_timeout(None)?;
        let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
        let back = thread::Builder::new().spawn(move || {
            let _ends_with_either_side = io::copy(&mut from_server, &mut to_client);
            let _ = to_client.shutdown(Shutdown::Write);
        })?;
        let _ends_with_either_side = io::copy(&mut client, &mut server);
        let _ = server.shutdown(Shutdown::Write);
        let _a_panic_ends_the_connection = back.join();
        Ok(())
    }

    fn note(&self, host: &str, allowed: bool) {
        let mut requested = self.requested.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (host.to_owned(), allowed);
        if !requested.contains_key(&key) && requested.len() >= HOSTS {
            OTHERS.clone_into(&mut key.0);
        }
        *requested.entry(key).or_default() += 1;
    }
}

/// Reads a request's head. Returns the head and the bytes received after it, or `None` if the head
/// is too long or incomplete.
fn head(client: &mut TcpStream) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let mut text = Vec::new();
    let mut piece = [0; 1024];
    loop {
        if let Some(end) = text.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = text.split_off(end + 4);
            return Ok(Some((text, rest)));
        }
        let count = client.read(&mut piece)?;
        if count == 0 || text.len() + count > LONGEST {
            return Ok(None);
        }
        text.extend_from_slice(&piece[..count]);
    }
}

/// Parses the first line of a request's head. Returns `None` if the line is not a valid request.
fn parse(head: &[u8]) -> Option<ProxyRequest> {
    let line = std::str::from_utf8(head).ok()?.lines().next()?;
    let mut parts = line.split(' ');
    let (method, target) = (parts.next()?, parts.next()?);
    if !parts.next()?.starts_with("HTTP/1.") {
        return None;
    }
    if method == "CONNECT" {
        return named(target, None).map(ProxyRequest::Tunnel);
    }
    let (scheme, rest) = target.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let port = if scheme == "https" { 443 } else { 80 };
    named(authority, Some(port)).map(ProxyRequest::Other)
}

/// Returns `host:port` in the form used in the host list, or `None` if the host is not a valid name
/// or the port is invalid. `port` is used if `authority` contains no port.
fn named(authority: &str, port: Option<u16>) -> Option<String> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().ok()?),
        None => (authority, port?),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let plain = (1..=253).contains(&host.len()) && host.bytes().all(valid);
    plain.then(|| format!("{}:{port}", host.to_ascii_lowercase()))
}

fn connect(host: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn answer(client: &mut TcpStream, status: &str, why: &str) -> io::Result<()> {
    let body = format!("runner: {why}\n");
    // The answer is sent in one write, because some clients expect the complete first line in their
    // first read.
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    client.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(proxy: &TcpListener, request: &str) -> String {
        let mut client = TcpStream::connect(proxy.local_addr().unwrap()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn only_listed_hosts_are_reached() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let echo = thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut text = [0; 5];
            stream.read_exact(&mut text).unwrap();
            stream.write_all(&text).unwrap();
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listed = vec![format!("localhost:{port}"), format!("127.0.0.1:{port}")];
        let proxy = Proxy::serve(listener.try_clone().unwrap().into(), &listed).unwrap();
        // The first bytes of the tunnel may arrive with the head.
        let said = ask(&listener, &format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nhello"));
        assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("\r\n\r\nhello"), "{said}");
        echo.join().unwrap();
        for (request, status) in [
            ("CONNECT evil.example:443 HTTP/1.1\r\n\r\n".to_owned(), "403"),
            (format!("CONNECT localhost:{} HTTP/1.1\r\n\r\n", port ^ 1), "403"),
            ("CONNECT EVIL.example.:443 HTTP/1.0\r\nHost: localhost\r\n\r\n".to_owned(), "403"),
            (format!("GET http://localhost:{port}/ HTTP/1.1\r\n\r\n"), "405"),
            ("CONNECT a\u{1b}[2Jb:443 HTTP/1.1\r\n\r\n".to_owned(), "400"),
            ("CONNECT localhost HTTP/1.1\r\n\r\n".to_owned(), "400"),
            ("nonsense\r\n\r\n".to_owned(), "400"),
            (format!("CONNECT {}:443 HTTP/1.1\r\n\r\n", "a".repeat(254)), "400"),
        ] {
            let said = ask(&listener, &request);
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {said}");
        }
        let requested = proxy.requested();
        let of = |host: &str| {
            requested.iter().find(|it| it.host == host).map(|it| (it.allowed, it.count))
        };
        assert_eq!(of(&format!("127.0.0.1:{port}")), Some((true, 1)));
        assert_eq!(of("evil.example:443"), Some((false, 2)));
        assert_eq!(of(OTHERS), Some((false, 4)));
        assert_eq!(requested.len(), 5, "{requested:?}");
    }

    #[test]
    fn report_of_hosts_is_limited() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::serve(listener.into(), &[]).unwrap();
        for number in 0..500 {
            proxy.note(&format!("host-{number}:443"), false);
        }
        let requested = proxy.requested();
        assert_eq!(requested.len(), HOSTS + 1);
        assert_eq!(requested.iter().map(|it| it.count).sum::<u64>(), 500);
    }
}
