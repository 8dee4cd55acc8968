//! Asks the engine's address for its state, within a deadline.
//!
//! The probe sends two plain HTTP requests on a separate thread, and the caller never waits for
//! longer than the deadline. The deadline therefore also limits the wait for an unresolvable
//! address, a host that drops packets or a service that never finishes its answer. The probe must
//! never send anything else, and never follow a redirect.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use runner_engine::time::boot_time;
use serde::Serialize;
use serde_json::Value;

/// Time limit of both requests together.
pub const DEADLINE: Duration = Duration::from_millis(1_500);
/// Maximum length of an answer, in bytes.
const LARGEST: u64 = 4 << 20;

/// The result of the probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Health {
    /// The engine answers and has the model.
    Ready { version: String },
    /// The engine answers but lacks the model.
    ModelMissing { version: String, models: Vec<String> },
    /// Nothing listens at the endpoint.
    Dead {
        /// The system's error message.
        why: String,
    },
    /// The connection is neither answered nor refused.
    Silent {
        /// The step that the request reached.
        why: String,
    },
    /// Another program listens at the endpoint.
    Stranger { why: String },
    /// The engine was not asked.
    NotAsked { why: String },
}

/// Checks whether the engine at `endpoint` answers and has `model`.
pub fn probe(endpoint: &str, model: &str) -> Health {
    let (host, port) = match address(endpoint) {
        Ok(address) => address,
        Err(why) => return Health::NotAsked { why },
    };
    let (tell, reported) = mpsc::channel();
    let model = model.to_owned();
    let asks = thread::Builder::new().spawn(move || {
        let _nobody_waits_any_more = tell.send(ask(&host, port, &model));
    });
    if let Err(error) = asks {
        let why = format!("cannot ask: {error}");
        return Health::NotAsked { why };
    }
    reported.recv_timeout(DEADLINE).unwrap_or_else(|_| Health::Silent {
        why: format!("no answer within {} ms", DEADLINE.as_millis()),
    })
}

/// Returns the host and port of `http://host[:port]`.
fn address(endpoint: &str) -> Result<(String, u16), String> {
    let rest = endpoint
        .strip_prefix("http://")
        .ok_or_else(|| format!("{endpoint:?} does not begin with http://"))?;
    let rest = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    if rest.contains('@') {
        return Err("the address contains a user name or a password".to_owned());
    }
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let port = port.parse().map_err(|_| format!("{port:?} is not a port"))?;
            (host, port)
        }
        _ => (rest, 80),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("{endpoint:?} contains no host"));
    }
    Ok((host.to_owned(), port))
}

fn ask(host: &str, port: u16, model: &str) -> Health {
    let until = boot_time() + DEADLINE;
    let stranger = |why: String| Health::Stranger { why };
    let version = match get(host, port, "/api/version", until) {
        Err(health) => return health,
        Ok(text) => match serde_json::from_str::<Value>(&text).map(|it| it["version"].clone()) {
            Ok(Value::String(version)) => version,
            _ => {
                return stranger(format!("the answer is not from Ollama: {}", brief(&text)));
            }
        },
    };
    let tags = match get(host, port, "/api/tags", until) {
        Err(health) => return health,
        Ok(text) => text,
    };
    let tags: Value = match serde_json::from_str(&tags) {
        Ok(tags) => tags,
        Err(_) => return stranger(format!("the list of models is not JSON: {}", brief(&tags))),
    };
    let names = tags["models"].as_array().into_iter().flatten();
    let models: Vec<String> = names
        .filter_map(|it| it["name"].as_str().or(it["model"].as_str()))
        .map(|name| name.chars().take(200).collect())
        .collect();
    // A name without a tag means the tag `latest`.
    let whole = if model.contains(':') { model.to_owned() } else { format!("{model}:latest") };
    if models.iter().any(|name| *name == whole || *name == model) {
        Health::Ready { version }
    } else {
        Health::ModelMissing { version, models }
    }
}

/// Sends a GET request and returns the body of the answer.
fn get(host: &str, port: u16, path: &str, until: Duration) -> Result<String, Health> {
    let silent = |why: String| Health::Silent { why };
    let left = || until.saturating_sub(boot_time()).max(Duration::from_millis(1));
    let dead = |why: String| Health::Dead { why };
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| dead(format!("{host} cannot be found: {error}")))?;
    let mut last = dead(format!("{host} has no address"));
    let mut stream = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, left()) {
            Ok(open) => {
                stream = Some(open);
                break;
            }
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                last = silent(format!("{address} does not answer"));
            }
            Err(error) => last = dead(format!("{address}: {}", error.kind())),
        }
    }
    let mut stream = stream.ok_or(last)?;
    let spoken = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            Health::Silent { why: "no answer after the connection was accepted".to_owned() }
        }
        _ => Health::Stranger { why: format!("the connection failed: {error}") },
    };
    let _set = stream.set_write_timeout(Some(left()));
    let question = format!(
        "GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(question.as_bytes()).map_err(spoken)?;
    let mut bytes = Vec::new();
    let mut piece = [0; 16 * 1024];
    let body = loop {
        if boot_time() >= until {
            return Err(Health::Silent { why: "the answer does not end".to_owned() });
        }
        let _set = stream.set_read_timeout(Some(left()));
        let count = stream.read(&mut piece).map_err(spoken)?;
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let ended = count == 0;
        if bytes.len() as u64 > LARGEST
            || ended && !text.starts_with("HTTP/1.")
            || bytes.len() > 12 && !text.starts_with("HTTP/1.")
        {
            return Err(Health::Stranger {
                why: match text.is_empty() {
                    true => "the connection was closed without an answer".to_owned(),
                    false => format!("the answer is not HTTP: {}", brief(&text)),
                },
            });
        }
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            if ended {
                return Err(Health::Stranger {
                    why: format!("incomplete answer: {}", brief(&text)),
                });
            }
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is = name.eq_ignore_ascii_case("content-length");
            is.then(|| value.trim().parse::<usize>().ok()).flatten()
        });
        let status = head.split_whitespace().nth(1).unwrap_or_default();
        if status != "200" {
            return Err(Health::Stranger {
                why: format!(
                    "the answer to {path} is {}",
                    brief(head.lines().next().unwrap_or(head))
                ),
            });
        }
        if ended || length.is_some_and(|length| body.len() >= length) {
            break body.to_owned();
        }
    };
    Ok(body)
}

fn brief(text: &str) -> String {
    let words: String =
        text.chars().take(80).map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("{:?}", words.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart_or_refused_in_words() {
        assert_eq!(address("http://127.0.0.1:11434"), Ok(("127.0.0.1".into(), 11_434)));
        assert_eq!(address("http://localhost/x"), Ok(("localhost".into(), 80)));
        assert_eq!(address("http://[::1]:9/"), Ok(("::1".into(), 9)));
        for bad in ["", "https://x", "http://", "http://x:y", "http://a:b@h", "D:\\x", "http://a b"]
        {
            assert!(address(bad).is_err(), "{bad}");
            assert!(matches!(probe(bad, "m"), Health::NotAsked { .. }));
        }
    }
}
