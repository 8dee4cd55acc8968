//! Scans the projects' folders: whether their files have changed since they were read, whether the
//! last night's report exists, and which jobs have a failure marker.
//!
//! For many projects, the scan is half the cost of the status, and it needs no database. A second
//! thread therefore scans while the first thread queries the database. The first thread then takes
//! part in the scan. This module must only collect data and never interpret it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use runner_engine::ids::ProjectId;
use runner_engine::store::{LastNight, Project};
use runner_jobs::failmark::Failmark;
use runner_jobs::report;
use runner_jobs::report::proposals::{WaitingProposals, waiting};

use super::model::CriticalEvent;
use crate::project::projection::Projection;
use crate::project::{self, StampBase};

/// Minimum number of projects for which starting a second thread pays off.
const MANY: usize = 64;
/// Number of projects that a thread takes at a time.
const SOME: usize = 16;

pub(super) struct ProjectScan {
    /// The project's configuration in the database, if it can be read.
    pub kept: Option<Projection>,
    /// Whether the project's files are unchanged since `kept` was read from them.
    pub fresh: bool,
    /// The difference between the id in the folder and the folder's id in the database, with a fix.
    /// `None` if the ids agree.
    pub contradiction: Option<String>,
    /// The existing failure markers; empty for a project whose files have changed.
    pub marks: Vec<Failmark>,
    /// The path of the last night's report, and whether the file exists. `None` before the first
    /// night.
    pub report: Option<(PathBuf, bool)>,
    /// The open critical events of the curator; none for a project whose files have changed.
    pub events: Vec<CriticalEvent>,
    /// The proposals awaiting a decision; none for a project whose files have changed.
    pub proposals: WaitingProposals,
}

/// The data about the projects that is known before the scan.
pub(super) struct ScanInput<'a> {
    pub shown: &'a [Project],
    pub kept: &'a BTreeMap<ProjectId, String>,
    pub nights: &'a BTreeMap<ProjectId, LastNight>,
    pub stamps: &'a StampBase,
}

impl ScanInput<'_> {
    fn inspect(&self, at: usize) -> ProjectScan {
        let known = &self.shown[at];
        let kept = self.kept.get(&known.id);
        let kept = kept.and_then(|text| Projection::read(text));
        let fresh = known.config_stamp == self.stamps.of_project(&known.path)
            && kept.as_ref().is_some_and(|kept| kept.is_current(&known.path));
        let (marks, proposals, events) = match (&kept, fresh) {
            (Some(kept), true) => (
                kept.marks(&known.path),
                waiting(&known.path, &kept.dreams),
                CriticalEvent::all(&known.path, &kept.worker_dir),
            ),
            _ => (Vec::new(), WaitingProposals::default(), Vec::new()),
        };
        let report = self.nights.get(&known.id).map(|last| {
            let folder = last.reported.as_ref().map(|it| &it.folder);
            let path = known
                .path
                .join(report::FOLDER)
                .join(folder.unwrap_or(&last.night.name))
                .join("report.md");
            let there = path.is_file();
            (path, there)
        });
        let contradiction =
            project::contradiction(known).map(|(what, hint)| format!("{what}\n  fix: {hint}"));
        ProjectScan { kept, fresh, contradiction, marks, report, events, proposals }
    }

    /// Scans all projects and returns the results in the projects' order, with the result of
    /// `meanwhile`. For many projects, `meanwhile` runs during the scan; otherwise, it runs first.
    pub(super) fn scan_all<T>(&self, meanwhile: impl FnOnce() -> T) -> (Vec<ProjectScan>, T) {
        let count = self.shown.len();
        if count < MANY {
            let done = meanwhile();
            return ((0..count).map(|at| self.inspect(at)).collect(), done);
        }
        let next = AtomicUsize::new(0);
        let some = || {
            let mut seen = Vec::new();
            loop {
                let from = next.fetch_add(SOME, Ordering::Relaxed);
                if from >= count {
                    return seen;
                }
                let to = count.min(from + SOME);
                seen.extend((from..to).map(|at| (at, self.inspect(at))));
            }
        };
        let (mut seen, done) = thread::scope(|scope| {
            // If the second thread cannot be started, the first thread scans all projects.
            let other = thread::Builder::new().spawn_scoped(scope, some).ok();
            let done = meanwhile();
            let mut seen = some();
            if let Some(other) = other {
                seen.extend(other.join().expect("the scan does not panic"));
            }
            (seen, done)
        });
        seen.sort_unstable_by_key(|(at, _)| *at);
        (seen.into_iter().map(|(_, sight)| sight).collect(), done)
    }
}
