//! `runner night`: runs every enabled job once, one after another, under one budget, and writes one
//! report.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use runner_engine::ids::{OccurrenceId, RunId};
use runner_engine::outcome::{Exit, Outcome, SkipReason};
use runner_engine::process_id::ProcessIdentity;
use runner_engine::schedule::Trigger;
use runner_engine::store::{NewOccurrence, Night, Origin, Recorded, RunRow, RunState, Store};
use runner_engine::tick::{civil_date, close_nights};
use runner_jobs::report::{self, NightReport};
use serde::Serialize;

use super::run::{AwakeFlags, EndedRun};
use super::{Cli, dry_run};
use crate::config::{Config, TriggerSpec};
use crate::daemon::client;
use crate::env::Env;
use crate::project::LoadedProject;
use crate::spawn::{self, NextAction, SpawnMode};
use crate::ui::{Failure, Ui, View, show};

/// Run every enabled job of the project once, under one budget, and write one report
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner night --json | jq '.runs[] | {job, outcome}'")]
pub struct NightArgs {
    /// Show the requests, their backends and maximum cost, and whether each job would start now;
    /// send and write nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    awake: AwakeFlags,
}

impl NightArgs {
    /// Runs a night manually, or shows what the night would do.
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        if self.dry_run {
            return dry_run::night(cli);
        }
        with_steps(cli.env, cli.here, &[], cli.spawn_mode(), self.awake)
    }
}

/// Runs a night during which some jobs run more than once: `steps` lists each such job with its
/// number of additional runs.
pub fn with_steps(
    home: &Env,
    here: &Path,
    steps: &[(&str, u32)],
    manner: SpawnMode,
    awake: AwakeFlags,
) -> Result<Exit, Failure> {
    // The settings outside the jobs' tables determine the night's length and budget.
    let project = LoadedProject::load(home, here)?.trusted_outside_jobs()?;
    let now = home.wall()?;
    let mut store = home.store()?;
    store.check()?;
    project.register(&mut store, now)?;
    let me = ProcessIdentity::me();
    let due = due(&project.config);
    if due.is_empty() {
        manner.ui.show(&NothingDue::of(&project));
        return Ok(Exit::Done);
    }
    let settings = &project.config.night;
    let closes = now.saturating_add(settings.length).unwrap_or(now);
    let night = store.open_night(&project.id, &civil_date(now, &settings.zone), now, closes)?;
    manner.ui.info(&format!("night {}", night.name));
    // All due jobs are recorded before the first one starts: if this process dies, the next tick
    // runs the rest. A job that follows another job is recorded when that job has finished.
    let mut queue = VecDeque::new();
    for (name, kind) in due {
        let more = steps.iter().find(|(step, _)| *step == name);
        for number in 0..=more.map_or(0, |(_, more)| *more) {
            let key = match number {
                0 => format!("night-{}", night.id.0),
                further => format!("night-{}-{further}", night.id.0),
            };
            let new = NewOccurrence {
                night: Some(night.id),
                settings: awake.settings(),
                ..NewOccurrence::manual(store.job(&project.id, name)?.id, key, now)
            };
            if let Recorded::New(run) = store.enter(&new, &me, now)? {
                tracing::debug!(job = name, kind, "recorded");
                queue.push_back(run);
            }
        }
    }
    let mut running = RunningNight { home, store, me, night, manner, worst: Exit::Done };
    running.work(queue)?;
    running.close(&project)?;
    let (night, worst) = running.result(&project, closes)?;
    manner.ui.show(&night);
    Ok(worst)
}

