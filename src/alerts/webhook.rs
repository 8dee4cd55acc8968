//! Sends a message as a JSON POST request, signed if there is a key, and a heartbeat as a GET
//! request.
//!
//! Only the status of a response is read, so the body's length and speed do not matter. Redirects
//! are not followed, because the message is meant for the configured address only.
//! This module must never include a key or an address in an error.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use hmac::{Hmac, Mac as _};
use reqwest::{Client, Method, StatusCode, Url, redirect};
use runner_engine::error_chain::whole;
use runner_engine::files::open_host;
use runner_text::shell_word;
use sha2::Sha256;

use super::deliver::resolved;
use super::message::Message;
use crate::config::addresses::{Address, Secret, checked_url, is_loopback};
use crate::env::{self, Env};
use crate::keyring;

/// Time limit for establishing a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit for the response to begin.
const TOTAL: Duration = Duration::from_secs(10);
/// Maximum number of bytes to read from a key file.
const LARGEST: u64 = 64 * 1024;

/// Posts a message.
///
/// # Errors
/// Returns the reason, without the address, if the message cannot be posted.
pub fn post(
    home: &Env,
    address: &Address,
    secret: Option<&Secret>,
    message: &Message,
) -> Result<(), String> {
    let url = checked_url(&resolved(address)?)?;
    let body = message.json();
    let at = home.wall().map_err(|failure| failure.to_string())?.as_second();
    let mut headers = vec![
        ("content-type", "application/json".to_owned()),
        ("x-runner-message", message.id().to_owned()),
        ("x-runner-timestamp", at.to_string()),
    ];
    if let Some(secret) = secret {
        let key = key(home, secret)?;
        let signature = sign(&key, &at.to_string(), &body);
        headers.push(("x-runner-signature", format!("sha256={signature}")));
    }
    request(Method::POST, url, headers, body, TOTAL)
}

/// Sends a GET request to the address and checks only that the status indicates success.
pub fn ping(address: &Address) -> Result<(), String> {
    let url = checked_url(&resolved(address)?)?;
    request(Method::GET, url, Vec::new(), Vec::new(), TOTAL)
}

/// Returns the HMAC-SHA256 over the timestamp, a dot and the body, in hex.
fn sign(key: &[u8], timestamp: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts a key of any length");
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body);
    let code = mac.finalize().into_bytes();
    code.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key(home: &Env, secret: &Secret) -> Result<Vec<u8>, String> {
    match secret {
        Secret::Variable(name) => env::named(std::iter::once(name.as_str()))
            .remove(name)
            .filter(|key| !key.is_empty())
            .map(String::into_bytes)
            .ok_or_else(|| {
                format!(
                    "{name}, the signing key, is not set in this environment (a tick started by the host scheduler \
                     gets the variables in {})",
                    home.credentials_file().display()
                )
            }),
        Secret::Keyring(name) => keyring::secret(name).map(String::into_bytes),
        Secret::File(path) => key_file(&home.expanded(path).map_err(|failure| failure.to_string())?),
    }
}

/// Reads a key from a file that only its owner may access, and removes trailing whitespace.
fn key_file(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let cannot = |error: std::io::Error| format!("cannot read {shown}: {error}");
    let file = open_host(path).map_err(cannot)?;
    let data = file.metadata().map_err(cannot)?;
    if data.mode() & 0o077 != 0 {
        return Err(format!(
            "{shown} contains a key, but other users have access to it: chmod 600 {}",
            shell_word(&shown)
        ));
    }
    let mut key = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut key).map_err(cannot)?;
    if key.len() as u64 > LARGEST {
        return Err(format!("{shown} is longer than {LARGEST} bytes"));
    }
    let end = key.iter().rposition(|byte| !byte.is_ascii_whitespace()).map_or(0, |last| last + 1);
    key.truncate(end);
    if key.is_empty() {
        return Err(format!("{shown} is empty"));
    }
    Ok(key)
}

/// Sends a request, and checks that the response status indicates success. `total` is the time
/// limit for the response to begin.
///
/// # Errors
/// Returns the reason, without the address, if there is no response in time or the response status
/// does not indicate success.
pub fn request(
    method: Method,
    url: Url,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    total: Duration,
) -> Result<(), String> {
    // Only the first call installs the provider. The errors of later calls are ignored.
    let _decided = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot wait for an answer: {error}"))?;
    let answered = runtime.block_on(async {
        let mut client = Client::builder()
            .user_agent(concat!("runner/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT.min(total))
            .timeout(total);
        if is_loopback(&url) {
            client = client.no_proxy();
        }
        let mut request = client.build()?.request(method, url).body(body);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        Ok(request.send().await?.status())
    });
    // Does not wait for a name lookup that is still in progress.
    runtime.shutdown_background();
    match answered {
        Ok(status) if status.is_success() => Ok(()),
        Ok(status) => Err(refused(status)),
        Err(error) => {
            let error: reqwest::Error = error;
            let late = error.is_timeout();
            let why = whole(&error.without_url());
            Err(match late {
                true => format!("no answer within {} s: {why}", total.as_secs()),
                false => why,
            })
        }
    }
}

fn refused(status: StatusCode) -> String {
    match status.is_redirection() {
        true => format!("it answered {status}, and redirects are not followed"),
        false => format!("it answered {status}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn signatures_match_rfc_4231() {
        // The RFC's second test case signs a string without a dot. A test in tests/cli checks
        // runner's own format against another implementation.
        let mut mac = Hmac::<Sha256>::new_from_slice(b"Jefe").unwrap();
        mac.update(b"what do ya want for nothing?");
        let code: String =
            mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(code, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert_ne!(sign(b"k", "1", b"2.3"), sign(b"k", "1.2", b"3x"));
    }

    #[test]
    fn group_readable_key_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "s3cr3t\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let why = key_file(&path).unwrap_err();
        assert!(why.contains("chmod 600") && !why.contains("s3cr3t"), "{why}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(key_file(&path).unwrap(), b"s3cr3t");
        for bad in [" \n".to_owned(), "x".repeat(LARGEST as usize + 1)] {
            fs::write(&path, bad).unwrap();
            assert!(key_file(&path).is_err());
        }
        assert!(key_file(folder.path()).is_err());
    }
}
