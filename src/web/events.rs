//! Streams of server-sent events: changes to the database.
//!
//! ```text
//! database ──the number of the last change, while somebody listens──> watch ──> one stream per client
//! ```
//!
//! An event's id is the number of its change, so a client that was disconnected continues where it
//! left off. If changes have been deleted since then, the `reset` event asks the client to read
//! everything again.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use runner_engine::store::ChangesAfter;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::api::problem;
use super::state::{Purpose, Web};
use crate::env::Env;
use crate::ui::Failure;

/// How often the database is checked for changes.
const PERIOD: Duration = Duration::from_millis(25);
/// The time after which a comment is sent on an idle stream, so that no proxy closes it.
const ALIVE: Duration = Duration::from_secs(15);
/// Maximum number of changes to read at a time.
const BATCH: u32 = 500;
/// Maximum number of events waiting for a slow client.
const WAITING: usize = 64;

/// Reports the number of the last change while a client is listening.
pub async fn report_changes(home: Env, sender: watch::Sender<i64>) {
    let mut pace = interval(PERIOD);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let path = home.store_path();
    // A restored database is a different file.
    let file = || fs::symlink_metadata(&path).ok().map(|data| (data.dev(), data.ino()));
    let mut opened = None;
    let mut store = None;
    loop {
        pace.tick().await;
        // The server itself holds one receiver.
        if sender.receiver_count() < 2 {
            store = None;
            continue;
        }
        let present = file();
        if store.is_none() || opened != present {
            opened = present;
            store = home.store_to_read().ok().flatten();
        }
        let Some(open) = &store else { continue };
        match open.last_change() {
            Ok(last) => {
                sender.send_if_modified(|known| std::mem::replace(known, last) != last);
            }
            Err(_) => store = None,
        }
    }
}

/// Streams the changes after the last one known to the client, or otherwise all future changes.
pub async fn changes(
    State(web): State<Arc<Web>>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    let known =
        headers.get("last-event-id").map(|id| id.to_str().ok().and_then(|id| id.parse().ok()));
    let asked = query.iter().find(|(name, _)| name == "after").map(|(_, id)| id.parse().ok());
    let after: Option<i64> = match known.or(asked) {
        Some(None) => {
            return problem(
                StatusCode::BAD_REQUEST,
                "Last-Event-ID is not the number of a change",
                None,
            );
        }
        Some(after) => after,
        None => None,
    };
    let Some(place) = place(&web) else { return too_many() };
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        // A client may leave at any time.
        let _gone = send_changes(&web, after, &sender).await;
        drop(place);
    });
    response(receiver)
}

/// Reserves a slot for a stream, or returns `None` if too many streams are open.
pub fn place(web: &Web) -> Option<OwnedSemaphorePermit> {
    Arc::clone(&web.streams).try_acquire_owned().ok()
}

/// Refuses a stream because there are too many.
pub fn too_many() -> Response {
    problem(
        StatusCode::SERVICE_UNAVAILABLE,
        "too many event streams are open",
        Some("close another page"),
    )
}

/// Creates the response for a stream.
pub fn response(receiver: mpsc::Receiver<Event>) -> Response {
    let events = stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|event| (Ok::<_, Infallible>(event), receiver))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
}

/// Sends changes until the client is gone, all logins end, the server stops, or the database cannot
/// be read.
async fn send_changes(
    web: &Arc<Web>,
    after: Option<i64>,
    sender: &mpsc::Sender<Event>,
) -> Result<(), Failure> {
    let mut changed = web.changes.clone();
    let mut secrets = web.secrets.subscribe();
    let mut after = match after {
        Some(after) => after,
        None => {
            let read = Arc::clone(web);
            web.blocking(Purpose::View, move || Ok(read.store()?.last_change()?)).await?
        }
    };
    let gone = |_| Failure::later("the client is gone");
    // The retry time makes the browser reconnect soon after a server restart.
    let first =
        Event::default().id(after.to_string()).retry(Duration::from_secs(1)).comment("connected");
    sender.send(first).await.map_err(gone)?;
    loop {
        changed.borrow_and_update();
        let read = Arc::clone(web);
        let found = web
            .blocking(Purpose::View, move || Ok(read.store()?.changes_after(after, BATCH)?))
            .await?;
        let more = match found {
            ChangesAfter::All(changes) => {
                for change in &changes {
                    after = change.id;
                    let data = serde_json::to_string(change).unwrap_or_default();
                    let event =
                        Event::default().id(change.id.to_string()).event("changed").data(data);
                    sender.send(event).await.map_err(gone)?;
                }
                changes.len() == BATCH as usize
            }
            ChangesAfter::Lost { last } => {
                after = last;
                let event = Event::default().id(last.to_string()).event("reset").data("{}");
                sender.send(event).await.map_err(gone)?;
                false
            }
        };
        if !more {
            tokio::select! {
                changed = changed.changed() => changed.map_err(|_| Failure::later("the server is stopping"))?,
                // The logins have changed, so the stream ends. A client that still has access
                // reconnects.
                _ = secrets.changed() => return Ok(()),
                () = sender.closed() => return Ok(()),
            }
        }
    }
}
