//! Parses the settings for sending messages: web addresses, email addresses, and the locations of
//! keys.
//!
//! A setting must never contain a key; it only names the key's location.

use std::net::IpAddr;
use std::path::PathBuf;

use runner_backends::credentials::in_keyring;
use runner_text::grammar;

/// The recipient of the heartbeat after each successful tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heartbeat {
    /// A server.
    Address(Address),
    /// A file, whose path begins with `/` or `~/`.
    File(PathBuf),
}

/// The web address that messages are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The address itself.
    Given(String),
    /// The name of the environment variable that contains the address, because an address may be a
    /// secret.
    Variable(String),
}

/// The location of a signing key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    Variable(String),
    /// The name of a secret in the desktop's keyring.
    Keyring(String),
    /// The path of the file with the secret, which only its owner may read.
    File(PathBuf),
}

grammar! {
    /// An address that messages are sent to, or `env:NAME`.
    Url: Address, "https://example.org/x", "", url;
    /// The recipient of the heartbeat after each successful tick.
    Recipient: Heartbeat, "https://example.org/x", "", heartbeat;
    /// The name of the environment variable that contains a key, or a reference to a keyring entry.
    SecretName: Secret, "RUNNER_HOOK_KEY", "", secret;
    /// An email address.
    MailAddress: String, "me@example.org", "", address;
}

fn heartbeat(text: &str) -> Result<Heartbeat, String> {
    if text.starts_with('/') || text.starts_with("~/") {
        return Ok(Heartbeat::File(text.into()));
    }
    url(text)
        .map(Heartbeat::Address)
        .map_err(|why| format!("{why}, or a file that begins with / or ~/"))
}

/// Parses an address for messages, or `env:` followed by the name of the environment variable that
/// contains the address.
pub fn url(text: &str) -> Result<Address, String> {
    match text.strip_prefix("env:") {
        Some(name) => variable(name).map(Address::Variable),
        None => checked_url(text).map(|_| Address::Given(text.to_owned())),
    }
}

/// Parses an address, which must use https, or http if it refers to this host, and must not contain
/// credentials.
pub fn checked_url(text: &str) -> Result<reqwest::Url, String> {
    let wrong = "expected an https:// address, an http:// address of this host, or env:NAME";
    let url: reqwest::Url = text.parse().map_err(|_| wrong.to_owned())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "the address contains credentials, which logs would record; use env:NAME".to_owned()
        );
    }
    match url.scheme() {
        "https" if url.has_host() => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        _ => Err(wrong.to_owned()),
    }
}

/// Returns whether an address refers to this host.
pub fn is_loopback(url: &reqwest::Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Parses the location of a key: the name of an environment variable, or a reference to the
/// desktop's keyring.
fn secret(text: &str) -> Result<Secret, String> {
    match in_keyring(text) {
        Some(Ok(name)) => Ok(Secret::Keyring(name.to_owned())),
        Some(Err(why)) => Err(why.to_owned()),
        None => variable(text).map(Secret::Variable),
    }
}

fn variable(text: &str) -> Result<String, String> {
    let mut chars = text.chars();
    let good = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_');
    match good {
        true => Ok(text.to_owned()),
        // The value may be the secret itself, so the error must not contain it.
        false => {
            Err("expected the name of the variable with the value, like RUNNER_HOOK_KEY".to_owned())
        }
    }
}

/// Checks that the string is a single plain email address, without a display name, comments or
/// spaces.
fn address(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_graphic() && !"<>()[],;:\\\"".contains(c);
    let good = text
        .split_once('@')
        .is_some_and(|(name, host)| !name.is_empty() && !host.is_empty() && !host.contains('@'));
    match good && text.chars().all(plain) && !text.starts_with('-') && text.len() <= 254 {
        true => Ok(text.to_owned()),
        false => Err(format!("{text:?} is not a plain email address (like me@example.org)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_urls_are_refused() {
        for good in [
            "https://example.org/hook?x=1",
            "http://127.0.0.1:8080/",
            "http://[::1]:80/",
            "http://localhost/x",
            "env:HOOK",
        ] {
            assert!(url(good).is_ok(), "{good}");
        }
        for bad in [
            "http://example.org/",
            "http://127.0.0.1.example.org/",
            "ftp://example.org/",
            "https://me:pw@example.org/",
            "file:///etc/passwd",
            "env:a b",
            "https://",
            "",
        ] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn malformed_mail_addresses_are_refused() {
        assert!(address("me+x@example.org").is_ok());
        for bad in [
            "me",
            "@x",
            "me@",
            "-f@x",
            "a@b@c",
            "a b@c",
            "a@b\nBcc: c@d",
            "a@b, c@d",
            "<a@b>",
            "ä@b",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
