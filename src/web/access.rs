//! Decides whether a request is allowed, from its method, address, headers and peer.
//!
//! ```text
//! Host not listed ────────────────────────────────> 421
//! POST from another origin, or without an origin ─> 403
//! no login and no token ──────────────────────────> 401 (a page: redirected to the login)
//! POST with a role that may only read ────────────> 403
//! ```
//!
//! The decision is pure and must never depend on the body. A request is refused if a header that
//! the decision needs occurs twice.

use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use jiff::Timestamp;

use super::secrets::{Login, Role, Secrets};

pub const COOKIE: &str = "runner-login";

/// Where a connection comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The Unix socket, used by a client running as the same user.
    Unix,
    /// A TCP connection from this address.
    Tcp(std::net::SocketAddr),
}

/// The client making a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    pub role: Role,
    /// A description of where the request comes from, for the audit trail.
    pub from: String,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A header is missing, occurs twice or is not text.
    Malformed,
    /// The request is addressed to a host name that is not listed.
    WrongHost,
    /// The request may have been made by a page of another site.
    OtherOrigin,
    /// There is neither a valid login nor a valid token.
    NoLogin,
    /// There is a token, but it is wrong.
    WrongToken,
    /// The client may only read.
    ReadOnly,
}

impl Refusal {
    /// Returns the status of the response, and its text.
    pub fn response(self) -> (StatusCode, &'static str) {
        match self {
            Self::Malformed => (StatusCode::BAD_REQUEST, "a header is missing or occurs twice"),
            Self::WrongHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "this server does not answer requests for this host name; fix: runner serve --allow-host NAME:PORT",
            ),
            Self::OtherOrigin => (
                StatusCode::FORBIDDEN,
                "the request does not come from a page of this server: its Origin header must name this server",
            ),
            Self::NoLogin => (StatusCode::UNAUTHORIZED, "log in first; fix: runner serve --open"),
            Self::WrongToken => (StatusCode::UNAUTHORIZED, "the token is not valid"),
            Self::ReadOnly => (StatusCode::FORBIDDEN, "this login may only read"),
        }
    }
}

/// Returns whether a path requires no login: the login form and its style sheet.
pub fn is_public(path: &str) -> bool {
    path == LOGIN || path == "/style.css"
}

/// The path of the login.
pub const LOGIN: &str = "/login";

/// A request without its body.
pub struct RequestHead<'a> {
    pub method: &'a Method,
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
    pub peer: &'a Peer,
}

