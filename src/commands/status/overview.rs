//! Reads the data about many projects from the database at once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use runner_engine::admission;
use runner_engine::ids::ProjectId;
use runner_engine::schedule::Trigger;
use runner_engine::store::{
    AlertRow, AlertSelection, JobPause, JobRow, MissedStretch, NextDue, RunRow, Store,
};

use super::model::StoppedJob;
use crate::ui::Failure;

/// Data that the database returns for many projects while their folders are scanned.
pub(super) struct StoreOverview {
    pub(super) next: BTreeMap<ProjectId, NextDue>,
    pub(super) missed: BTreeMap<ProjectId, Vec<MissedStretch>>,
    pub(super) pauses: BTreeMap<ProjectId, Vec<JobPause>>,
    pub(super) stopped: BTreeMap<ProjectId, Vec<StoppedJob>>,
    /// The enabled jobs whose last attempt failed, unless the failure was acknowledged.
    pub(super) failing: BTreeMap<ProjectId, Vec<JobRow>>,
    pub(super) queues: BTreeSet<ProjectId>,
    pub(super) live: Vec<RunRow>,
    pub(super) alerts: Vec<AlertRow>,
    pub(super) undelivered: Vec<(ProjectId, String, u32, String)>,
}

impl StoreOverview {
    /// Reads the data for all projects. With `only`, the failing and stopped jobs of other projects
    /// are omitted.
    pub(super) fn of(
        store: &Store,
        only: Option<&ProjectId>,
        now: Timestamp,
    ) -> Result<Self, Failure> {
        let week = now.saturating_sub(SignedDuration::from_hours(7 * 24)).unwrap_or(now);
        let mut missed: BTreeMap<ProjectId, Vec<MissedStretch>> = BTreeMap::new();
        for stretch in store.all_missed_since(week)? {
            missed.entry(stretch.project.clone()).or_default().push(stretch);
        }
        let mut pauses: BTreeMap<ProjectId, Vec<JobPause>> = BTreeMap::new();
        for pause in store.own_pauses(now)? {
            pauses.entry(pause.project.clone()).or_default().push(pause);
        }
        let mut stopped: BTreeMap<ProjectId, Vec<StoppedJob>> = BTreeMap::new();
        let mut failing: BTreeMap<ProjectId, Vec<JobRow>> = BTreeMap::new();
        let mut stopped_ids = Vec::new();
        for job in store.failing_jobs(only)? {
            let streak = store.streak(job)?;
            if streak.failures == 0 {
                continue;
            }
            let job = store.job_by_id(job)?;
            // Disabled and removed jobs, and the jobs of manual commands, are excluded.
            if job.enabled && !job.name.contains(':') {
                let known = failing.entry(job.project.clone()).or_default();
                known.push(job.clone());
            }
            if !admission::stopped(streak) {
                continue;
            }
            if job.enabled && job.schedule.trigger != Trigger::Manual {
                stopped_ids.push(job.id);
                stopped
                    .entry(job.project)
                    .or_default()
                    .push(StoppedJob { job: job.name, failures_in_a_row: streak.started });
            }
        }
        Ok(Self {
            next: store.next_due(&stopped_ids, now)?,
            missed,
            pauses,
            stopped,
            failing,
            queues: store.projects_with_queues()?,
            live: store.live()?,
            alerts: store.alerts(None, AlertSelection::Open)?,
            undelivered: store.undelivered()?,
        })
    }
}
