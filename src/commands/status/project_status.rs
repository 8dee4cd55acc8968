//! Derives the status of one project from the data for all projects.

use std::fs;
use std::path::{Path, PathBuf};

use runner_engine::files::{SMALL, read_host};
use runner_engine::ids::ProjectId;
use runner_engine::locks::{LockHolder, job_lock_path};
use runner_engine::outcome::Outcome;
use runner_engine::store::{Budget, MissedStretch, Project, RunFilter, RunRow, RunState};
use runner_jobs::failmark::Failmark;
use runner_jobs::report;

use super::files::Files;
use super::gather::GatheredStatus;
use super::model::{
    HeldLock, JobFailure, LiveRun, MissedTimes, NextRun, NightStatus, OpenAlert, Pause,
    ProjectBudgets, ProjectStatus, QueuedRuns, StarvedJob,
};
use super::queue;
use crate::commands::pause::limited;
use crate::commands::runs::state_name;
use crate::project::projection::Projection;
use crate::ui::{Failure, show};

/// Number of consecutive scheduled times, each replaced by the next, after which a job is reported
/// as starved.
const STARVED: u32 = 3;

impl GatheredStatus<'_> {
    /// Creates the status of one project.
    pub(super) fn one(&mut self, known: &Project, files: Files) -> Result<ProjectStatus, Failure> {
        let id = &known.id;
        let projection = files.projection.as_ref();
        let budget = self.budget(id, projection);
        let mut troubles: Vec<String> = files.trouble.iter().cloned().collect();
        let last_night = self.last_night(known, &files, &mut troubles)?;
        troubles.extend(self.undelivered(id));
        let live: Vec<&RunRow> = self.asked.live.iter().filter(|row| row.project == *id).collect();
        let locks = match self.alone || !live.is_empty() {
            true => locks(&self.home.state, id),
            false => Vec::new(),
        };
        let unmarked = self.unmarked(id, &files.marks)?;
        let missed = self.asked.missed.get(id).map_or(&[][..], Vec::as_slice);
        Ok(ProjectStatus {
            id: Some(id.to_string()),
            path: known.path.display().to_string(),
            standing: files.standing,
            zone: projection.map_or_else(|| "UTC".to_owned(), |it| it.zone.clone()),
            trouble: (!troubles.is_empty()).then(|| troubles.join("\n")),
            last_night,
            is_unusable: files.is_unusable,
            next: self.asked.next.get(id).filter(|_| !files.is_unusable).map(|next| NextRun {
                job: next.job.clone(),
                at: next.at,
                zone: projection.map_or("UTC", |it| it.zone_of(&next.job)).to_owned(),
            }),
            failmarks: files.marks.into_iter().map(JobFailure::from).chain(unmarked).collect(),
            missed_this_week: missed.iter().filter_map(missed_times).collect(),
            live: live.into_iter().map(live_run).collect(),
            locks,
            queued: self.queued(known)?,
            paused: self.pauses(id),
            starved: self.starved(id, projection)?,
            alerts: self.alerts(id),
            critical_events: files.events,
            proposals: files.proposals,
            stopped: self.asked.stopped.remove(id).unwrap_or_default(),
            budget,
        })
    }

    /// Describes the project's alerts that were not delivered.
    fn undelivered(&self, project: &ProjectId) -> impl Iterator<Item = String> {
        let own = self.asked.undelivered.iter().filter(move |one| one.0 == *project);
        own.map(|(_, channel, count, said)| {
            format!(
                "{} did not arrive through {channel}: {said}; fix: runner alerts test {channel}",
                show::count(u64::from(*count), "alert")
            )
        })
    }

    fn queued(&self, known: &Project) -> Result<QueuedRuns, Failure> {
        if !self.asked.queues.contains(&known.id) {
            return Ok(QueuedRuns::default());
        }
        let jobs = self.store.jobs(&known.id)?;
        queue::queued(self.store, known, &jobs, &self.asked.live, self.now)
    }

    fn starved(
        &self,
        project: &ProjectId,
        projection: Option<&Projection>,
    ) -> Result<Vec<StarvedJob>, Failure> {
        let mut starved = Vec::new();
        for job in projection.map_or(&[][..], |it| &it.replacing) {
            let replaced_in_a_row = self.store.replaced_in_a_row(project, job)?;
            if replaced_in_a_row >= STARVED {
                starved.push(StarvedJob { job: job.clone(), replaced_in_a_row });
            }
        }
        Ok(starved)
    }

    /// Returns the pauses of single jobs, except those that end no later than the pause for all
    /// jobs.
    fn pauses(&self, project: &ProjectId) -> Vec<Pause> {
        let pauses = self.asked.pauses.get(project).map_or(&[][..], Vec::as_slice).iter();
        let own = pauses.filter(|pause| self.held.is_none_or(|all| pause.until > all));
        own.map(|pause| Pause {
            job: Some(pause.job.clone()),
            until: limited(pause.until),
            zone: Some(pause.zone.clone()),
        })
        .collect()
    }

    fn alerts(&self, project: &ProjectId) -> Vec<OpenAlert> {
        let own = self.asked.alerts.iter().filter(|alert| alert.project == *project);
        own.map(|alert| OpenAlert {
            id: alert.id.to_string(),
            job: alert.job_name.clone(),
            kind: alert.kind.as_str(),
            since: alert.raised,
            count: alert.count,
            silenced: alert.silenced.is_some(),
        })
        .collect()
    }

    /// Returns the failures that have no failure marker: the marker could not be written, or it has
    /// been removed.
    fn unmarked(
        &self,
        project: &ProjectId,
        marks: &[Failmark],
    ) -> Result<Vec<JobFailure>, Failure> {
        let mut found = Vec::new();
        for job in self.asked.failing.get(project).map_or(&[][..], Vec::as_slice) {
            if marks.iter().any(|mark| mark.job == job.name) {
                continue;
            }
            let failed = self.store.runs(&RunFilter {
                job: Some(job.id),
                failed: true,
                limit: 1,
                ..RunFilter::default()
            })?;
            let failed = failed.first().and_then(|row| Some((row, row.outcome()?)));
            let Some((row, outcome)) = failed else { continue };
            found.push(JobFailure {
                job: job.name.clone(),
                at: row.finished().unwrap_or(row.requested),
                class: outcome
                    .class()
                    .map_or_else(|| outcome.as_str().to_owned(), |it| it.as_str().to_owned()),
                message: format!(
                    "{} (no failure marker)",
                    outcome.why().unwrap_or_else(|| outcome.as_str())
                ),
                hint: format!("runner runs show {}", row.id),
            });
        }
        Ok(found)
    }

    fn last_night(
        &self,
        known: &Project,
        files: &Files,
        troubles: &mut Vec<String>,
    ) -> Result<Option<NightStatus>, Failure> {
        let (Some(last), Some((path, there))) = (self.nights.get(&known.id), &files.report) else {
            return Ok(None);
        };
        let night = &last.night;
        if night.closed.is_some() && !there && !files.is_unusable {
            troubles.push(format!(
                "the last night, {}, has no report file; to print the report: runner report --night {0}",
                night.name
            ));
        }
        let (headline, worst) = match &last.reported {
            Some(reported) => (reported.headline.clone(), reported.worst.clone()),
            None => {
                let report = report::gather(self.store, night.id, &known.path, self.now)?;
                (report.headline(), report.worst)
            }
        };
        Ok(Some(NightStatus {
            name: night.name.clone(),
            headline,
            worst,
            closed: night.closed.is_some(),
            report: there.then(|| path.display().to_string()),
        }))
    }

    fn budget(&mut self, id: &ProjectId, projection: Option<&Projection>) -> ProjectBudgets {
        let none = Budget::default();
        let (day, night) = projection.map_or((none, none), |it| (it.day, it.night));
        let zone = projection.map_or("UTC", |it| it.zone.as_str());
        let date = self.dates.of(zone);
        let open = self.nights.get(id).map(|last| &last.night);
        let open = open.filter(|night| night.closed.is_none());
        ProjectBudgets {
            day: self.days.status(&format!("{id} {date}"), date, day),
            night: open.map(|open| {
                self.open_nights.status(&open.id.0.to_string(), open.name.clone(), night)
            }),
        }
    }
}

