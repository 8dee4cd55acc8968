//! The server's key, and everything derived from it: login cookies, tokens for programs and the
//! webhook key.
//!
//! The key is a file that only its owner may read, so that logins survive a server restart. A new
//! key ends all logins. A secret must never reach a URL, a page, a log or an argument list.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hmac::{Hmac, Mac as _};
use jiff::{SignedDuration, Timestamp};
use runner_engine::error_chain::whole;
use runner_engine::files::{SMALL, read_no_link, write_atomic};
use sha2::Sha256;

use crate::env::Env;
use crate::ui::Failure;

/// How long a login lasts.
const LOGIN: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The length of the key in bytes.
const KEY: usize = 32;
/// The characters of a login code. The letters I, L, O and U are omitted, because they are easily
/// mistaken for other characters.
const CODE: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// The number of characters in a login code, which has 60 bits.
const CODE_LENGTH: usize = 12;

/// The rights of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The client may see everything but change nothing.
    Read,
    /// The client may also act.
    Act,
}

impl Role {
    /// Returns the name of the role in cookies and in the audit trail.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Act => "act",
        }
    }
}

/// The secrets of a server.
#[derive(Clone)]
pub struct Secrets {
    key: Vec<u8>,
}

impl Secrets {
    /// Reads the key, or creates one, and writes the tokens and the webhook key to files beside it.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or written, or if the host cannot provide random
    /// numbers.
    pub fn load(home: &Env) -> Result<Self, Failure> {
        let folder = folder(home);
        home.make_state()?;
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Failure::not_made(&folder, error));
            }
            _ => {}
        }
        let path = folder.join("key");
        let key = match read_no_link(&path, SMALL) {
            Ok(key) if key.len() == KEY => key,
            Ok(_) => return Self::renew(home),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::renew(home),
            Err(error) => return Err(Failure::unreadable(&path, error)),
        };
        let secrets = Self { key };
        secrets.write_tokens(&folder)?;
        Ok(secrets)
    }

    /// Creates a new key, which ends all logins and invalidates the tokens and the webhook key.
    ///
    /// # Errors
    /// Returns an error if the host cannot provide random numbers, or if a file cannot be written.
    pub fn renew(home: &Env) -> Result<Self, Failure> {
        let folder = folder(home);
        let secrets = Self { key: random::<KEY>()?.to_vec() };
        write(&folder.join("key"), &secrets.key)?;
        secrets.write_tokens(&folder)?;
        Ok(secrets)
    }

    fn write_tokens(&self, folder: &Path) -> Result<(), Failure> {
        write(&folder.join("token"), format!("{}\n", self.token(Role::Act)).as_bytes())?;
        write(&folder.join("read-token"), format!("{}\n", self.token(Role::Read)).as_bytes())?;
        write(&folder.join("webhook-key"), format!("{}\n", self.webhook_key()).as_bytes())
    }

    /// Returns the token with which programs get this role.
    fn token(&self, role: Role) -> String {
        hex(&self.mac(&["token", role.as_str()]).finalize().into_bytes())
    }

    /// Returns the key that other programs use to sign webhooks.
    pub fn webhook_key(&self) -> String {
        hex(&self.mac(&["webhook"]).finalize().into_bytes())
    }

    /// Returns the role of a token, or `None` if it is not valid.
    pub fn role_of_token(&self, token: &str) -> Option<Role> {
        let bytes = unhex(token.trim())?;
        [Role::Act, Role::Read]
            .into_iter()
            .find(|role| self.mac(&["token", role.as_str()]).verify_slice(&bytes).is_ok())
    }

    /// Creates the value of a login cookie.
    ///
    /// # Errors
    /// Returns an error if the host cannot provide random numbers.
    pub fn cookie(&self, role: Role, now: Timestamp) -> Result<String, Failure> {
        let until = now.saturating_add(LOGIN).unwrap_or(now).as_second().to_string();
        let login = hex(&random::<16>()?);
        let mac = self.mac(&["login", role.as_str(), &until, &login]).finalize().into_bytes();
        Ok(format!("{}.{until}.{login}.{}", role.as_str(), hex(&mac)))
    }

    /// Returns the login that a cookie represents, or `None` if the cookie is forged or too old.
    pub fn login(&self, cookie: &str, now: Timestamp) -> Option<Login> {
        let mut parts = cookie.split('.');
        let (role, until, login, mac) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || login.len() != 32 {
            return None;
        }
        self.mac(&["login", role, until, login]).verify_slice(&unhex(mac)?).ok()?;
        let until: i64 = until.parse().ok()?;
        let role = [Role::Act, Role::Read].into_iter().find(|it| it.as_str() == role)?;
        (now.as_second() < until).then(|| Login { role, name: login[..8].to_owned() })
    }

    /// Returns the maximum time that a browser keeps a login cookie, in seconds.
    pub fn login_seconds() -> i64 {
        LOGIN.as_secs()
    }

    /// Reports whether two strings are equal, in time that does not depend on where they differ.
    pub fn same(&self, one: &str, other: &str) -> bool {
        let known = self.mac(&["same", one]).finalize().into_bytes();
        self.mac(&["same", other]).verify_slice(&known).is_ok()
    }

    fn mac(&self, parts: &[&str]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC accepts a key of any length");
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part.as_bytes());
        }
        mac
    }
}

