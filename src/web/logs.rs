//! The logs of runs: parts of a file, and a stream that follows a run.
//!
//! A log is untrusted text: it is redacted, and it never reaches a page without being escaped. A part consists of whole
//! lines, so that a secret is never cut into two halves that no pattern recognizes.

use std::io::{self, Read as _, SeekFrom};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use runner_engine::files::open_host;
use runner_engine::ids::RunId;
use runner_text::redact::Redacted;
use tokio::sync::{mpsc, watch};

use super::api::{failed, problem};
use super::events::{place, response, too_many};
use super::pages::status;
use super::render::escaped;
use super::secrets::Secrets;
use super::state::{Purpose, Web};
use crate::follow::{self, FollowEnd};
use crate::ui::Failure;

/// Maximum number of bytes of one part.
const PART: u64 = 256 * 1024;
/// Number of bytes at the end of each file that are sent at the start of a stream.
const TAIL: u64 = 32 * 1024;
/// Maximum number of log parts waiting for a slow client.
const WAITING: usize = 16;
/// The files of a run, by their name in the query.
const FILES: [&str; 3] = ["log", "stdout", "stderr"];

/// The part of a file requested by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// From this offset, at most this number of bytes.
    From(u64, u64),
    /// The last bytes.
    Last(u64),
}

impl Wanted {
    /// Parses the `Range` header. Without one, the request is for the start of the file.
    fn parse(range: Option<&str>) -> Option<Self> {
        let Some(range) = range else { return Some(Self::From(0, PART)) };
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        let number = |text: &str| text.parse::<u64>().ok();
        match (first, last) {
            ("", last) => Some(Self::Last(number(last)?.min(PART))),
            (first, "") => Some(Self::From(number(first)?, PART)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                let length = last.checked_sub(first)?.saturating_add(1);
                Some(Self::From(first, length.min(PART)))
            }
        }
    }
}

/// A part of a file, in whole lines.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    text: String,
    /// The offset of its first byte.
    from: u64,
    /// The offset after its last byte.
    to: u64,
    /// The length of the file.
    size: u64,
}

/// Reads whole lines. A line that is longer than the part is cut.
fn read(mut file: impl io::Read + io::Seek, size: u64, wanted: Wanted) -> io::Result<Part> {
    let (mut from, length) = match wanted {
        Wanted::From(from, length) => (from.min(size), length),
        Wanted::Last(length) => (size.saturating_sub(length), length),
    };
    let mut bytes = Vec::new();
    // The byte before the part shows whether the part begins with a whole line.
    let before = u64::from(from > 0);
    file.seek(SeekFrom::Start(from - before))?;
    file.take(length.min(size - from) + before).read_to_end(&mut bytes)?;
    if before == 1 {
        let cut = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        from = from - 1 + cut as u64;
        bytes.drain(..cut);
    }
    let end = from + bytes.len() as u64;
    if end < size {
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        bytes.truncate(whole);
    }
    let to = from + bytes.len() as u64;
    let text = Redacted::of(&String::from_utf8_lossy(&bytes)).to_string();
    Ok(Part { text, from, to, size })
}

/// Responds with part of a run's file.
pub async fn part(
    State(web): State<Arc<Web>>,
    Path(run): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    let named =
        query.iter().find(|(name, _)| name == "file").map_or("log", |(_, file)| file.as_str());
    let Some(which) = FILES.iter().position(|name| *name == named) else {
        return problem(StatusCode::BAD_REQUEST, "file is log, stdout or stderr", None);
    };
    let range = headers.get(header::RANGE).map(|it| it.to_str().unwrap_or("?"));
    let Some(wanted) = Wanted::parse(range) else {
        return problem(
            StatusCode::RANGE_NOT_SATISFIABLE,
            "Range is bytes=FIRST-LAST or bytes=-LAST",
            None,
        );
    };
    let home = web.home.clone();
    let found = web.blocking(Purpose::Look, move || {
        let none = || Failure::data(format!("no run {run}")).hint("runner runs");
        let id: RunId = run.parse().map_err(|_| none())?;
        let (name, _) = follow::FILES[which];
        let path = home.run_folder(id.as_str()).join(name);
        let absent = |_| Failure::data(format!("run {id} has no {named}", named = FILES[which]));
        let file = open_host(&path).map_err(absent)?;
        let size = file.metadata().map_err(|error| Failure::unreadable(&path, error))?.len();
        read(file, size, wanted).map_err(|error| Failure::unreadable(&path, error))
    });
    match found.await {
        Ok(Part { text, from, to, size }) => {
            let mut response = (StatusCode::PARTIAL_CONTENT, text).into_response();
            let headers = response.headers_mut();
            let range = match to > from {
                true => format!("bytes {from}-{}/{size}", to - 1),
                false => format!("bytes */{size}"),
            };
            if let Ok(range) = HeaderValue::from_str(&range) {
                headers.insert(header::CONTENT_RANGE, range);
            }
            headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
            let attachment = HeaderValue::from_static("attachment; filename=\"log.txt\"");
            headers.insert(header::CONTENT_DISPOSITION, attachment);
            response
        }
        Err(failure) => failed(&failure, status(&failure)),
    }
}

