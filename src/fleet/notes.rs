//! Facts about a claim or a result that this host's database stores with a run.

use runner_engine::digest::Digest;
use runner_engine::outcome::Outcome;
use runner_engine::store::RunSummary;
use serde::{Deserialize, Serialize};

/// A claim held by this host, stored with the run that works on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimNote {
    pub fleet: String,
    pub occurrence: String,
    pub fence: i64,
    pub worker: String,
    /// The length of the lease in milliseconds.
    pub lease: u64,
    /// The boot time in milliseconds at which the lease expires unless renewed.
    pub until: u64,
}

/// A result that is applied by a run on its home host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApplyNote {
    pub fleet: String,
    pub occurrence: String,
    pub fence: i64,
    /// The host that publishes.
    pub home: String,
    /// The host that did the work. `None` if no host finished it.
    pub host: Option<String>,
    pub outcome: Outcome,
    pub summary: RunSummary,
    pub files: Vec<ResultFile>,
}

impl ApplyNote {
    /// Returns the line of the run's summary that names the host that did the work.
    pub fn work_line(&self) -> String {
        match &self.host {
            Some(host) => format!("done by the host {host} of the fleet {}", self.fleet),
            None => format!("no host of the fleet {} finished the work", self.fleet),
        }
    }
}

/// A file that a run published in its copy of the project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultFile {
    /// The path relative to the project.
    pub path: String,
    /// The content that the home host must still have. `None` if the file must not exist.
    pub before: Option<Digest>,
    /// The new content. `None` removes the file.
    pub after: Option<Digest>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_line_names_the_host() {
        let mut note = ApplyNote {
            fleet: "night".into(),
            occurrence: String::new(),
            fence: 1,
            home: "a".into(),
            host: Some("b".into()),
            outcome: Outcome::Succeeded,
            summary: RunSummary::default(),
            files: Vec::new(),
        };
        assert_eq!(note.work_line(), "done by the host b of the fleet night");
        note.host = None;
        assert_eq!(note.work_line(), "no host of the fleet night finished the work");
    }
}