/// An active login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    pub role: Role,
    /// The beginning of the login's random number, which identifies the login in the audit trail.
    pub name: String,
}

/// Returns the folder containing the server's files.
pub fn folder(home: &Env) -> PathBuf {
    home.state.join("serve")
}

/// Writes a file that only its owner may read.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_atomic(path, bytes, 0o600).map_err(|error| Failure::not_written(path, whole(&error)))
}

/// Generates a login code.
///
/// # Errors
/// Returns an error if the host cannot provide random numbers.
pub fn login_code() -> Result<String, Failure> {
    let bytes = random::<CODE_LENGTH>()?;
    Ok(bytes.iter().map(|byte| char::from(CODE[usize::from(byte % 32)])).collect())
}

/// Normalizes a code typed by the user.
pub fn plain_code(typed: &str) -> String {
    typed.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase()
}

fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], Failure> {
    let mut bytes = [0; LENGTH];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| Failure::internal("the host cannot provide random numbers for a key"))?;
    Ok(bytes)
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes represented by hexadecimal digits, or `None` if the string contains anything
/// else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_and_old_cookies_are_refused() {
        let secrets = Secrets { key: vec![7; KEY] };
        let now = Timestamp::UNIX_EPOCH;
        let cookie = secrets.cookie(Role::Read, now).unwrap();
        assert_eq!(secrets.login(&cookie, now).unwrap().role, Role::Read);
        assert_eq!(secrets.login(&cookie, now + LOGIN), None);
        assert_eq!(Secrets { key: vec![8; KEY] }.login(&cookie, now), None);
        let forged = cookie.replacen("read", "act", 1);
        for wrong in
            [&forged, &format!("{cookie}0"), &format!("{cookie}."), "", "act...", "é.1.é.é"]
        {
            assert_eq!(secrets.login(wrong, now), None, "{wrong}");
        }
    }

    #[test]
    fn tokens_have_separate_roles() {
        let secrets = Secrets { key: vec![7; KEY] };
        for role in [Role::Act, Role::Read] {
            assert_eq!(secrets.role_of_token(&secrets.token(role)), Some(role));
        }
        assert_eq!(secrets.role_of_token(&secrets.webhook_key()), None);
        assert_eq!(secrets.role_of_token(""), None);
    }

    #[test]
    fn codes_may_be_typed_with_dashes() {
        let code = login_code().unwrap();
        assert_eq!(code.len(), CODE_LENGTH);
        assert_eq!(plain_code(&format!(" {}-{} ", &code[..6].to_lowercase(), &code[6..])), code);
    }
}
