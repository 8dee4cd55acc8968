//! Gathers the status: from the database with one query for all projects, from the projects' files
//! with `stat`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use runner_engine::admission;
use runner_engine::files::{SMALL, read_host};
use runner_engine::ids::ProjectId;
use runner_engine::locks::{LockHolder, job_lock_path};
use runner_engine::outcome::Outcome;
use runner_engine::schedule::Trigger;
use runner_engine::store::{
    AlertRow, AlertSelection, Amounts, Budget, JobPause, JobRow, MissedStretch, Project, RunFilter,
    RunRow, RunState, Store,
};
use runner_engine::tick::civil_date;
use runner_jobs::report;

use super::super::pause::limited;
use super::super::runs::state_name;
use super::files::Files;
use super::model::{
    AlertJson, BudgetJson, BudgetsJson, DaemonJson, LiveJson, LockJson, MarkJson, MissedJson,
    NextJson, NightJson, PausedJson, ProjectJson, StarvedJson, StatusJson, StoppedJson, TicksJson,
    VERSION,
};
use super::project_scan;
use super::queue;
use crate::cli::{Failure, show};
use crate::daemon::client::Client;
use crate::env::Env;
use crate::project::projection::Projection;
use crate::project::{self, LoadedProject, StampBase};

/// Time without a tick after which the status reports it. Host timers tick every quarter of an
/// hour.
const SILENCE: SignedDuration = SignedDuration::from_hours(1);
/// Number of consecutive scheduled times, each replaced by the next, after which a job counts as
/// starved.
const STARVED: u32 = 3;
/// Number of latest runs that are searched for the failure of a failing job.
const LOOKED_AT: u32 = 20;

/// Collects the status of all projects, or of one project if `here` is inside it.
pub(super) fn gather(home: &Env, here: &Path, asked: bool) -> Result<StatusJson, Failure> {
    let now = home.wall()?;
    let daemon = Client::connect(home).map(|mut daemon| match daemon.status() {
        Ok(status) => DaemonJson::Answers(status),
        Err(failure) => DaemonJson::Silent { trouble: failure.to_string() },
    });
    let mut status = StatusJson {
        schema_version: VERSION,
        store: home.store_path().display().to_string(),
        paused: None,
        ticks: TicksJson { last: home.last_tick(), trouble: None },
        sandbox: crate::doctor::sandbox::at_a_look(home).ok(),
        daemon,
        live_runs: 0,
        projects: Vec::new(),
    };
    let root = match project::find(here) {
        Ok(root) => Some(root),
        // The project's file may be gone while the database still knows the project.
        Err(failure) if asked => match home.store_to_read()? {
            Some(store) => Some(project::kept(home, &store, here)?.row.path),
            None => return Err(failure),
        },
        Err(_) => None,
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
                // A project that has never run is not a problem, so this failure is not reported.
                drop(failure);
                status.projects.push(unregistered(root, mistake));
                Vec::new()
            }
        },
    };
    status.paused = store.paused_until(now)?.map(|until| PausedJson {
        job: None,
        until: limited(until),
        zone: None,
    });
    let (mut all, files) = GatheredStatus::of(home, &store, &shown, now)?;
    status.live_runs = all.asked.live.len();
    if !matches!(status.daemon, Some(DaemonJson::Answers(_))) && store.has_clocks()? {
        status.ticks.trouble = silence(status.ticks.last, now);
    }
    for (known, files) in shown.iter().zip(files) {
        let one = all.one(known, files, shown.len() == 1)?;
        status.projects.push(one);
    }
    Ok(status)
}

fn silence(last: Option<Timestamp>, now: Timestamp) -> Option<String> {
    let since = match last {
        Some(last) if now.duration_since(last) <= SILENCE => return None,
        Some(last) => format!("nothing has ticked since {}", show::format_time(last)),
        None => "nothing has ever ticked".to_owned(),
    };
    Some(format!(
        "{since} and no daemon answers, so no job starts on schedule: set up a timer with `runner setup --apply`, or run `runner daemon`"
    ))
}

