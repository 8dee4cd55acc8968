//! The protocol of the control socket: one JSON line per request, JSON lines as the reply.
//!
//! ```text
//! {"ask":"status"}                      {"is":"status","pid":…,"live":[…],…}
//! {"ask":"tick"}                        {"is":"ticked","started":["01K…"],"troubles":[]}
//! {"ask":"cancel","run":"01K…"}         {"is":"cancelled","how":"…"}
//! {"ask":"follow","run":"01K…"}         {"is":"log","text":"…\n","end":1234} … {"is":"over","outcome":"…"}
//! anything else                         {"is":"error","why":"…"}
//! ```
//!
//! This module holds data only. A later version may add fields to replies, so readers ignore
//! unknown fields; requests are read strictly.

use jiff::Timestamp;
use runner_engine::ids::RunId;
use serde::{Deserialize, Serialize};

/// Maximum length of a line in bytes.
pub const LONGEST: usize = 64 * 1024;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Asks for the daemon's state.
    Status {},
    /// Asks for a tick now; the reply comes when it is done.
    Tick {},
    /// Asks for the end of a run.
    Cancel { run: RunId },
    /// Asks for the log of a run as it grows, until the run is settled.
    Follow {
        run: RunId,
        /// Number of bytes of the log that the client already has.
        #[serde(default)]
        from: u64,
    },
}

/// The daemon's reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Reply {
    /// The daemon's state.
    Status(DaemonStatus),
    /// A tick was made.
    Ticked {
        /// The ids of the runs that the tick started.
        started: Vec<String>,
        /// The problems with single runs, jobs or projects.
        troubles: Vec<String>,
    },
    /// A run was ended, or was asked to end.
    Cancelled {
        /// The action taken, as text for people.
        how: String,
    },
    /// A part of a run's log.
    Log {
        /// Whole lines, except for a last one that has no line break.
        text: String,
        /// Number of bytes of the log that have been sent, including this part.
        end: u64,
    },
    /// The run is settled.
    Over {
        outcome: String,
    },
    Error {
        why: String,
    },
}

impl Reply {
    /// Creates a reply that refuses a request.
    pub fn error(why: impl Into<String>) -> Self {
        Self::Error { why: why.into() }
    }
}

/// The state of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonStatus {
    pub pid: u32,
    pub version: String,
    /// The time at which the daemon was started.
    pub since: Timestamp,
    pub last_tick: Option<Timestamp>,
    /// Whether the daemon is shutting down and starts nothing new.
    pub draining: bool,
    /// The live runs that the daemon started.
    pub live: Vec<Live>,
}

/// A live run that a daemon started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    pub run: String,
    pub job: String,
    /// The time at which the run's process was started.
    pub since: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed_strictly() {
        let read = |text: &str| serde_json::from_str::<Request>(text);
        assert_eq!(read(r#"{"ask":"status"}"#).unwrap(), Request::Status {});
        let run = "01KA5V7Q4B0000000000000000";
        assert_eq!(
            read(&format!(r#"{{"ask":"follow","run":"{run}"}}"#)).unwrap(),
            Request::Follow { run: run.parse().unwrap(), from: 0 }
        );
        for bad in [
            "",
            "{}",
            "status",
            r#"{"ask":"dance"}"#,
            r#"{"ask":"status","loud":true}"#,
            r#"{"ask":"cancel"}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn replies_round_trip() {
        let all = [
            Reply::error("no"),
            Reply::Ticked { started: vec!["a".into()], troubles: Vec::new() },
            Reply::Status(DaemonStatus {
                pid: 7,
                version: "1".into(),
                since: Timestamp::UNIX_EPOCH,
                last_tick: None,
                draining: false,
                live: Vec::new(),
            }),
        ];
        for reply in all {
            let text = serde_json::to_string(&reply).unwrap();
            assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), reply);
        }
    }
}
