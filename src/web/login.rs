//! The login: a code that is used once is exchanged for a cookie.
//!
//! ```text
//! code in a file that only its owner may read ──typed, or posted by the file of `--open`──> cookie
//! ```
//!
//! A used code is replaced by a new one. Failed attempts are limited for all clients together, so a
//! code cannot be guessed. A code must never stand in a URL or in a page of the server.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Form;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use jiff::Timestamp;
use minijinja::context;
use serde::Deserialize;

use super::access::{COOKIE, Role};
use super::pages;
use super::secrets::{Secrets, folder, login_code, plain_code, write};
use super::state::Web;
use crate::env::Env;
use crate::ui::Failure;

/// The most failed attempts in [`WINDOW`]. Further attempts are refused, also correct ones.
const ATTEMPTS: usize = 10;
/// The time after which a failed attempt no longer counts.
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
    /// Makes a code and writes it into its file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn new(home: &Env) -> Result<Self, Failure> {
        let code = fresh(home)?;
        Ok(Self { home: home.clone(), code: Mutex::new(code), failed: Mutex::default() })
    }

    /// Exchanges a code, which is then used up.
    ///
    /// # Errors
    /// Returns an error if the next code cannot be written.
    fn exchange(&self, typed: &str, secrets: &Secrets) -> Result<bool, Failure> {
        let mut code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        if !secrets.same(&code, &plain_code(typed)) {
            return Ok(false);
        }
        *code = fresh(&self.home)?;
        // The file of `--open` contains the used code.
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

/// The form of the login.
#[derive(Deserialize)]
pub struct LoginForm {
    code: String,
}

/// Shows the form of the login.
pub async fn form(State(web): State<Arc<Web>>) -> Response {
    login_page(&web, StatusCode::OK, "")
}

/// Exchanges a code, or the read-only token, for a cookie.
pub async fn exchange(State(web): State<Arc<Web>>, Form(typed): Form<LoginForm>) -> Response {
    if web.codes.is_locked() {
        return too_many(&web);
    }
    let secrets = web.secrets();
    let role = match secrets.role_of_token(&typed.code) {
        // The token for programs that act is no login of a person.
        Some(Role::Read) => Ok(Some(Role::Read)),
        _ => web.codes.exchange(&typed.code, &secrets).map(|ok| ok.then_some(Role::Act)),
    };
    let cookie = role.and_then(|role| {
        let now: Timestamp = web.home.wall()?;
        role.map(|role| secrets.cookie(role, now)).transpose()
    });
    match cookie {
        Ok(Some(cookie)) => {
            let age = Secrets::login_seconds();
            let cookie =
                format!("{COOKIE}={cookie}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}");
            // The browser sends the cookie only with requests that a page of this server starts, so the
            // response is such a page and not a redirect.
            let mut response = Html(web.renderer.page("welcome.html", context! {})).into_response();
            if let Ok(value) = HeaderValue::from_str(&cookie) {
                response.headers_mut().insert(header::SET_COOKIE, value);
            }
            response
        }
        Ok(None) => {
            web.codes.count_failure();
            login_page(
                &web,
                StatusCode::FORBIDDEN,
                "This code is not valid. Each code can be used once.",
            )
        }
        Err(failure) => pages::failed(&web, &failure),
    }
}

/// Ends all logins.
pub async fn end(State(web): State<Arc<Web>>) -> Response {
    match Secrets::renew(&web.home) {
        Ok(secrets) => {
            *web.secrets.lock().unwrap_or_else(PoisonError::into_inner) = secrets;
            login_page(&web, StatusCode::OK, "All logins have ended, and the tokens have changed.")
        }
        Err(failure) => pages::failed(&web, &failure),
    }
}

/// Refuses an attempt because too many have failed.
pub fn too_many(web: &Web) -> Response {
    let text = "Too many attempts have failed. Wait a minute.";
    let mut response = login_page(web, StatusCode::TOO_MANY_REQUESTS, text);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
    response
}

/// Shows the form of the login with a message.
pub fn login_page(web: &Web, status: StatusCode, message: &str) -> Response {
    let file = code_file(&web.home).display().to_string();
    (status, Html(web.renderer.page("login.html", context! { message, file }))).into_response()
}
