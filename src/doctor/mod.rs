//! Finds problems that keep jobs from running, and the commands that fix them.
//!
//! The doctor changes nothing. A check that cannot be completed is itself a finding. Every
//! check is a plain function that returns findings. A fix is a command that can be pasted into a
//! shell; advice is part of the finding's text.

mod backends;
#[cfg(feature = "fleet")]
mod fleet;
mod host_rows;
mod memory;
mod projects;
pub mod sandbox;
mod sleep;
mod surroundings;
pub mod timers;

use std::path::Path;

use runner_engine::error_chain::plain;
use serde::Serialize;

use crate::env::Env;
use crate::setup::record::SetupRecord;
use crate::ui::Failure;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Useful to know, but nothing is wrong.
    Note,
    /// Something will not work as well as it could.
    Warning,
    /// Something does not work.
    Error,
}

/// A finding of `runner doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoctorFinding {
    pub what: String,
    pub severity: Severity,
    /// The file, variable, program or job that the finding is about.
    #[serde(rename = "where")]
    pub place: String,
    /// The command that fixes the problem.
    pub hint: Option<String>,
}

impl DoctorFinding {
    fn of(severity: Severity, place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { what: plain(&what.into()), severity, place: place.into(), hint: None }
    }

    /// Creates a finding about something that does not work.
    pub fn error(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::of(Severity::Error, place, what)
    }

    /// Creates a finding about something that works with restrictions.
    pub fn warning(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::of(Severity::Warning, place, what)
    }

    /// Creates an informational finding.
    pub fn note(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::of(Severity::Note, place, what)
    }

    /// Adds the command that fixes the problem.
    pub fn hint(mut self, command: impl Into<String>) -> Self {
        self.hint = Some(command.into());
        self
    }

    /// Creates a finding about a check that could not be completed.
    pub fn failure(place: impl Into<String>, failure: &Failure) -> Self {
        let (what, hint) = failure.parts();
        Self { hint, ..Self::error(place, what) }
    }

    /// Reports whether the finding is a warning or an error.
    pub fn is_wrong(&self) -> bool {
        self.severity > Severity::Note
    }
}

/// Runs all checks and returns the findings, worst first.
pub fn findings(home: &Env, here: &Path) -> Vec<DoctorFinding> {
    let mut found = surroundings::findings(home);
    found.extend(sleep::findings());
    match SetupRecord::read(&home.setup_note()) {
        Ok(record) => found.extend(timers::findings(home, &record)),
        Err(failure) => found.push(DoctorFinding::failure("setup", &failure)),
    }
    found.extend(memory::findings(home));
    #[cfg(feature = "fleet")]
    found.extend(fleet::findings(home));
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
