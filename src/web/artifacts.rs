//! A run's published files, as text.
//!
//! A file is identified by its number in the run's row, so a request cannot name a path. The file
//! is read from inside the project's folder, and is served only as text or a download.

use std::io::Read as _;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use minijinja::context;
use runner_engine::files::open_in;
use runner_engine::ids::RunId;
use runner_text::redact::Redacted;

use super::api::problem;
use super::pages::failed;
use super::state::{Purpose, Web};
use crate::ui::Failure;

/// Maximum number of bytes of a file to show on a page, in addition to [`MARGIN`].
const PREVIEW: u64 = 256 * 1024;
/// Maximum length in bytes of a file to download.
const DOWNLOAD: u64 = 16 * 1024 * 1024;
/// Number of additional bytes to read for a page, because an incomplete last line is omitted.
const MARGIN: u64 = 64 * 1024;

/// A published file.
struct Artifact {
    path: String,
    /// The start of its text, redacted.
    text: String,
    /// Whether the text was truncated.
    is_cut: bool,
}

/// Shows a published file as text, or downloads it with `?download=1`.
pub async fn show(
    State(web): State<Arc<Web>>,
    Path((run, number)): Path<(String, usize)>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let downloads = query.iter().any(|(name, _)| name == "download");
    let limit = if downloads { DOWNLOAD } else { PREVIEW + MARGIN };
    let (found, id) = (Arc::clone(&web), run.clone());
    match web.blocking(Purpose::View, move || read(&found, &id, number, limit)).await {
        Ok(Artifact { path, is_cut: true, .. }) if downloads => {
            let what = format!("{path} is longer than {DOWNLOAD} bytes; open it in the project");
            problem(StatusCode::PAYLOAD_TOO_LARGE, &what, None)
        }
        Ok(artifact) if downloads => {
            let mut response = artifact.text.into_response();
            let headers = response.headers_mut();
            let kind = HeaderValue::from_static("application/octet-stream");
            headers.insert(header::CONTENT_TYPE, kind);
            let name = format!("attachment; filename=\"artifact-{number}.txt\"");
            if let Ok(name) = HeaderValue::from_str(&name) {
                headers.insert(header::CONTENT_DISPOSITION, name);
            }
            response
        }
        Ok(Artifact { path, text, is_cut }) => {
            let data = context! { page => "artifact", title => "Published file", path, text, is_cut, run, number };
            Html(web.renderer.page("artifact.html", data)).into_response()
        }
        Err(failure) => failed(&web, &failure),
    }
}

/// Reads a file inside a run's project.
fn read(web: &Web, run: &str, number: usize, limit: u64) -> Result<Artifact, Failure> {
    let none =
        || Failure::data(format!("run {run} has no published file {number}")).hint("runner runs");
    let id: RunId = run.parse().map_err(|_| none())?;
    let row = web.store()?.run(&id)?;
    let path = row.summary.artifacts.get(number).ok_or_else(none)?;
    let root = web.folder(row.project.as_str())?;
    let cannot = |error: std::io::Error| Failure::data(format!("{path}: {error}"));
    let mut file = open_in(&root, path).map_err(cannot)?.take(limit + 1);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(cannot)?;
    let is_cut = bytes.len() as u64 > limit;
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        // The last character may be incomplete.
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return Err(Failure::data(format!("{path} is not a text file"))),
    };
    let text = match is_cut {
        // The stream holds back an incomplete line.
        true => Redacted::of(&Redacted::stream().push(text.as_bytes())),
        false => Redacted::of(text),
    };
    let text = text.into_string();
    Ok(Artifact { path: path.clone(), text, is_cut })
}
