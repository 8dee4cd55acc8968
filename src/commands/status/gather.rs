//! Gathers the status from the database and the projects' files. A project's settings are parsed
//! again only if its files have changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use runner_engine::ids::ProjectId;
use runner_engine::store::{Amounts, Budget, DAY, LastNight, NIGHT, Project, Store, StoreError};
use runner_engine::tick::civil_date;
use runner_engine::zones;

use super::files::Files;
use super::model::{BudgetStatus, DaemonState, Pause, ProjectStatus, Status, TickState, VERSION};
use super::overview::StoreOverview;
use super::project_scan;
use crate::commands::Cli;
use crate::commands::pause::limited;
use crate::daemon::client::Client;
use crate::env::Env;
use crate::fleet::figures;
use crate::project::{self, LoadedProject, StampBase};
use crate::setup::SchedulerKind;
use crate::setup::record::SetupRecord;
use crate::ui::{Failure, show};

/// The status reports missing ticks if the last tick is older than this. Host timers tick every
/// 15 minutes.
const SILENCE: SignedDuration = SignedDuration::from_hours(1);

/// Collects the status of all projects, or of one project if the current folder is inside it.
pub(super) fn gather(cli: &Cli<'_>) -> Result<Status, Failure> {
    let home = cli.env;
    match project::find(cli.here) {
        Ok(root) => gather_at(home, Some(root)),
        // The database may contain the project even if its `runner.toml` is missing.
        Err(failure) if cli.folder_is_named => match home.store_to_read()? {
            Some(store) => gather_at(home, Some(project::kept(home, &store, cli.here)?.row.path)),
            None => Err(failure),
        },
        Err(_) => gather_at(home, None),
    }
}

/// Collects the status of the project at `root`, or of all projects.
pub(super) fn gather_at(home: &Env, root: Option<PathBuf>) -> Result<Status, Failure> {
    let now = home.wall()?;
    let daemon = Client::connect(home).map(|mut daemon| match daemon.status() {
        Ok(status) => DaemonState::Answers(status),
        Err(failure) => DaemonState::Silent { trouble: failure.to_string() },
    });
    let mut status = Status {
        schema_version: VERSION,
        store: home.store_path().display().to_string(),
        paused: None,
        ticks: TickState { last: home.last_tick(), trouble: None },
        sandbox: crate::doctor::sandbox::describe_cached(home).ok(),
        daemon,
        live_runs: 0,
        fleets: figures::all(home),
        now,
        projects: Vec::new(),
    };
    let Some(store) = home.store_to_read()? else {
        status.projects.extend(
            root.map(|root| unregistered(&root, LoadedProject::at(home, None, &root).err())),
        );
        return Ok(status);
    };
    let shown: Vec<Project> = match &root {
        None => store.projects()?,
        Some(root) => match project::kept(home, &store, root) {
            Ok(kept) => vec![kept.row],
            Err(failure) => {
                let mistake = LoadedProject::at(home, Some(&store), root)
                    .and_then(|here| here.check(&store))
                    .err();
                // A project that was never registered is not a problem, so only a mistake in its
                // files is reported.
                drop(failure);
                status.projects.push(unregistered(root, mistake));
                Vec::new()
            }
        },
    };
    status.paused = store.paused_until(now)?.map(|until| Pause {
        job: None,
        until: limited(until),
        zone: None,
    });
    let (mut all, files) = GatheredStatus::of(home, &store, &shown, now)?;
    status.live_runs = all.asked.live.len();
    if !matches!(status.daemon, Some(DaemonState::Answers(_))) && store.has_clocks()? {
        status.ticks.trouble = silence(status.ticks.last, timer_age(home, now)?, now);
    }
    for (known, files) in shown.iter().zip(files) {
        let one = all.one(known, files)?;
        status.projects.push(one);
    }
    Ok(status)
}

/// Returns the time since the host's timer setup last changed, or `None` if no timer is set up.
fn timer_age(home: &Env, now: Timestamp) -> Result<Option<SignedDuration>, Failure> {
    let path = home.setup_note();
    let record = SetupRecord::read(&path)?;
    if record.hosts.keys().all(|kind| *kind == SchedulerKind::Manual) {
        return Ok(None);
    }
    let changed = std::fs::metadata(&path).and_then(|data| data.modified());
    let changed = changed.ok().and_then(|at| Timestamp::try_from(at).ok());
    Ok(Some(changed.map_or(SignedDuration::MAX, |at| now.duration_since(at))))
}

