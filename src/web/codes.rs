//! The code for the next login, in a file that only its owner may read.
//!
//! A used code is replaced by a new one. A code has 60 random bits, so it cannot be guessed. All
//! clients share one limit on failed attempts, and attempts beyond the limit are not counted. An
//! existing login must never depend on these attempts.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::secrets::{Secrets, folder, login_code, plain_code, write};
use crate::env::Env;
use crate::ui::Failure;

/// Number of failed attempts in [`WINDOW`] after which failed attempts are refused without being
/// counted. Valid codes are still accepted.
const ATTEMPTS: usize = 10;
/// The time after which a failed attempt is forgotten.
const WINDOW: Duration = Duration::from_secs(60);

/// Returns the path of the file with the code for the next login.
pub fn code_file(home: &Env) -> PathBuf {
    folder(home).join("login-code")
}

/// The code for the next login, and the times of failed attempts.
pub struct Codes {
    home: Env,
    code: Mutex<String>,
    failed: Mutex<VecDeque<Duration>>,
}

impl Codes {
    /// Creates a code and writes it to its file.
    ///
    /// # Errors
    /// Returns an error if the host cannot provide random numbers, or if the file cannot be
    /// written.
    pub fn new(home: &Env) -> Result<Self, Failure> {
        let code = fresh(home)?;
        Ok(Self { home: home.clone(), code: Mutex::new(code), failed: Mutex::default() })
    }

    /// Checks a code and, if it is valid, replaces it with a new one.
    ///
    /// # Errors
    /// Returns an error if the next code cannot be created or written.
    pub fn exchange(&self, typed: &str, secrets: &Secrets) -> Result<bool, Failure> {
        let mut code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        if !secrets.same(&code, &plain_code(typed)) {
            return Ok(false);
        }
        *code = fresh(&self.home)?;
        // The file written for `--open` contains the used code.
        let _mostly_absent = fs::remove_file(folder(&self.home).join("open.html"));
        Ok(true)
    }

    /// Reports whether too many attempts have failed.
    pub fn is_locked(&self) -> bool {
        let Ok(now) = self.home.now().map(|now| now.boot) else { return true };
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.retain(|at| now.saturating_sub(*at) < WINDOW);
        failed.len() >= ATTEMPTS
    }

    /// Counts a failed attempt.
    pub fn count_failure(&self) {
        let Ok(now) = self.home.now().map(|now| now.boot) else { return };
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.push_back(now);
        failed.truncate(ATTEMPTS);
    }
}

fn fresh(home: &Env) -> Result<String, Failure> {
    let code = login_code()?;
    let (first, second) = code.split_at(code.len() / 2);
    write(&code_file(home), format!("{first}-{second}\n").as_bytes())?;
    Ok(code)
}
