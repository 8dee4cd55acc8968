//! Sends the heartbeat. An external receiver notices when the heartbeat stops.
//!
//! After a successful tick, but at most once a minute, runner sends a request to an address or
//! writes a file. The tick only records the time, which enforces this limit; the process that
//! delivers alerts sends the heartbeat. A failed tick never sends a heartbeat.

use jiff::{SignedDuration, Timestamp};
use runner_engine::files::{DOCUMENT, SMALL, read_text_host, write_atomic};
use serde_json::json;

use super::webhook;
use crate::config;
use crate::config::addresses::Heartbeat;
use crate::env::Env;

/// Minimum time between two heartbeats.
const EVERY: SignedDuration = SignedDuration::from_secs(60);

/// Returns true and records the time if a heartbeat is configured and the last one is at least a
/// minute old.
pub fn claim(home: &Env, now: Timestamp) -> bool {
    let stamp = home.state.join("heartbeat.stamp");
    let last: Option<Timestamp> =
        read_text_host(&stamp, SMALL).ok().and_then(|text| text.trim().parse().ok());
    if last.is_some_and(|last| now.duration_since(last).abs() < EVERY) {
        return false;
    }
    // Usually no heartbeat is configured. This check then saves the tick from parsing the file.
    let named =
        read_text_host(&home.user_config, DOCUMENT).is_ok_and(|text| text.contains("heartbeat"));
    if !named || configured(home).is_none() {
        return false;
    }
    write_atomic(&stamp, format!("{now}\n").as_bytes(), 0o600).is_ok()
}

fn configured(home: &Env) -> Option<Heartbeat> {
    config::load(&home.stack(None)).ok()?.notify.heartbeat
}

/// Sends the heartbeat for a successful tick, if one is configured.
pub fn send(home: &Env) -> Result<(), String> {
    match configured(home) {
        None => Ok(()),
        Some(Heartbeat::Address(address)) => webhook::ping(&address),
        Some(Heartbeat::File(path)) => {
            let path = home.expanded(&path).map_err(|failure| failure.to_string())?;
            let now = home.wall().map_err(|failure| failure.to_string())?;
            let text = json!({ "schema_version": 1, "at": now, "last_tick": home.last_tick() });
            write_atomic(&path, format!("{text}\n").as_bytes(), 0o644)
                .map_err(|error| format!("{}: {error}", path.display()))
        }
    }
}
