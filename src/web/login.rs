//! The login: exchanges a one-time code for a cookie.
//!
//! ```text
//! code in a file that only its owner may read ──typed, or posted by the file of `--open`──> cookie
//! ```
//!
//! A code must never appear in a URL or on a page of the server.

use std::sync::Arc;

use axum::Form;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use jiff::Timestamp;
use minijinja::context;
use serde::Deserialize;

use super::access::COOKIE;
use super::codes::code_file;
use super::pages;
use super::secrets::{Role, Secrets};
use super::state::Web;

#[derive(Deserialize)]
pub struct LoginForm {
    code: String,
}

/// Shows the login form.
pub async fn form(State(web): State<Arc<Web>>) -> Response {
    login_page(&web, StatusCode::OK, "")
}

/// Exchanges a code, or the read-only token, for a cookie.
pub async fn exchange(State(web): State<Arc<Web>>, Form(typed): Form<LoginForm>) -> Response {
    let secrets = web.secrets();
    // A valid code is accepted even after many failures, so that failed attempts cannot lock out
    // the user.
    let role = match secrets.role_of_token(&typed.code) {
        // The token that programs use for actions is not valid as a user's login.
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
            // The browser sends the cookie only with requests initiated by a page of this server,
            // so the response is such a page and not a redirect.
            let mut response = Html(web.renderer.page("welcome.html", context! {})).into_response();
            if let Ok(value) = HeaderValue::from_str(&cookie) {
                response.headers_mut().insert(header::SET_COOKIE, value);
            }
            response
        }
        Ok(None) if web.codes.is_locked() => too_many(&web),
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
            web.secrets.send_replace(secrets);
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

/// Shows the login form with a message.
pub fn login_page(web: &Web, status: StatusCode, message: &str) -> Response {
    let file = code_file(&web.home).display().to_string();
    (status, Html(web.renderer.page("login.html", context! { message, file }))).into_response()
}