/// Runs one job in the project's open night, or in a new night if none is open. Then writes the
/// reports for the project's finished nights.
pub(super) fn with_one(
    home: &Env,
    project: &LoadedProject,
    job: &str,
    settings: Vec<(String, String)>,
    manner: SpawnMode,
) -> Result<Exit, Failure> {
    let now = home.wall()?;
    let mut store = home.store()?;
    project.register(&mut store, now)?;
    let me = ProcessIdentity::me();
    let night = &project.config.night;
    let closes = now.saturating_add(night.length).unwrap_or(now);
    let date = civil_date(now, &night.zone);
    let night = store.open_or_join_night(&project.id, &date, now, closes)?;
    let key = OccurrenceId::new(now).to_string();
    let new = NewOccurrence {
        night: Some(night.id),
        settings,
        ..NewOccurrence::manual(store.job(&project.id, job)?.id, key, now)
    };
    let Recorded::New(run) = store.enter(&new, &me, now)? else {
        return Err(Failure::internal("a new occurrence already exists in the database"));
    };
    let closes = night.closes;
    let mut running = RunningNight { home, store, me, night, manner, worst: Exit::Done };
    let row = spawn::run_to_end(home, &mut running.store, &running.me, &run, manner)?;
    running.worst = match row.outcome() {
        None => Exit::Internal,
        // Another run or another program was active.
        Some(Outcome::Skipped { reason: SkipReason::Busy, .. }) => Exit::TryLater,
        Some(outcome) => outcome.exit(false),
    };
    // Jobs that follow this run may be ready now.
    client::wake(home);
    running.close(project)?;
    let (night, worst) = running.result(project, closes)?;
    manner.ui.show(&RunAndNight { run: EndedRun::of(&row), night });
    Ok(worst)
}

/// Returns the enabled jobs that start when a manual night begins, and their kinds. Excludes jobs
/// that follow another job, and jobs that only a cycle starts.
fn due(config: &Config) -> Vec<(&str, &str)> {
    let begins = |when: &TriggerSpec| {
        !matches!(when, TriggerSpec::Clock(Trigger::After(_)) | TriggerSpec::Lifecycle)
    };
    let due = config.jobs.iter().filter(|(_, job)| job.enabled && begins(&job.when));
    due.map(|(name, job)| (name.as_str(), job.spec.kind.name())).collect()
}

/// A night in progress.
struct RunningNight<'a> {
    home: &'a Env,
    store: Store,
    me: ProcessIdentity,
    night: Night,
    manner: SpawnMode,
    /// The worst exit code so far.
    worst: Exit,
}

