//! The logs of runs: parts of a file, and a stream that follows a run.
//!
//! A log is untrusted text: it is redacted, and it never reaches a page without being escaped. A
//! part consists of whole lines, so that a secret is never cut into two halves that no pattern
//! recognizes.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
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
/// The names of a run's files in the query.
const FILES: [&str; 3] = ["log", "stdout", "stderr"];

/// The part of a file requested by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Everything,
    /// From this offset, at most this number of bytes.
    From(u64, u64),
    /// The last bytes.
    Last(u64),
}

impl Wanted {
    /// Parses the `Range` header. Without one, the request is for the entire file. Returns `None`
    /// for a range that is invalid or not supported.
    fn parse(range: Option<&str>) -> Option<Self> {
        let Some(range) = range else { return Some(Self::Everything) };
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

/// Reads whole lines, beginning with the first one that starts in the wanted range. A note replaces
/// a line that is too long for any part.
fn read(file: impl io::Read + io::Seek, size: u64, wanted: Wanted) -> io::Result<Part> {
    let (first, length) = match wanted {
        Wanted::Everything => (0, PART),
        Wanted::From(first, length) => (first.min(size), length),
        Wanted::Last(length) => (size.saturating_sub(length), length),
    };
    let mut file = io::BufReader::new(file);
    let mut from = first;
    if first > 0 {
        // The byte before the range shows whether a line starts there.
        file.seek(SeekFrom::Start(first - 1))?;
        from = first - 1 + file.skip_until(b'\n')? as u64;
    }
    let size = size.max(from);
    let end = if length == PART { from + PART } else { first + length };
    let mut bytes = Vec::new();
    (&mut file).take(end.min(size).saturating_sub(from)).read_to_end(&mut bytes)?;
    let mut to = from + bytes.len() as u64;
    if to < size {
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        bytes.truncate(whole);
        to = from + whole as u64;
    }
    if bytes.is_empty() && length == PART && from < size {
        file.seek(SeekFrom::Start(from))?;
        let line = file.skip_until(b'\n')?;
        bytes = format!("[a line of {line} bytes; the file's download contains it]\n").into();
        to = from + line as u64;
    }
    let text = Redacted::of(&String::from_utf8_lossy(&bytes)).to_string();
    Ok(Part { text, from, to, size: size.max(to) })
}

/// Responds with part of a run's file, or with the entire file.
pub async fn part(
    State(web): State<Arc<Web>>,
    Path(run): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    let named =
        query.iter().find(|(name, _)| name == "file").map_or("log", |(_, file)| file.as_str());
    let Some(which) = FILES.iter().position(|name| *name == named) else {
        return problem(StatusCode::BAD_REQUEST, "file must be log, stdout or stderr", None);
    };
    let range = headers.get(header::RANGE).map(|it| it.to_str().unwrap_or("?"));
    let Some(wanted) = Wanted::parse(range) else {
        return problem(
            StatusCode::RANGE_NOT_SATISFIABLE,
            "Range must be bytes=FIRST-LAST or bytes=-LAST",
            None,
        );
    };
    let home = web.home.clone();
    let found = web.blocking(Purpose::View, move || {
        let none = || Failure::data(format!("there is no run {run}")).hint("runner runs");
        let id: RunId = run.parse().map_err(|_| none())?;
        let (name, _) = follow::FILES[which];
        let path = home.run_folder(id.as_str()).join(name);
        let absent = |_| Failure::data(format!("run {id} has no {named}", named = FILES[which]));
        let file = open_host(&path).map_err(absent)?;
        if wanted == Wanted::Everything {
            return Ok(Found::File(file));
        }
        let size = file.metadata().map_err(|error| Failure::unreadable(&path, error))?.len();
        let part = read(file, size, wanted).map_err(|error| Failure::unreadable(&path, error))?;
        Ok(Found::Part(part))
    });
    let mut response = match found.await {
        Ok(Found::File(file)) => match whole(&web, file) {
            Some(response) => response,
            None => return too_many(),
        },
        Ok(Found::Part(Part { text, from, to, size })) => {
            let mut response = (StatusCode::PARTIAL_CONTENT, text).into_response();
            let range = match to > from {
                true => format!("bytes {from}-{}/{size}", to - 1),
                false => format!("bytes */{size}"),
            };
            if let Ok(range) = HeaderValue::from_str(&range) {
                response.headers_mut().insert(header::CONTENT_RANGE, range);
            }
            response
        }
        Err(failure) => return failed(&failure, status(&failure)),
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let attachment = HeaderValue::from_static("attachment; filename=\"log.txt\"");
    headers.insert(header::CONTENT_DISPOSITION, attachment);
    response
}

/// The response to a request for a file.
enum Found {
    File(File),
    Part(Part),
}

/// Responds with an entire file, which is redacted while it is sent. Returns `None` if too many
/// files and event streams are being sent, or if no thread can be started.
fn whole(web: &Web, mut file: File) -> Option<Response> {
    let place = place(web)?;
    let (sender, receiver) = mpsc::channel::<io::Result<String>>(WAITING);
    let send = move || {
        let _place = place;
        let mut redactor = Redacted::stream();
        let mut chunk = vec![0; PART as usize];
        loop {
            let (text, last) = match file.read(&mut chunk) {
                Ok(0) => (Ok(redactor.finish()), true),
                Ok(count) => (Ok(redactor.push(&chunk[..count])), false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => (Err(error), true),
            };
            let text = text.map(|text| Redacted::of(&text).into_string());
            if sender.blocking_send(text).is_err() || last {
                return;
            }
        }
    };
    thread::Builder::new().name("log".to_owned()).spawn(send).ok()?;
    let pieces = stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    Some(([(header::CONTENT_TYPE, kind)], Body::from_stream(pieces)).into_response())
}

/// Streams a run's log and output until the run is settled. An event without a name contains
/// escaped text for the page, `changed` asks the page to reload the run, and `over` reports the
/// outcome. An event's id contains the offsets in the three files.
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
            (None, Some(Wanted::Everything)),
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
    fn overlong_line_is_replaced() {
        let text = format!("first\n{}\nlast\n", "a".repeat(300_000));
        let part = |first| {
            read(io::Cursor::new(&text), text.len() as u64, Wanted::From(first, PART)).unwrap()
        };
        let long = part(6);
        assert!(long.text.starts_with("[a line of 300001 bytes"), "{}", long.text);
        assert_eq!((long.from, long.to), (6, 300_007));
        for first in [7, 100_000, long.to] {
            assert_eq!((part(first).text, part(first).from), ("last\n".to_owned(), 300_007));
        }
        assert_eq!((part(0).text, part(0).to), ("first\n".to_owned(), 6));
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
