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

/// The longest line that is read.
pub const LONGEST: usize = 64 * 1024;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How things stand.
    Status {},
    /// Tick now; the reply comes when it is done.
    Tick {},
    /// End a run.
    Cancel {
        /// Which.
        run: RunId,
    },
    /// The log of a run, as it grows, until the run is settled.
    Follow {
        /// Which.
        run: RunId,
        /// Bytes of the log that are known already.
        #[serde(default)]
        from: u64,
    },
}

/// The daemon's reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Reply {
    /// How things stand.
    Status(DaemonStatus),
    /// A tick was made.
    Ticked {
        /// The runs that it started.
        started: Vec<String>,
        /// The problems with single runs, jobs or projects.
        troubles: Vec<String>,
    },
    /// A run was ended, or was asked to end.
    Cancelled {
        /// In words.
        how: String,
    },
    /// Some of a run's log.
    Log {
        /// Whole lines, but for a last one that has no end.
        text: String,
        /// How many bytes of the log have been sent with it.
        end: u64,
    },
    /// The run is settled.
    Over {
        /// How it ended.
        outcome: String,
    },
    /// It could not be done.
    Error {
        /// Why.
        why: String,
    },
}

impl Reply {
    /// Creates a reply that refuses a request.
    pub fn error(why: impl Into<String>) -> Self {
        Self::Error { why: why.into() }
    }
}

/// How a daemon stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// When it was started.
    pub since: Timestamp,
    /// When it last ticked.
    pub last_tick: Option<Timestamp>,
    /// It is about to end and starts nothing new.
    pub draining: bool,
    /// The runs that it has started and that are not over.
    pub live: Vec<Live>,
}

/// A run that a daemon looks after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// Its id.
    pub run: String,
    /// Its job's name.
    pub job: String,
    /// When its process was started.
    pub since: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_strictly() {
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
    fn replies_come_back_as_they_were_sent() {
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