impl From<Failmark> for JobFailure {
    fn from(mark: Failmark) -> Self {
        let Failmark { job, at, class, message, hint, .. } = mark;
        Self { job, at, class, message, hint }
    }
}

fn missed_times(found: &MissedStretch) -> Option<MissedTimes> {
    let Outcome::Missed { first, last, count, why } = &found.outcome else { return None };
    Some(MissedTimes {
        job: found.job.clone(),
        first: *first,
        last: *last,
        count: *count,
        why: why.clone(),
        zone: found.zone.clone(),
    })
}

fn live_run(row: &RunRow) -> LiveRun {
    LiveRun {
        run: row.id.to_string(),
        state: match row.owner() {
            Some(owner) if matches!(row.state, RunState::Running { .. }) && !owner.is_alive() => {
                "running, but the process is gone; the next tick settles the run".to_owned()
            }
            _ => state_name(row).to_owned(),
        },
        since: row.started().unwrap_or(row.requested),
        job: row.job_name.clone(),
    }
}

/// Lists a project's deciding locks that live processes hold, ordered by job.
fn locks(state: &Path, project: &ProjectId) -> Vec<HeldLock> {
    let folder = job_lock_path(state, project, "any");
    let folder = folder.parent().unwrap_or(state);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .iter()
        .filter_map(|path| {
            let holder: LockHolder = serde_json::from_slice(&read_host(path, SMALL).ok()?).ok()?;
            holder.owner.is_alive().then(|| HeldLock {
                job: path
                    .file_stem()
                    .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
                pid: holder.owner.pid,
                run: holder.run.to_string(),
                since: holder.since,
            })
        })
        .collect()
}
