//! Resolves `keyring:NAME` references to secrets in the desktop's keyring.
//!
//! Without the `keyring` feature, every reference is an error. A secret is passed on like an
//! environment variable, and is redacted in the same way. This module must never write a secret, or
//! read one that is not named in the configuration.

use std::collections::BTreeMap;

use runner_backends::BackendSpec;
use runner_backends::credentials::{in_keyring, why_not};

use crate::env;

/// The service name of all keyring entries. An entry's user name is the name of the secret.
#[cfg(feature = "keyring")]
const SERVICE: &str = "runner";

/// Returns the environment variables and the keyring secret that a backend receives in addition to
/// the common variables. If the secret is unavailable, the map contains the reason instead.
pub fn resolve_secrets(spec: &BackendSpec) -> BTreeMap<String, String> {
    let mut lent = env::named(spec.variables().filter(|name| in_keyring(name).is_none()));
    if let Some(reference) = spec.endpoint_key()
        && let Some(Ok(name)) = in_keyring(reference)
    {
        match secret(name) {
            Ok(secret) => lent.insert(reference.to_owned(), secret),
            Err(why) => lent.insert(why_not(reference), why),
        };
    }
    lent
}

/// Always fails, because this build cannot read the keyring.
///
/// # Errors
/// Returns an error that describes how to build runner with keyring support.
#[cfg(not(feature = "keyring"))]
pub fn secret(name: &str) -> Result<String, String> {
    Err(format!(
        "keyring:{name} needs keyring support, and this runner was built without it; fix: cargo install --path . --features keyring"
    ))
}

/// Returns the secret with this name.
///
/// # Errors
/// Returns an error with the reason and, if there is one, a fix.
#[cfg(feature = "keyring")]
pub fn secret(name: &str) -> Result<String, String> {
    let entry = ::keyring::Entry::new(SERVICE, name);
    entry
        .and_then(|entry| entry.get_password())
        .map_err(|error| describe_error(name, &error))
        .and_then(|secret| not_empty(name, secret))
}

#[cfg(feature = "keyring")]
fn not_empty(name: &str, secret: String) -> Result<String, String> {
    match secret.trim().is_empty() {
        true => Err(format!("the keyring entry {SERVICE}/{name} is empty")),
        // A secret that was piped into the keyring may end with a line break.
        false => Ok(secret.trim_end_matches(['\r', '\n']).to_owned()),
    }
}

#[cfg(feature = "keyring")]
fn describe_error(name: &str, error: &::keyring::Error) -> String {
    use ::keyring::Error;
    match error {
        Error::NoEntry => format!(
            "the keyring has no secret named {SERVICE}/{name}; fix: secret-tool store --label 'runner {name}' service {SERVICE} username {name}"
        ),
        Error::Ambiguous(all) => {
            format!("the keyring has {} secrets named {SERVICE}/{name}; keep only one", all.len())
        }
        Error::BadEncoding(_) => format!("the keyring entry {SERVICE}/{name} is not text"),
        Error::NoStorageAccess(why) | Error::PlatformFailure(why) => format!(
            "the keyring is locked or does not answer: {why} (a tick started by a timer has no desktop session; use a variable or a private file instead)"
        ),
        other => format!("cannot read {SERVICE}/{name} from the keyring: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "keyring"))]
    #[test]
    fn reference_without_keyring_support_is_explained() {
        let why = secret("work").unwrap_err();
        assert!(why.contains("keyring:work") && why.contains("--features keyring"), "{why}");
    }

    #[cfg(feature = "keyring")]
    #[test]
    fn store_errors_are_explained() {
        use ::keyring::mock::MockCredential;
        use ::keyring::{Entry, Error};

        let entry = Entry::new_with_credential(Box::new(MockCredential::default()));
        let ask = || {
            let had = entry.get_password();
            had.map_err(|error| describe_error("work", &error))
                .and_then(|secret| not_empty("work", secret))
        };
        let absent = ask().unwrap_err();
        assert!(absent.contains("secret-tool store"), "{absent}");
        entry.set_password("k-123\n").unwrap();
        assert_eq!(ask().unwrap(), "k-123");
        entry.set_password(" \n").unwrap();
        assert!(ask().unwrap_err().contains("is empty"));
        let mock: &MockCredential = entry.get_credential().downcast_ref().unwrap();
        mock.set_error(Error::NoStorageAccess("no bus".into()));
        let locked = ask().unwrap_err();
        assert!(locked.contains("no bus") && locked.contains("locked"), "{locked}");
        mock.set_error(Error::BadEncoding(b"k-456".to_vec()));
        let odd = ask().unwrap_err();
        assert!(odd.contains("is not text") && !odd.contains("456"), "{odd}");
    }
}