impl RequestHead<'_> {
    /// Checks the host name to which the request is addressed and, if the request may change
    /// something, its origin.
    ///
    /// # Errors
    /// Returns the reason if the request is refused.
    pub fn check_origin(&self, hosts: &[String]) -> Result<(), Refusal> {
        if matches!(self.peer, Peer::Unix) {
            return Ok(());
        }
        let host = self.one(header::HOST.as_str())?.ok_or(Refusal::Malformed)?;
        let host = host.to_ascii_lowercase();
        if !hosts.contains(&host) {
            return Err(Refusal::WrongHost);
        }
        // A client may send the whole URL, in which case its host name must match.
        if self.uri.authority().is_some_and(|it| it.as_str().to_ascii_lowercase() != host) {
            return Err(Refusal::WrongHost);
        }
        if self.reads() {
            return Ok(());
        }
        let same_site = self.one("sec-fetch-site")?;
        match self.one(header::ORIGIN.as_str())? {
            Some(origin) if origin == format!("http://{host}") => {}
            // A proxy in front of the server may add TLS.
            Some(origin) if origin == format!("https://{host}") => {}
            // The file written by `--open` is not a page of this server. The code in it proves that
            // the user opened the file.
            Some("null") if self.uri.path() == LOGIN => return Ok(()),
            None if same_site == Some("same-origin") => {}
            _ => return Err(Refusal::OtherOrigin),
        }
        match same_site {
            None | Some("same-origin") => Ok(()),
            Some(_) => Err(Refusal::OtherOrigin),
        }
    }

    /// Returns the client making the request, which [`RequestHead::check_origin`] must have
    /// accepted.
    ///
    /// # Errors
    /// Returns the reason if the client is not known, or may not act.
    pub fn client(&self, secrets: &Secrets, now: Timestamp) -> Result<Client, Refusal> {
        let client = match self.peer {
            Peer::Unix => Client { role: Role::Act, from: "the Unix socket".to_owned() },
            Peer::Tcp(peer) => {
                let ip = peer.ip();
                match self.one(header::AUTHORIZATION.as_str())? {
                    Some(text) => {
                        let token = text.strip_prefix("Bearer ").ok_or(Refusal::WrongToken)?;
                        let role = secrets.role_of_token(token).ok_or(Refusal::WrongToken)?;
                        Client { role, from: format!("{ip} with a token") }
                    }
                    None => {
                        let login = self.login(secrets, now).ok_or(Refusal::NoLogin)?;
                        let from = format!("{ip} with the login {}", login.name);
                        Client { role: login.role, from }
                    }
                }
            }
        };
        match (client.role, self.reads()) {
            (Role::Read, false) => Err(Refusal::ReadOnly),
            _ => Ok(client),
        }
    }

    /// Returns the login in the request's cookie, or `None` if no cookie contains a valid login.
    fn login(&self, secrets: &Secrets, now: Timestamp) -> Option<Login> {
        let cookies = self.headers.get_all(header::COOKIE).iter();
        let cookies = cookies.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(';'));
        let mut values = cookies.filter_map(|it| it.trim().strip_prefix(COOKIE)?.strip_prefix('='));
        values.find_map(|value| secrets.login(value, now))
    }

    fn reads(&self) -> bool {
        self.method == Method::GET || self.method == Method::HEAD
    }

    /// Returns the value of a header, or `None` if the header is missing. A header that occurs
    /// twice is an error.
    fn one(&self, name: &str) -> Result<Option<&str>, Refusal> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next();
        if values.next().is_some() {
            return Err(Refusal::Malformed);
        }
        first.map(|value| value.to_str().map_err(|_| Refusal::Malformed)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, path: &str, headers: &[(&str, &str)]) -> Result<(), Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: axum::http::HeaderName = name.parse().unwrap();
            map.append(name, value.parse().unwrap());
        }
        let head = RequestHead {
            method: &method.parse().unwrap(),
            uri: &path.parse().unwrap(),
            headers: &map,
            peer: &Peer::Tcp("127.0.0.1:9".parse().unwrap()),
        };
        head.check_origin(&["localhost:7077".to_owned(), "127.0.0.1:7077".to_owned()])
    }

    #[test]
    fn names_and_origins_must_match_exactly() {
        let host = ("host", "127.0.0.1:7077");
        let origin = |value| ("origin", value);
        let site = |value| ("sec-fetch-site", value);
        let same = "http://127.0.0.1:7077";
        let (malformed, wrong, other) =
            (Err(Refusal::Malformed), Err(Refusal::WrongHost), Err(Refusal::OtherOrigin));
        for (method, path, headers, expected) in [
            ("GET", "/", vec![host], Ok(())),
            ("GET", "/", vec![("host", "LOCALHOST:7077")], Ok(())),
            ("GET", "/", vec![], malformed),
            ("GET", "/", vec![host, host], malformed),
            ("GET", "/", vec![("host", "evil.example:7077")], wrong),
            ("GET", "/", vec![("host", "127.0.0.1")], wrong),
            ("GET", "/", vec![("host", "127.0.0.1:7078")], wrong),
            ("GET", "/", vec![("host", "127.0.0.1:7077.evil.example")], wrong),
            ("GET", "/", vec![("host", "user@127.0.0.1:7077")], wrong),
            ("GET", "http://evil.example/", vec![host], wrong),
            ("POST", "/", vec![host], other),
            ("POST", "/", vec![host, origin(same)], Ok(())),
            ("POST", "/", vec![host, origin(same), site("same-origin")], Ok(())),
            ("POST", "/", vec![host, site("same-origin")], Ok(())),
            ("POST", "/", vec![host, origin(same), site("cross-site")], other),
            ("POST", "/", vec![host, origin(same), site("same-site")], other),
            ("POST", "/", vec![host, origin("http://localhost:7077")], other),
            ("POST", "/", vec![host, origin("http://127.0.0.1:7078")], other),
            ("POST", "/", vec![host, origin("null")], other),
            ("POST", "/login", vec![host, origin("null"), site("cross-site")], Ok(())),
            ("POST", "/login", vec![host, origin("http://evil.example")], other),
            ("POST", "/", vec![host, origin(same), origin("http://evil.example")], malformed),
            ("DELETE", "/", vec![host], other),
        ] {
            assert_eq!(check(method, path, &headers), expected, "{method} {path} {headers:?}");
        }
    }
}
