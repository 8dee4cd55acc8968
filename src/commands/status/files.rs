//! Reads the state of a project's files. Settings come from the database if the files have not
//! changed since they were read, and otherwise from the files.
//!
//! This module must never store the data that it reads.

use std::path::PathBuf;

use runner_engine::store::{Project, Store};
use runner_jobs::failmark::Failmark;
use runner_jobs::report::proposals::{WaitingProposals, waiting};

use super::model::CriticalEvent;
use super::project_scan::ProjectScan;
use crate::env::Env;
use crate::project::projection::Projection;
use crate::project::{self, LoadedProject, registration};
use crate::ui::Failure;

/// The state of a project's files, and the problem with them, if there is one.
pub(super) struct Files {
    pub(super) standing: &'static str,
    /// Whether ticks start nothing in the project, because its folder is missing or has a problem.
    pub(super) is_unusable: bool,
    pub(super) trouble: Option<String>,
    pub(super) projection: Option<Projection>,
    pub(super) marks: Vec<Failmark>,
    pub(super) report: Option<(PathBuf, bool)>,
    pub(super) events: Vec<CriticalEvent>,
    pub(super) proposals: WaitingProposals,
}

impl Files {
    pub(super) fn of(
        home: &Env,
        store: &Store,
        known: &Project,
        seen: ProjectScan,
    ) -> Result<Self, Failure> {
        let (kept, report) = (seen.kept, seen.report);
        if seen.fresh {
            return Ok(Self {
                standing: "known",
                is_unusable: false,
                trouble: seen.contradiction,
                projection: kept,
                marks: seen.marks,
                report,
                events: seen.events,
                proposals: seen.proposals,
            });
        }
        let stands = project::standing_of_row(known);
        let problem = stands.trouble(&known.path, &known.id);
        let is_unusable = problem.is_some();
        let (standing, trouble, projection) = match problem {
            Some((what, hint)) => {
                let trouble = format!("{what}\n  fix: {hint}");
                (stands.as_str(), Some(trouble), kept)
            }
            None => {
                let read = LoadedProject::at(home, Some(store), &known.path).and_then(|here| {
                    here.check(store)?;
                    Ok(Projection::of(&here.trusted()?))
                });
                let standing = match stands {
                    registration::Registration::Replaced => "replaced",
                    _ => "known",
                };
                match read {
                    Ok(fresh) => (standing, seen.contradiction, Some(fresh)),
                    // The last settings that could be read remain in effect, so they are shown.
                    Err(failure) => (standing, Some(failure.to_string()), kept),
                }
            }
        };
        let marks = projection.as_ref().map(|it| it.marks(&known.path)).unwrap_or_default();
        let proposals = projection.as_ref().map(|it| waiting(&known.path, &it.dreams));
        let proposals = proposals.unwrap_or_default();
        let events = projection.as_ref().map(|it| CriticalEvent::all(&known.path, &it.worker_dir));
        let events = events.unwrap_or_default();
        Ok(Self { standing, is_unusable, trouble, projection, marks, report, events, proposals })
    }
}
