//! What keeps the nights from happening, each thing with the command that mends it.
//!
//! Looks and changes nothing; a question that cannot be answered is a finding of its own. Every check is a
//! plain function that returns findings. What mends it is a command that a shell takes word for word;
//! advice stands in the finding itself.

mod backends;
mod projects;
pub mod sandbox;
mod sleep;
mod surroundings;
pub mod timers;

use std::path::Path;

use runner_engine::error_chain::plain;
use serde::Serialize;

use crate::cli::Failure;
use crate::env::Env;
use crate::setup::plan::shown;
use crate::setup::record::SetupRecord;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Something will not work as it could.
    Warning,
    /// Something does not work.
    Error,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoctorFinding {
    /// What it is.
    pub what: String,
    /// How much it matters.
    pub severity: Severity,
    /// The file, variable, program or job that it is about.
    #[serde(rename = "where")]
    pub place: String,
    /// The command that mends it.
    #[serde(rename = "mend")]
    pub hint: Option<String>,
}

impl DoctorFinding {
    fn of(severity: Severity, place: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            what: plain(&what.into()),
            severity,
            place: place.into(),
            hint: None,
        }
    }

    /// Something does not work.
    pub fn error(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::of(Severity::Error, place, what)
    }

    /// Something will not work as it could.
    pub fn warning(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::of(Severity::Warning, place, what)
    }

    /// Worth knowing.
    pub fn note(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::of(Severity::Note, place, what)
    }

    /// With what mends it.
    pub fn hint(mut self, command: impl Into<String>) -> Self {
        self.hint = Some(command.into());
        self
    }

    /// A question that could not be answered.
    pub fn failure(place: impl Into<String>, failure: &Failure) -> Self {
        let text = failure.to_string();
        let (what, hint) = match text.split_once("\n  fix: ") {
            Some((what, hint)) => (what.to_owned(), Some(hint.to_owned())),
            None => (text, None),
        };
        Self {
            hint,
            ..Self::error(place, what)
        }
    }

    /// Whether something is wrong.
    pub fn is_wrong(&self) -> bool {
        self.severity > Severity::Note
    }
}

/// A path as a word of a command.
pub fn quote_path(path: &Path) -> String {
    shown(&[path.display().to_string()])
}

/// Everything that can be found, the worst first.
pub fn findings(home: &Env, here: &Path) -> Vec<DoctorFinding> {
    let mut found = surroundings::findings(home);
    found.extend(sleep::findings());
    match SetupRecord::read(&home.setup_note()) {
        Ok(record) => found.extend(timers::findings(home, &record)),
        Err(failure) => found.push(DoctorFinding::failure("setup", &failure)),
    }
    match home.store_to_read() {
        Ok(store) => {
            found.extend(projects::findings(home, store.as_ref(), here));
            found.extend(backends::findings(home, store.as_ref(), here));
        }
        Err(error) => found.push(DoctorFinding::failure("database", &error.into())),
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

/// For people.
pub fn text(findings: &[DoctorFinding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let word = match finding.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        text.push_str(&format!("{word}: {}: {}\n", finding.place, finding.what));
        if let Some(hint) = &finding.hint {
            text.push_str(&format!("  fix: {hint}\n"));
        }
    }
    text
}
