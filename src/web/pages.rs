//! Answers with the page of a view, or with a page that describes a failure.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use minijinja::value::Serde;
use minijinja::{Value, context};
use runner_engine::outcome::Exit;

use super::access::Client;
use super::secrets::Role;
use super::state::{Answer, Purpose, Web};
use super::views::{Parts, View};
use crate::ui::Failure;

/// The policy for a page that consists of one file: its own style and nothing else.
const ONE_FILE: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// Answers with the page of a view. `message` is the result of the last action.
pub async fn show(
    view: &'static View,
    web: Arc<Web>,
    client: Client,
    parts: Parts,
    message: Option<String>,
) -> Response {
    let words = match view.command(&parts) {
        Ok(words) => words,
        Err(why) => return failed(&web, &Failure::usage(why)),
    };
    let name = match parts.project() {
        Some(id) => {
            let found = Arc::clone(&web);
            match web.blocking(Purpose::Look, move || found.folder(&id)).await {
                Ok(folder) => folder.file_name().map(|name| name.to_string_lossy().into_owned()),
                Err(failure) => return failed(&web, &failure),
            }
        }
        None => None,
    };
    match web.call(Purpose::Look, parts.project(), words).await {
        Ok(Answer { data, notices, .. }) => {
            let query: BTreeMap<String, String> = parts.query.iter().cloned().collect();
            Html(web.renderer.page(
                view.template,
                context! {
                    page => view.name,
                    title => view.summary,
                    data => Value::from(Serde(&data)),
                    project => parts.project(),
                    project_name => name,
                    act => client.role == Role::Act,
                    here => here(view, &parts),
                    query, message, notices,
                },
            ))
            .into_response()
        }
        Err(failure) => failed(&web, &failure),
    }
}

/// Returns the path and the query of a view's page.
fn here(view: &View, parts: &Parts) -> String {
    let mut path = view.path.to_owned();
    for (name, value) in &parts.path {
        path = path.replace(&format!("{{{name}}}"), &super::render::segment(value));
    }
    let query = parts.query.iter().filter(|(_, value)| !value.is_empty());
    let query = query.map(|(name, value)| format!("{name}={}", super::render::segment(value)));
    let query = query.collect::<Vec<_>>().join("&");
    if query.is_empty() { path } else { format!("{path}?{query}") }
}

/// Answers with a page that a command generates as one file, such as the page of a night.
pub async fn one_file(
    web: Arc<Web>,
    parts: Parts,
    words: &[&str],
    refresh: Option<&'static str>,
) -> Response {
    match web.call(Purpose::Look, parts.project(), parts.fill(words)).await {
        Ok(answer) => {
            let mut response = Html(answer.text).into_response();
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(ONE_FILE));
            if let Some(seconds) = refresh {
                headers.insert(header::REFRESH, HeaderValue::from_static(seconds));
            }
            response
        }
        Err(failure) => failed(&web, &failure),
    }
}

/// Answers with a page that describes a failure.
pub fn failed(web: &Web, failure: &Failure) -> Response {
    let (what, fix) = failure.parts();
    error(web, status(failure), &what, fix.as_deref())
}

/// Answers with a page that describes an error.
pub fn error(web: &Web, status: StatusCode, what: &str, fix: Option<&str>) -> Response {
    let number = status.as_u16();
    (status, Html(web.renderer.page("error.html", context! { what, fix, number }))).into_response()
}

/// Returns the status for a command's failure.
pub fn status(failure: &Failure) -> StatusCode {
    match failure.exit {
        Exit::Usage => StatusCode::BAD_REQUEST,
        Exit::Data => StatusCode::NOT_FOUND,
        Exit::TryLater | Exit::Failed | Exit::Configuration | Exit::CannotWrite => {
            StatusCode::CONFLICT
        }
        Exit::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
