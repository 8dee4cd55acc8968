//! Webhooks let another program request a run, with a signature instead of a token.
//!
//! ```text
//! x-runner-signature = "sha256=" HMAC-SHA256(webhook key, TIMESTAMP "." PATH "." BODY)
//! ```
//!
//! The signature covers the path, so it cannot be used for another job. A repeated request has the
//! same idempotency key as the first one, so the database records no second run. After [`WINDOW`],
//! a repeated request is refused.

use axum::http::{HeaderMap, Method};
use hmac::{Hmac, Mac as _};
use jiff::{SignedDuration, Timestamp};
use sha2::Sha256;

use super::secrets::unhex;

/// The header containing the signature.
pub const SIGNATURE: &str = "x-runner-signature";
/// The header containing the time of the signature, in seconds since 1970.
const TIMESTAMP: &str = "x-runner-timestamp";
/// How far a signature's time may differ from the current time.
const WINDOW: SignedDuration = SignedDuration::from_mins(5);

/// Reports whether a request is a webhook: a signed request to run a job.
pub fn is_webhook(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    method == Method::POST
        && headers.contains_key(SIGNATURE)
        && matches!(parts.as_slice(), ["", "api", "v1", "projects", _, "jobs", _, "runs"])
}

/// Returns a webhook's idempotency key, or `None` if the signature is not valid or too old.
pub fn check(
    key: &str,
    path: &str,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Option<String> {
    let one = |name: &str| {
        let mut values = headers.get_all(name).iter();
        let value = values.next()?.to_str().ok()?;
        values.next().is_none().then_some(value)
    };
    let (timestamp, signature) = (one(TIMESTAMP)?, one(SIGNATURE)?);
    let at = Timestamp::from_second(timestamp.parse().ok()?).ok()?;
    if now.duration_since(at).abs() > WINDOW {
        return None;
    }
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC accepts a key of any length");
    for part in [timestamp.as_bytes(), b".", path.as_bytes(), b".", body] {
        mac.update(part);
    }
    let digits = signature.strip_prefix("sha256=")?;
    mac.verify_slice(&unhex(digits)?).ok()?;
    Some(format!("webhook {}", digits.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::super::secrets::hex;
    use super::*;

    #[test]
    fn forged_and_old_webhooks_are_refused() {
        let (path, body, now) =
            ("/api/v1/projects/P/jobs/dream/runs", b"{}".as_slice(), Timestamp::UNIX_EPOCH);
        let signed = |timestamp: &str| {
            let mut mac = Hmac::<Sha256>::new_from_slice(b"key").unwrap();
            mac.update(format!("{timestamp}.{path}.{{}}").as_bytes());
            let mut headers = HeaderMap::new();
            headers.insert(TIMESTAMP, timestamp.parse().unwrap());
            let signature = format!("sha256={}", hex(&mac.finalize().into_bytes()));
            headers.insert(SIGNATURE, signature.parse().unwrap());
            headers
        };
        let headers = signed("0");
        assert!(is_webhook(&Method::POST, path, &headers));
        assert!(!is_webhook(&Method::POST, "/api/v1/runs/x/cancel", &headers));
        let key = check("key", path, &headers, body, now).unwrap();
        assert!(key.starts_with("webhook "), "{key}");
        assert_eq!(check("other", path, &headers, body, now), None);
        assert_eq!(check("key", "/api/v1/projects/P/jobs/other/runs", &headers, body, now), None);
        assert_eq!(check("key", path, &headers, b"{ }", now), None);
        assert_eq!(check("key", path, &signed("-301"), body, now), None);
        assert_eq!(check("key", path, &signed("301"), body, now), None);
        assert_eq!(check("key", path, &signed("x"), body, now), None);
        let mut twice = headers.clone();
        twice.append(TIMESTAMP, "0".parse().unwrap());
        assert_eq!(check("key", path, &twice, body, now), None);
    }
}