/// Describes the problem if no tick has run within [`SILENCE`], unless the host's timer was set up
/// within that time. `timer` is the time since then, or `None` if there is no timer.
fn silence(
    last: Option<Timestamp>,
    timer: Option<SignedDuration>,
    now: Timestamp,
) -> Option<String> {
    if timer.is_some_and(|age| age <= SILENCE) {
        return None;
    }
    let since = match last {
        Some(last) if now.duration_since(last) <= SILENCE => return None,
        Some(last) => format!("`runner tick` has not run since {}", show::format_time(last)),
        None => "`runner tick` has never run".to_owned(),
    };
    let fix = match timer {
        Some(_) => "the timer does not start ticks: `runner doctor` shows why",
        None => "set up a timer with `runner setup --apply`, or run `runner daemon`",
    };
    Some(format!("{since}, and no daemon answers, so no job starts on schedule\n  fix: {fix}"))
}

/// Creates the status of a project that is not in the database.
fn unregistered(root: &Path, mistake: Option<Failure>) -> ProjectStatus {
    ProjectStatus {
        id: project::id_at(root).map(|id| id.to_string()),
        path: root.display().to_string(),
        standing: "new",
        zone: zones::system_name(),
        trouble: mistake.map(|failure| failure.to_string()),
        ..ProjectStatus::default()
    }
}

/// The data read from the database for all shown projects at once.
pub(super) struct GatheredStatus<'a> {
    pub(super) home: &'a Env,
    pub(super) store: &'a Store,
    pub(super) now: Timestamp,
    pub(super) held: Option<Timestamp>,
    pub(super) dates: Dates,
    pub(super) nights: BTreeMap<ProjectId, LastNight>,
    pub(super) days: LevelUsage,
    pub(super) open_nights: LevelUsage,
    pub(super) asked: StoreOverview,
    /// Whether only one project is shown.
    pub(super) alone: bool,
}

impl<'a> GatheredStatus<'a> {
    /// Reads the data for all shown projects, and the state of their files in the same order.
    fn of(
        home: &'a Env,
        store: &'a Store,
        shown: &[Project],
        now: Timestamp,
    ) -> Result<(Self, Vec<Files>), Failure> {
        let only = match shown {
            [one] => Some(&one.id),
            _ => None,
        };
        let nights = store.last_nights()?;
        let seen = project_scan::ScanInput {
            shown,
            kept: &store.projections(only)?,
            nights: &nights,
            stamps: &StampBase::of(home),
        };
        let (seen, asked) = seen.scan_all(|| StoreOverview::of(store, only, now));
        let asked = asked?;
        let mut files = Vec::with_capacity(shown.len());
        let mut day_keys = Vec::new();
        let mut dates = Dates { now, known: BTreeMap::new() };
        for (known, seen) in shown.iter().zip(seen) {
            let found = Files::of(home, store, known, seen)?;
            if let Some(projection) = &found.projection {
                day_keys.push(format!("{} {}", known.id, dates.of(&projection.zone)));
            }
            files.push(found);
        }
        let night_keys: Vec<String> = nights
            .values()
            .filter(|last| last.night.closed.is_none())
            .map(|last| last.night.id.0.to_string())
            .collect();
        let all = Self {
            home,
            store,
            now,
            held: store.paused_until(now)?,
            dates,
            nights,
            days: LevelUsage::of(store, DAY, &day_keys, now)?,
            open_nights: LevelUsage::of(store, NIGHT, &night_keys, now)?,
            asked,
            alone: shown.len() == 1,
        };
        Ok((all, files))
    }
}

/// The usage and the granted amounts of the budgets of one level, by key.
pub(super) struct LevelUsage {
    used: BTreeMap<String, Amounts>,
    granted: BTreeMap<String, Amounts>,
}

impl LevelUsage {
    fn of(store: &Store, level: &str, keys: &[String], now: Timestamp) -> Result<Self, StoreError> {
        let (used, granted) = (store.budget_usage(level, keys)?, store.granted(level, keys, now)?);
        Ok(Self { used, granted })
    }

    /// Returns the state of the budget with this key.
    pub(super) fn status(&self, key: &str, name: String, cap: Budget) -> BudgetStatus {
        let amounts = |of: &BTreeMap<String, Amounts>| of.get(key).copied().unwrap_or_default();
        BudgetStatus::of(name, cap, amounts(&self.granted), amounts(&self.used))
    }
}

/// The current civil dates, computed once for each time zone.
pub(super) struct Dates {
    now: Timestamp,
    known: BTreeMap<String, String>,
}

impl Dates {
    pub(super) fn of(&mut self, zone: &str) -> String {
        if let Some(date) = self.known.get(zone) {
            return date.clone();
        }
        let date = civil_date(self.now, zone);
        self.known.insert(zone.to_owned(), date.clone());
        date
    }
}
