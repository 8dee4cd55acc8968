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
//! A later version may add fields to replies, so readers ignore unknown fields in them. Requests
//! with unknown fields are rejected.

use jiff::Timestamp;
use runner_engine::ids::RunId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum length of a request in bytes.
pub const LONGEST: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Requests the daemon's state.
    Status {},
    /// Requests a tick. The reply follows when the tick is done.
    Tick {},
    Cancel {
        run: RunId,
    },
    /// Requests a stream of the run's log until the run is settled.
    Follow {
        run: RunId,
        /// The offset in the log at which the stream starts.
        #[serde(default)]
        from: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Reply {
    Status(DaemonStatus),
    Ticked {
        /// The ids of the runs that the tick returned to be started.
        started: Vec<String>,
        /// Problems with individual runs, jobs or projects.
        troubles: Vec<String>,
    },
    /// A run was cancelled, or was asked to stop.
    Cancelled {
        /// The action taken, as human-readable text.
        how: String,
    },
    /// A part of a run's log.
    Log {
        /// Whole lines, except that a very long line is split and the last line may be
        /// unterminated.
        text: String,
        /// The offset in the log after this part.
        end: u64,
    },
    Over {
        outcome: String,
    },
    Error {
        why: String,
    },
}

impl Reply {
    pub fn error(why: impl Into<String>) -> Self {
        Self::Error { why: why.into() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct DaemonStatus {
    pub pid: u32,
    pub version: String,
    /// The start time of the daemon.
    pub since: Timestamp,
    pub last_tick: Option<Timestamp>,
    /// Whether the daemon is shutting down and starts nothing new.
    pub draining: bool,
    /// The live runs that the daemon started.
    pub live: Vec<Live>,
}

#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Live {
    pub run: String,
    pub job: String,
    /// The start time of the run's process.
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