/// Streams a run's log and output until the run finishes. An event without a name is escaped text for the
/// page; `changed` asks the page to show the run again. The id contains the offsets in the three files.
pub async fn live(
    State(web): State<Arc<Web>>,
    Path(run): Path<String>,
    headers: HeaderMap,
) -> Response {
    let Ok(run) = run.parse::<RunId>() else {
        return problem(StatusCode::NOT_FOUND, "no such run", Some("runner runs"));
    };
    let Some(place) = place(&web) else { return too_many() };
    let known = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let offsets = known.and_then(offsets);
    let (sender, receiver) = mpsc::channel(WAITING);
    let Ok((gone, here)) = io::pipe() else { return too_many() };
    let (changes, secrets) = (web.changes.clone(), web.secrets.subscribe());
    let (home, lines) = (web.home.clone(), sender.clone());
    let follower =
        thread::Builder::new().name("follow".to_owned()).stack_size(1024 * 1024).spawn(move || {
            let folder = home.run_folder(run.as_str());
            let mut at = offsets.unwrap_or_else(|| {
                follow::FILES.map(|(name, _)| {
                    let size =
                        open_host(folder.join(name)).and_then(|file| Ok(file.metadata()?.len()));
                    size.unwrap_or_default().saturating_sub(TAIL)
                })
            });
            let files = [0, 1, 2].map(|which| (follow::FILES[which].0, at[which]));
            let mut send = |which: usize, text: &str, end: u64| {
                at[which] = end;
                let text = follow::shown(which, text);
                let text = escaped(&Redacted::of(&text));
                let id = at.map(|offset| offset.to_string()).join("-");
                let event =
                    Event::default().id(id).data(text.trim_end_matches('\n').to_owned() + "\n");
                lines.blocking_send(event).map_err(|_| io::ErrorKind::BrokenPipe.into())
            };
            let done = follow::follow(&home, &run, &files, &[here.as_fd()], &mut send);
            if let Ok(FollowEnd::Settled(row)) = done {
                let outcome = Redacted::of(&follow::outcome(&row)).to_string();
                let _gone = lines.blocking_send(Event::default().event("over").data(outcome));
            }
        });
    if follower.is_err() {
        return too_many();
    }
    tokio::spawn(async move {
        forward((changes, secrets), &sender).await;
        // Closing the pipe ends the follower.
        drop((gone, place));
    });
    response(receiver)
}

/// Reports changes to the database until the client is gone or all logins end.
async fn forward(
    (mut changes, mut secrets): (watch::Receiver<i64>, watch::Receiver<Secrets>),
    sender: &mpsc::Sender<Event>,
) {
    changes.borrow_and_update();
    loop {
        tokio::select! {
            changed = changes.changed() => {
                let event = Event::default().event("changed").data("{}");
                if changed.is_err() || sender.send(event).await.is_err() {
                    return;
                }
            }
            _ = secrets.changed() => return,
            () = sender.closed() => return,
        }
    }
}

fn offsets(id: &str) -> Option<[u64; 3]> {
    let parts: Option<Vec<u64>> = id.split('-').map(|part| part.parse().ok()).collect();
    parts?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_limited() {
        for (range, expected) in [
            (None, Some(Wanted::From(0, PART))),
            (Some("bytes=5-"), Some(Wanted::From(5, PART))),
            (Some("bytes=5-6"), Some(Wanted::From(5, 2))),
            (Some("bytes=-7"), Some(Wanted::Last(7))),
            (Some("bytes=0-99999999999"), Some(Wanted::From(0, PART))),
            (Some("bytes=6-5"), None),
            (Some("bytes=0-1,5-6"), None),
            (Some("lines=1-2"), None),
            (Some("bytes=-"), None),
            (Some("bytes=99999999999999999999-"), None),
        ] {
            assert_eq!(Wanted::parse(range), expected, "{range:?}");
        }
    }

    #[test]
    fn parts_are_whole_lines() {
        let text = "one\ntwo\nthree\nfour";
        let part = |wanted| read(io::Cursor::new(text), text.len() as u64, wanted).unwrap();
        let all = |part: Part| (part.text, part.from, part.to);
        assert_eq!(all(part(Wanted::From(0, 100))), (text.to_owned(), 0, 18));
        assert_eq!(all(part(Wanted::From(0, 9))), ("one\ntwo\n".to_owned(), 0, 8));
        assert_eq!(all(part(Wanted::From(4, 4))), ("two\n".to_owned(), 4, 8));
        assert_eq!(all(part(Wanted::From(5, 100))), ("three\nfour".to_owned(), 8, 18));
        assert_eq!(all(part(Wanted::Last(6))), ("four".to_owned(), 14, 18));
        assert_eq!(all(part(Wanted::From(99, 4))), (String::new(), 18, 18));
        // Part of a line may contain part of a secret.
        assert_eq!(all(part(Wanted::From(0, 2))), (String::new(), 0, 0));
    }

    #[test]
    fn control_characters_do_not_hide_secrets() {
        let secret = "0123456789abcdefghijABCDEFGHIJ012345";
        let text = format!("token ghp_{}\u{1b}{}\n", &secret[..9], &secret[9..]);
        let size = text.len() as u64;
        let part = read(io::Cursor::new(text), size, Wanted::From(0, 1000)).unwrap();
        assert!(!part.text.contains(&secret[9..]), "{}", part.text);
    }
}
