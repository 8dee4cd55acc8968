//! `runner jobs list` and `runner jobs show`: show jobs and their last runs.

use jiff::Timestamp;
use runner_engine::admission::stopped;
use runner_engine::ids::RunId;
use runner_engine::outcome::Outcome;
use runner_engine::store::{FOREVER, JobId, RunFilter, Store, Streak};
use schemars::JsonSchema;
use serde::Serialize;

use crate::env::Env;
use crate::project::LoadedProject;
use crate::ui::show::{List, Tone};
use crate::ui::{Failure, Ui, View, show};

#[derive(Debug, JsonSchema, Serialize)]
pub(super) struct JobView {
    pub(super) job: String,
    kind: String,
    /// Whether schedules and nights start the job.
    enabled: bool,
    /// The trigger, as in the settings.
    trigger: String,
    /// A description of the schedule.
    schedule: String,
    next_due: Option<Timestamp>,
    last: Option<LastRun>,
    paused_until: Option<Timestamp>,
    /// The number of consecutive failures since the last success or reset.
    failures: u32,
    /// Whether the circuit breaker keeps schedules from starting the job.
    stopped: bool,
}

pub(super) fn jobs(home: &Env, project: &LoadedProject) -> Result<Vec<JobView>, Failure> {
    let (store, now) = (home.store_to_read()?, home.wall()?);
    let recorded =
        store.as_ref().map(|store| store.jobs(&project.id)).transpose()?.unwrap_or_default();
    let mut jobs = Vec::new();
    for row in project.config.job_rows()? {
        if !project.config.jobs.contains_key(&row.name) {
            continue;
        }
        let known = recorded.iter().find(|known| known.name == row.name);
        let streak = match (&store, known) {
            (Some(store), Some(known)) => store.streak(known.id)?,
            _ => Streak::default(),
        };
        let last = match (&store, known) {
            (Some(store), Some(known)) => LastRun::of(store, known.id)?,
            _ => None,
        };
        let next_due = match known {
            Some(known) => known.next_due,
            // The job has not been registered in the database yet.
            None if row.enabled => row.schedule.next_after(now, now).ok().flatten(),
            None => None,
        };
        let trigger = project.config.job(&row.name)?.when.to_string();
        jobs.push(JobView {
            trigger,
            job: row.name,
            kind: row.kind,
            enabled: row.enabled,
            schedule: row.schedule.describe(),
            next_due,
            last,
            // The database keeps the end time of a pause until the scheduled times within it are
            // recorded.
            paused_until: known.and_then(|known| known.paused_until).filter(|end| *end > now),
            failures: streak.failures,
            stopped: stopped(streak),
        });
    }
    Ok(jobs)
}

#[derive(Debug, JsonSchema, Serialize)]
#[serde(transparent)]
pub(in crate::commands) struct JobList(pub(super) Vec<JobView>);

/// A job's last finished run.
#[derive(Debug, JsonSchema, Serialize)]
struct LastRun {
    run: RunId,
    finished: Option<Timestamp>,
    #[serde(flatten)]
    outcome: Outcome,
}

impl LastRun {
    /// Returns the last finished run of the job, or `None` if no run has finished.
    fn of(store: &Store, job: JobId) -> Result<Option<Self>, Failure> {
        let filter = RunFilter { job: Some(job), settled: true, limit: 1, ..RunFilter::default() };
        let over = store.runs(&filter)?.into_iter().find_map(|row| {
            let outcome = row.outcome()?.clone();
            Some(Self { run: row.id.clone(), finished: row.finished(), outcome })
        });
        Ok(over)
    }

    /// Formats the run's outcome and finish time.
    fn text(&self) -> String {
        let at =
            self.finished.map_or_else(String::new, |at| format!(" {}", show::format_minute(at)));
        format!("{}{at}", self.outcome.as_str())
    }
}

impl View for JobList {
    fn print(&self, _ui: Ui) {
        let rows = self.0.iter().map(|job| {
            let last = job.last.as_ref();
            let cells = show::row([
                &job.job,
                &job.kind,
                &last.map_or_else(|| "never ran".to_owned(), LastRun::text),
                &job.breaker(),
                &job.next(),
                &job.trigger,
            ]);
            let tone = if job.stopped { Tone::Bad } else { Tone::of(last.map(|it| &it.outcome)) };
            (tone, cells)
        });
        let header = &["JOB", "KIND", "LAST RUN", "BREAKER", "NEXT", "TRIGGER"];
        List { header, toned: 2, rows: rows.collect() }.print();
    }
}

impl JobView {
    /// Describes the circuit breaker, which stops a job after repeated failures.
    fn breaker(&self) -> String {
        match (self.stopped, self.failures) {
            (true, failures) => format!("open, {failures} failed"),
            (false, 0) => "closed".to_owned(),
            (false, failures) => format!("closed, {failures} failed"),
        }
    }

    fn next(&self) -> String {
        match (self.enabled, self.paused_until, self.next_due) {
            (false, ..) => "disabled".to_owned(),
            (true, Some(until), _) if until == FOREVER => "paused".to_owned(),
            (true, Some(until), _) => format!("paused until {}", show::format_minute(until)),
            (true, None, Some(at)) => show::format_minute(at),
            (true, None, None) => "-".to_owned(),
        }
    }
}

impl View for JobView {
    fn print(&self, _ui: Ui) {
        let rows = [
            ["job", &self.job],
            ["kind", &self.kind],
            ["enabled", if self.enabled { "yes" } else { "no" }],
            ["schedule", &self.schedule],
            ["next due", &when(self.next_due)],
            ["paused until", &when(self.paused_until)],
            ["breaker", &self.breaker()],
            ["last run", &self.last.as_ref().map_or_else(|| "never ran".to_owned(), LastRun::text)],
            ["why", self.last.as_ref().and_then(|last| last.outcome.why()).unwrap_or("-")],
            ["log", &format!("runner logs {}", self.job)],
        ];
        show::out(&show::table(&rows.map(show::row)));
    }
}

fn when(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "-".to_owned(), show::format_time)
}