/// Creates the status of a project that the database does not know.
fn unregistered(root: &Path, mistake: Option<Failure>) -> ProjectJson {
    ProjectJson {
        id: project::id_at(root).map(|id| id.to_string()),
        path: root.display().to_string(),
        standing: "new",
        zone: TimeZone::system().iana_name().unwrap_or("UTC").to_owned(),
        trouble: mistake.map(|failure| failure.to_string()),
        last_night: None,
        next: None,
        failmarks: Vec::new(),
        missed_this_week: Vec::new(),
        live: Vec::new(),
        locks: Vec::new(),
        queued: queue::QueuedJson { count: 0, next: Vec::new() },
        paused: Vec::new(),
        stopped: Vec::new(),
        starved: Vec::new(),
        alerts: Vec::new(),
        budget: BudgetsJson {
            day: BudgetJson::of(String::new(), Budget::default(), Amounts::default()),
            night: None,
        },
    }
}

/// Data that the database returns for many projects while their folders are scanned.
struct StoreOverview {
    next: BTreeMap<ProjectId, runner_engine::store::NextDue>,
    missed: BTreeMap<ProjectId, Vec<MissedStretch>>,
    pauses: BTreeMap<ProjectId, Vec<JobPause>>,
    stopped: BTreeMap<ProjectId, Vec<StoppedJson>>,
    /// Jobs whose last attempt failed and was not acknowledged.
    failing: BTreeMap<ProjectId, Vec<JobRow>>,
    queues: BTreeSet<ProjectId>,
    live: Vec<RunRow>,
    alerts: Vec<AlertRow>,
    undelivered: Vec<(ProjectId, String, u32, String)>,
}

/// The data that was read from the database for all projects at once.
struct GatheredStatus<'a> {
    home: &'a Env,
    store: &'a Store,
    now: Timestamp,
    held: Option<Timestamp>,
    dates: Dates,
    nights: BTreeMap<ProjectId, runner_engine::store::LastNight>,
    days: BTreeMap<String, Amounts>,
    open_nights: BTreeMap<String, Amounts>,
    asked: StoreOverview,
}