impl RunningNight<'_> {
    /// Executes the queued runs one after another. A signal stops the current run and cancels the
    /// rest. If the user cancels a run by its id, only that run is stopped.
    fn work(&mut self, mut queue: VecDeque<RunId>) -> Result<(), Failure> {
        let Self { home, store, me, night, manner, worst } = self;
        let mut ended = |row: &RunRow| {
            *worst = (*worst).max(row.outcome().map_or(Exit::Internal, |it| it.exit(true)));
            manner.ui.show_part(&EndedRun::of(row));
        };
        let mut interrupted = true;
        let all = spawn::run_all(home, store, me, *manner, |store, started| {
            if started.live > 0 {
                return Ok(NextAction::default());
            }
            if let Some(run) = started.all.last() {
                ended(&store.run(run)?);
                queue.extend(store.start_ready(Some(night.id), me, home.wall()?)?);
            }
            while let Some(run) = queue.pop_front() {
                // The user may have cancelled the run while it was waiting for its turn.
                let row = store.run(&run)?;
                if row.outcome().is_none() {
                    return Ok(NextAction { start: vec![run], ..NextAction::default() });
                }
                ended(&row);
            }
            interrupted = false;
            Ok(NextAction::default())
        })?;
        if interrupted {
            if let Some(run) = all.last() {
                ended(&store.run(run)?);
            }
            self.cancel_rest()?;
        }
        Ok(())
    }

    /// Cancels the night's runs that have not begun. Leaves runs that another process starts, and
    /// queued runs that a schedule or `enqueue` requested.
    fn cancel_rest(&mut self) -> Result<(), Failure> {
        let why = "the night was cancelled before this run started";
        for one in self.store.occurrences_of(self.night.id)? {
            let Some(row) = self.store.last_run_of(&one.id)? else { continue };
            let waits = match &row.state {
                RunState::Queued { .. } => matches!(one.origin, Origin::Manual | Origin::Event),
                RunState::Requested { starter, .. } => *starter == self.me,
                RunState::Running { .. } | RunState::Settled { .. } => false,
            };
            if waits {
                self.store.cancel(&row.id, why, self.home.wall()?)?;
                self.worst = self.worst.max(Exit::Cancelled);
            }
        }
        Ok(())
    }

    /// Closes the project's finished nights, and writes their reports.
    fn close(&mut self, project: &LoadedProject) -> Result<(), Failure> {
        let driver = spawn::driver(self.home, &self.me);
        let now = self.home.now()?;
        for run in close_nights(&mut self.store, &driver, now, Some(&project.id))? {
            let row = spawn::run_to_end(self.home, &mut self.store, &self.me, &run, self.manner)?;
            if !row.outcome().is_some_and(Outcome::published) {
                self.worst = self.worst.max(Exit::Failed);
                EndedRun::of(&row).print(self.manner.ui);
            }
        }
        Ok(())
    }

    /// Returns the night's result and the exit code.
    fn result(
        self,
        project: &LoadedProject,
        closes: Timestamp,
    ) -> Result<(NightView, Exit), Failure> {
        let (store, id) = (&self.store, self.night.id);
        let open = store.occurrences_of(id)?.iter().filter(|one| one.outcome.is_none()).count();
        let report = report::whole(store, id, &project.root, self.home.wall()?)?;
        // Another process may have closed the night, so only the database shows whether the report
        // was written.
        let state = match (store.report_folder(id)?, open) {
            (Some(folder), _) => {
                let folder = project.root.join(report::FOLDER).join(folder);
                ReportState::Written(folder.join("report.md"))
            }
            (None, 0) => ReportState::Failed,
            (None, _) => ReportState::Due(closes),
        };
        let worst = match state {
            ReportState::Failed => self.worst.max(Exit::Failed),
            _ => self.worst,
        };
        Ok((NightView { report, state }, worst))
    }
}

/// A night after its last run.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct NightView {
    report: NightReport,
    #[serde(skip)]
    state: ReportState,
}

/// Whether the night's report was written.
#[derive(Debug)]
enum ReportState {
    /// The report was written to this file.
    Written(PathBuf),
    /// The report will be written when the remaining runs have finished, or at this time at the
    /// latest.
    Due(Timestamp),
    Failed,
}

impl View for NightView {
    fn print(&self, ui: Ui) {
        let headline = self.report.headline();
        match &self.state {
            ReportState::Written(path) => ui.info(&format!("{headline} — {}", path.display())),
            ReportState::Due(closes) => ui.info(&format!(
                "{headline}; the report will be written when the remaining runs finish, or at {} at the latest",
                show::format_time(*closes)
            )),
            ReportState::Failed => show::complain(&format!(
                "{headline}; the night's report could not be written"
            )),
        }
    }
}

/// A run and its night. The JSON contains only the run.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct RunAndNight<'a> {
    run: EndedRun<'a>,
    #[serde(skip)]
    night: NightView,
}

impl View for RunAndNight<'_> {
    fn print(&self, ui: Ui) {
        self.run.print(ui);
        self.night.print(ui);
    }
}

/// The output if no job is due. No night is opened, so no report is written.
#[derive(Debug, Serialize)]
struct NothingDue {
    night: Option<String>,
    why: String,
    runs: [(); 0],
}

impl NothingDue {
    fn of(project: &LoadedProject) -> Self {
        let why = match project.config.jobs.len() {
            0 => "this project has no jobs".to_owned(),
            jobs => format!(
                "no job is both enabled and able to start on its own ({} configured, see `runner config show`)",
                show::count(jobs as u64, "job")
            ),
        };
        Self { night: None, why, runs: [] }
    }
}

impl View for NothingDue {
    fn print(&self, ui: Ui) {
        let why = &self.why;
        ui.info(&format!("nothing is due: {why}; no night was opened and no report was written"));
    }
}