impl StoreOverview {
    fn of(store: &Store, now: Timestamp) -> Result<Self, Failure> {
        let week = now.saturating_sub(SignedDuration::from_hours(7 * 24)).unwrap_or(now);
        let mut missed: BTreeMap<ProjectId, Vec<MissedStretch>> = BTreeMap::new();
        for stretch in store.all_missed_since(week)? {
            missed.entry(stretch.project.clone()).or_default().push(stretch);
        }
        let mut pauses: BTreeMap<ProjectId, Vec<JobPause>> = BTreeMap::new();
        for pause in store.own_pauses(now)? {
            pauses.entry(pause.project.clone()).or_default().push(pause);
        }
        let mut stopped: BTreeMap<ProjectId, Vec<StoppedJson>> = BTreeMap::new();
        let mut failing: BTreeMap<ProjectId, Vec<JobRow>> = BTreeMap::new();
        for job in store.failing_jobs()? {
            let streak = store.streak(job)?;
            if streak.failures == 0 {
                continue;
            }
            let job = store.job_by_id(job)?;
            // Jobs that no file contains any more, and jobs of manual commands, are excluded.
            if job.enabled && !job.name.contains(':') {
                let known = failing.entry(job.project.clone()).or_default();
                known.push(job.clone());
            }
            if !admission::stopped(streak) {
                continue;
            }
            if job.enabled && job.schedule.trigger != Trigger::Manual {
                stopped
                    .entry(job.project)
                    .or_default()
                    .push(StoppedJson { job: job.name, failures_in_a_row: streak.failures });
            }
        }
        Ok(Self {
            next: store.next_due(now)?,
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

impl<'a> GatheredStatus<'a> {
    /// Reads the data of all shown projects, and the state of their files in the same order.
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
        let (seen, asked) = seen.look_at_all(|| StoreOverview::of(store, now));
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
            days: store.budget_usage("day", &day_keys)?,
            open_nights: store.budget_usage("night", &night_keys)?,
            asked,
        };
        Ok((all, files))
    }

    fn one(&mut self, known: &Project, files: Files, alone: bool) -> Result<ProjectJson, Failure> {
        let id = &known.id;
        let projection = files.projection.as_ref();
        let zone = projection.map_or_else(|| "UTC".to_owned(), |it| it.zone.clone());
        let budget = self.budget(id, projection);
        let mut troubles: Vec<String> = files.trouble.iter().cloned().collect();
        let last_night = self.last_night(known, files.report, &mut troubles)?;
        for (_, channel, count, said) in self.asked.undelivered.iter().filter(|one| one.0 == *id) {
            troubles.push(format!(
                "{} did not arrive through {channel}: {said}; fix: runner alerts test {channel}",
                show::count(u64::from(*count), "alert")
            ));
        }
        let live: Vec<&RunRow> = self.asked.live.iter().filter(|row| row.project == *id).collect();
        let mut starved = Vec::new();
        for job in projection.map_or(&[][..], |it| &it.replacing) {
            let replaced_in_a_row = self.store.replaced_in_a_row(id, job)?;
            if replaced_in_a_row >= STARVED {
                starved.push(StarvedJson { job: job.clone(), replaced_in_a_row });
            }
        }
        let queued = match self.asked.queues.contains(id) {
            false => queue::QueuedJson { count: 0, next: Vec::new() },
            true => {
                let jobs = self.store.jobs(id)?;
                queue::queued(self.store, known, &jobs, &self.asked.live, self.now)?
            }
        };
        let locks = match alone || !live.is_empty() {
            true => locks(&self.home.state, id),
            false => Vec::new(),
        };
        let marks = files.marks;
        let unmarked = self.unmarked(id, &marks)?;
        let missed = self.asked.missed.get(id).map_or(&[][..], Vec::as_slice);
        let pauses = self.asked.pauses.get(id).map_or(&[][..], Vec::as_slice);
        let stopped = self.asked.stopped.get(id).map_or(&[][..], Vec::as_slice);
        Ok(ProjectJson {
            id: Some(id.to_string()),
            path: known.path.display().to_string(),
            standing: files.standing,
            trouble: (!troubles.is_empty()).then(|| troubles.join("\n")),
            last_night,
            next: self.asked.next.get(id).map(|next| NextJson {
                job: next.job.clone(),
                at: next.at,
                zone: projection.map_or("UTC", |it| it.zone_of(&next.job)).to_owned(),
            }),
            failmarks: marks
                .into_iter()
                .map(|mark| MarkJson {
                    job: mark.job,
                    at: mark.at,
                    class: mark.class,
                    message: mark.message,
                    hint: mark.hint,
                })
                .chain(unmarked)
                .collect(),
            missed_this_week: missed.iter().filter_map(stretch).collect(),
            live: live.into_iter().map(live_json).collect(),
            locks,
            queued,
            // A pause that lasts longer than the pause of all jobs is the job's own.
            paused: pauses
                .iter()
                .filter(|pause| self.held.is_none_or(|all| pause.until > all))
                .map(|pause| PausedJson {
                    job: Some(pause.job.clone()),
                    until: limited(pause.until),
                    zone: Some(pause.zone.clone()),
                })
                .collect(),
            stopped: stopped
                .iter()
                .map(|it| StoppedJson {
                    job: it.job.clone(),
                    failures_in_a_row: it.failures_in_a_row,
                })
                .collect(),
            starved,
            alerts: self
                .asked
                .alerts
                .iter()
                .filter(|alert| alert.project == *id)
                .map(|alert| AlertJson {
                    id: alert.id.to_string(),
                    job: alert.job_name.clone(),
                    kind: alert.kind.as_str(),
                    since: alert.raised,
                    count: alert.count,
                    silenced: alert.silenced.is_some(),
                })
                .collect(),
            budget,
            zone,
        })
    }

    /// Returns failures without a failure marker, which could not be written or which somebody
    /// removed.
    fn unmarked(
        &self,
        project: &ProjectId,
        marks: &[runner_jobs::failmark::Failmark],
    ) -> Result<Vec<MarkJson>, Failure> {
        let mut found = Vec::new();
        for job in self.asked.failing.get(project).map_or(&[][..], Vec::as_slice) {
            if marks.iter().any(|mark| mark.job == job.name) {
                continue;
            }
            let runs = self.store.runs(&RunFilter {
                job: Some(job.id),
                limit: LOOKED_AT,
                ..RunFilter::default()
            })?;
            let failed = runs.iter().find_map(|row| match row.outcome() {
                Some(
                    it @ (Outcome::Failed { .. } | Outcome::TimedOut { .. } | Outcome::Lost { .. }),
                ) => Some((row, it)),
                _ => None,
            });
            let Some((row, outcome)) = failed else {
                continue;
            };
            found.push(MarkJson {
                job: job.name.clone(),
                at: row.finished().unwrap_or(row.requested),
                class: outcome
                    .class()
                    .map_or_else(|| outcome.as_str().to_owned(), |it| it.as_str().to_owned()),
                message: format!(
                    "{} (it has no failmark)",
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
        report: Option<(PathBuf, bool)>,
        troubles: &mut Vec<String>,
    ) -> Result<Option<NightJson>, Failure> {
        let (Some(last), Some((path, there))) = (self.nights.get(&known.id), report) else {
            return Ok(None);
        };
        let night = &last.night;
        if night.closed.is_some() && !there {
            troubles.push(format!(
                "the last night, {}, has no report; fix: runner report --night {0}",
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
        Ok(Some(NightJson {
            name: night.name.clone(),
            headline,
            worst,
            closed: night.closed.is_some(),
            report: there.then(|| path.display().to_string()),
        }))
    }

    fn budget(&mut self, id: &ProjectId, projection: Option<&Projection>) -> BudgetsJson {
        let none = Budget::default();
        let (day, night) = projection.map_or((none, none), |it| (it.day, it.night));
        let zone = projection.map_or("UTC", |it| it.zone.as_str());
        let date = self.dates.of(zone);
        let used = self.days.get(&format!("{id} {date}")).copied();
        let open = self.nights.get(id).map(|last| &last.night);
        let open = open.filter(|night| night.closed.is_none());
        BudgetsJson {
            day: BudgetJson::of(date, day, used.unwrap_or_default()),
            night: open.map(|open| {
                let used = self.open_nights.get(&open.id.0.to_string()).copied();
                BudgetJson::of(open.name.clone(), night, used.unwrap_or_default())
            }),
        }
    }
}

/// The current civil date in each time zone, computed once for each zone.
struct Dates {
    now: Timestamp,
    known: BTreeMap<String, String>,
}

impl Dates {
    fn of(&mut self, zone: &str) -> String {
        if let Some(date) = self.known.get(zone) {
            return date.clone();
        }
        let date = civil_date(self.now, zone);
        self.known.insert(zone.to_owned(), date.clone());
        date
    }
}

fn stretch(found: &MissedStretch) -> Option<MissedJson> {
    let Outcome::Missed { first, last, count, why } = &found.outcome else {
        return None;
    };
    Some(MissedJson {
        job: found.job.clone(),
        first: *first,
        last: *last,
        count: *count,
        why: why.clone(),
        zone: found.zone.clone(),
    })
}

fn live_json(row: &RunRow) -> LiveJson {
    LiveJson {
        run: row.id.to_string(),
        state: match row.owner() {
            Some(owner) if matches!(row.state, RunState::Running { .. }) && !owner.is_alive() => {
                "running, but its process is gone; the next tick settles it".to_owned()
            }
            _ => state_name(row).to_owned(),
        },
        since: row.started().unwrap_or(row.requested),
        job: row.job_name.clone(),
    }
}

/// Lists the deciding locks of a project that a living process holds, by job.
fn locks(state: &Path, project: &ProjectId) -> Vec<LockJson> {
    let folder = job_lock_path(state, project, "any");
    let folder = folder.parent().unwrap_or(state);
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .iter()
        .filter_map(|path| {
            let holder: LockHolder = serde_json::from_slice(&read_host(path, SMALL).ok()?).ok()?;
            holder.owner.is_alive().then(|| LockJson {
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
