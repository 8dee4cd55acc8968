//! Runs a host's tick in each fleet that the host has joined.
//!
//! ```text
//! settled claims ──deliver──> fleet        results for this home ──> runs that apply them
//! due runs ──offer──> fleet                settled results ──settle──> fleet
//! free slots ──claim──> copy of the project ──> run
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runner_engine::ids::RunId;
use runner_engine::outcome::{Class, Outcome};
use runner_engine::process_id::ProcessIdentity;
use runner_engine::publish::PublishLog as _;
use runner_engine::store::{
    Amounts, FleetNote, FleetRun, NewOccurrence, Origin, RunRow, RunState, Store, StoreError,
    budget_seconds,
};
use runner_engine::time::boot_time;
use runner_fleet::{
    Claim, ClaimRequest, Deliverable, Delivery, FleetError, FleetStore as _, Offer, Postgres,
    Release, Verdict,
};
use runner_jobs::kind::Asks;
use runner_jobs::report::fleet_usage::facts;
use serde_json::json;

use super::copies::Keep;
use super::membership::{self, Membership};
use super::notes::{ApplyNote, ClaimNote, ResultFile};
use super::{FleetStep, backoff, checkout, copies, defer, figures, source};
use crate::config::{self, Fleet};
use crate::env::Env;
use crate::project::LoadedProject;
use crate::spawn;
use crate::ui::Failure;

/// Maximum age of a note whose run is still reported to the fleet.
const MEMORY: SignedDuration = SignedDuration::from_hours(24 * 30);

/// Number of lost claims after which an occurrence is settled as lost.
const MOST_LOST: u32 = 3;

/// Time in milliseconds before a host may again claim an occurrence that it could not start.
const HOST_WAITS: i64 = 600_000;

pub fn step(
    home: &Env,
    store: &mut Store,
    me: &ProcessIdentity,
    waiting: &[FleetRun],
) -> Result<FleetStep, Failure> {
    let mut step = FleetStep::default();
    let fleets = config::load(&home.stack(None))?.fleets;
    let mut by_fleet: BTreeMap<String, Vec<FleetRun>> = BTreeMap::new();
    for run in waiting {
        let fleet = run.policy.fleet.as_ref().map_or_else(String::new, |it| it.name.clone());
        by_fleet.entry(fleet).or_default().push(run.clone());
    }
    let members = Membership::all(home)?;
    let names: Vec<String> = members.iter().map(|member| member.fleet.clone()).collect();
    for member in members {
        let due = by_fleet.remove(&member.fleet).unwrap_or_default();
        let fleet = member.fleet.clone();
        if let Some(why) = backoff::reason(home, &fleet) {
            // The fleet's due runs wait until the next attempt to connect.
            step.troubles.push(format!("fleet {fleet}: {why}"));
            continue;
        }
        let Some(settings) = fleets.get(&fleet) else {
            let why = format!("there is no [fleet.{fleet}] in the user's config.toml");
            defer(home, store, me, &due, &why)?;
            step.troubles.push(format!("fleet {fleet}: {why}"));
            continue;
        };
        let database = match membership::database(settings) {
            Ok(database) => database,
            Err(failure) => {
                let why = failure.message();
                defer(home, store, me, &due, &why)?;
                step.troubles.push(format!("fleet {fleet}: {why}"));
                continue;
            }
        };
        let mut host = Host { home, store, me, member, settings, database, step: &mut step };
        match host.work(&due) {
            Ok(()) => backoff::clear(home, &fleet)?,
            Err(Trouble::Own(failure)) => return Err(failure),
            Err(Trouble::Fleet(error)) => {
                let why = error.to_string();
                if error.is_transient() {
                    backoff::note(home, (&fleet, super::lease::lease(settings)), &why)?;
                }
                defer(home, host.store, me, &due, &why)?;
                step.troubles.push(format!("fleet {fleet}: {why}"));
            }
        }
    }
    for (_, due) in by_fleet {
        defer(home, store, me, &due, "this host has not joined it (runner fleet join NAME)")?;
    }
    let now = home.wall()?;
    step.silent = Some(names.iter().filter_map(|name| figures::silence(home, name, now)).collect());
    Ok(step)
}

/// An error that ends a host's tick in a fleet.
enum Trouble {
    /// An error on this host, which ends the whole tick.
    Own(Failure),
    /// A fleet database error.
    Fleet(FleetError),
}

impl From<FleetError> for Trouble {
    fn from(error: FleetError) -> Self {
        Self::Fleet(error)
    }
}

impl<T: Into<Failure>> From<T> for Trouble {
    fn from(failure: T) -> Self {
        Self::Own(failure.into())
    }
}

struct Host<'a> {
    home: &'a Env,
    store: &'a mut Store,
    me: &'a ProcessIdentity,
    member: Membership,
    settings: &'a Fleet,
    database: Postgres,
    step: &'a mut FleetStep,
}

impl Host<'_> {
    fn work(&mut self, due: &[FleetRun]) -> Result<(), Trouble> {
        self.database.check_format()?;
        if self.member.worker != self.member.worker_now() {
            // The host was restarted, so its old claims have no owner.
            self.member.worker = self.member.worker_now();
            self.database.join(&self.member.info(self.settings))?;
            self.member.save(self.home)?;
        }
        self.deliver_results()?;
        let now = self.now()?;
        let kept = copies::sweep(
            self.home,
            self.store,
            self.me,
            &self.member.fleet,
            (Keep::ForADay, now),
        )?;
        self.step.troubles.extend(kept);
        for result in self.database.deliveries(&self.member.host)? {
            self.receive(result)?;
        }
        self.report_ended_offers()?;
        for run in due.iter().filter(|run| !run.offered) {
            // A run that was just started to apply a result is no longer waiting.
            if matches!(self.store.run(&run.run)?.state, RunState::Queued { .. }) {
                self.offer(run)?;
            }
        }
        if !self.member.draining {
            self.claim()?;
        }
        let overview = self.database.check_in(&self.member.worker)?;
        figures::note(self.home, (&self.member, self.settings), overview, self.now()?)?;
        Ok(())
    }

    fn now(&self) -> Result<Timestamp, Failure> {
        self.home.wall()
    }

    fn trouble(&mut self, what: impl std::fmt::Display) {
        self.step.troubles.push(format!("fleet {}: {what}", self.member.fleet));
    }

    /// Offers a due run to the fleet. If its project cannot be offered, the run is deferred.
    fn offer(&mut self, run: &FleetRun) -> Result<(), Trouble> {
        let offer = match self.offer_of(run) {
            Ok(offer) => offer,
            Err(problem) => {
                let why = problem.to_string();
                defer(self.home, self.store, self.me, std::slice::from_ref(run), &why)?;
                return Ok(());
            }
        };
        self.database.offer(&offer)?;
        let now = self.now()?;
        self.store.note_fleet(&run.run, FleetNote::Offered, &self.member.fleet, now)?;
        Ok(())
    }

    fn offer_of(&mut self, run: &FleetRun) -> Result<Offer, Failure> {
        let project = self.store.project(&run.project)?;
        let project = project.ok_or_else(|| Failure::internal("its project is not known"))?;
        let here = LoadedProject::at(self.home, Some(&*self.store), &project.path)?;
        here.check_trusted(&run.job_name)?;
        let job = here.config.job(&run.job_name)?;
        let kind = &*job.spec.kind;
        let source = source::store(&mut self.database, &self.settings.remotes, &here, kind)?;
        // The hosts' clocks may differ, but all hosts share one budget per day, so the database's
        // clock determines the day.
        let now = self.database.now().map_err(membership::failure)?;
        let now = Timestamp::from_millisecond(now)
            .map_err(|error| Failure::internal(error.to_string()))?;
        let day = now.to_zoned(jiff::tz::TimeZone::UTC).date();
        let attempt = if run.attempt > 1 { format!(" #{}", run.attempt) } else { String::new() };
        let group = &run.policy.group;
        let grouped = group.name != runner_engine::policy::DEFAULT_GROUP;
        Ok(Offer {
            id: run.run.to_string(),
            project: run.project.to_string(),
            job: run.job_name.clone(),
            key: format!("{}{attempt}", run.key),
            home: self.member.host.clone(),
            due: run.due.as_millisecond(),
            group: grouped.then(|| (group.name.clone(), group.slots)),
            tags: run.policy.fleet.as_ref().map(|it| it.tags.clone()).unwrap_or_default(),
            levels: BTreeMap::from([(format!("day {day}"), self.settings.day)]),
            want: want(&job.spec),
            lease: i64::try_from(self.settings.lease.as_millis()).unwrap_or(i64::MAX),
            most_lost: MOST_LOST,
            source: json!(source),
        })
    }

    /// Claims occurrences while this host has free slots, and requests their runs. The runs start
    /// after the tick, so no further claim is made once a sixth of a lease has passed: making a
    /// copy may take half of a lease.
    fn claim(&mut self) -> Result<(), Trouble> {
        let since = self.now()?.saturating_sub(MEMORY).unwrap_or(Timestamp::UNIX_EPOCH);
        let live = self.store.unreported_for_fleet(FleetNote::Claimed, since)?.len();
        let most = self.settings.slots.saturating_sub(u32::try_from(live).unwrap_or(u32::MAX));
        let request = ClaimRequest {
            host: self.member.host.clone(),
            worker: self.member.worker.clone(),
            tags: self.settings.tags.clone(),
            most: 1,
            home: None,
        };
        let mut latest = Duration::MAX;
        for _ in 0..most {
            let asked = boot_time();
            if asked >= latest {
                break;
            }
            // The lease is counted from just before the request was sent.
            let (claims, declined) = self.database.claim(&request)?;
            if claims.is_empty() && declined.is_empty() {
                break;
            }
            for one in declined {
                tracing::info!(occurrence = one.occurrence, why = one.why, "not claimed");
            }
            for claim in claims {
                latest = latest.min(asked.saturating_add(claim_lease(&claim) / 6));
                self.start_or_release(claim, asked)?;
            }
        }
        Ok(())
    }

    /// Requests the run of a claim, or gives the claim back.
    fn start_or_release(&mut self, claim: Claim, asked: Duration) -> Result<(), Trouble> {
        let problem = match self.enter(&claim, asked) {
            Ok(run) => {
                self.step.start.extend(run);
                return Ok(());
            }
            Err(problem) => problem,
        };
        let why = problem.to_string();
        self.trouble(format!("{} was given back: {why}", claim.job));
        self.database.release(&Release {
            occurrence: claim.occurrence,
            fence: claim.fence,
            worker: self.member.worker.clone(),
            used: Amounts::default(),
            host_waits: HOST_WAITS,
            why,
        })?;
        Ok(())
    }

    /// Makes a copy of a claim's project, and records the claim with its fence. Returns the run to
    /// start, if there is one.
    fn enter(&mut self, claim: &Claim, asked: Duration) -> Result<Option<RunId>, Failure> {
        let now = self.now()?;
        let fleet = self.member.fleet.clone();
        let root = copies::make(self.home, (&fleet, claim), self.me)?;
        checkout::prepare(&mut self.database, self.settings, &root, claim, now)?;
        let here = LoadedProject::at(self.home, Some(&*self.store), &root)?;
        here.config.job(&claim.job)?;
        here.register(self.store, now)?;
        let job = self.store.job(&here.id, &claim.job)?;
        let lease = u64::try_from(claim_lease(claim).as_millis()).unwrap_or(u64::MAX);
        let note = ClaimNote {
            fleet,
            occurrence: claim.occurrence.clone(),
            fence: claim.fence,
            worker: self.member.worker.clone(),
            lease,
            until: u64::try_from(asked.as_millis()).unwrap_or(u64::MAX).saturating_add(lease),
        };
        let new = NewOccurrence {
            due: Timestamp::from_millisecond(claim.due).unwrap_or(now),
            origin: Origin::Manual,
            ..NewOccurrence::manual(
                job.id,
                format!("fleet {} {}", claim.occurrence, claim.fence),
                now,
            )
        };
        let note = json!(note).to_string();
        Ok(self.store.enter_for_fleet(&new, self.me, &note, now)?)
    }

    /// Delivers the results of the claims whose runs are settled.
    fn deliver_results(&mut self) -> Result<(), Trouble> {
        let now = self.now()?;
        let since = now.saturating_sub(MEMORY).unwrap_or(Timestamp::UNIX_EPOCH);
        for (run, text) in self.store.unreported_for_fleet(FleetNote::Claimed, since)? {
            let Ok(note) = serde_json::from_str::<ClaimNote>(&text) else { continue };
            let row = self.store.run(&run)?;
            let Some(outcome) = row.outcome().cloned() else { continue };
            if note.fleet != self.member.fleet {
                continue;
            }
            let report = match &outcome {
                // The usage of a dead run is unknown, so the lease is left to expire and the whole
                // reservation is charged.
                Outcome::Lost { .. } => "lost".to_owned(),
                Outcome::Deferred { until, why } => {
                    self.give_back(&run, &note, until.duration_since(now), why)?
                }
                outcome => self.deliver(&run, &note, outcome)?,
            };
            self.store.note_fleet(&run, FleetNote::Reported, &report, now)?;
        }
        Ok(())
    }

    fn give_back(
        &mut self,
        run: &RunId,
        note: &ClaimNote,
        wait: SignedDuration,
        why: &str,
    ) -> Result<String, Trouble> {
        let release = Release {
            occurrence: note.occurrence.clone(),
            fence: note.fence,
            worker: note.worker.clone(),
            used: self.used(run)?,
            host_waits: i64::try_from(wait.as_millis()).unwrap_or(HOST_WAITS).max(0),
            why: why.to_owned(),
        };
        match self.database.release(&release) {
            Ok(()) => Ok("given back".to_owned()),
            Err(FleetError::Stale(stale)) => Ok(stale.to_string()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the amounts that a settled run used. A run that was not admitted used nothing.
    fn used(&self, run: &RunId) -> Result<Amounts, Trouble> {
        let row = self.store.run(run)?;
        let seconds = row.started().zip(row.finished());
        let seconds = seconds.map_or(0, |(started, finished)| budget_seconds(started, finished));
        Ok(Amounts { seconds, ..self.store.spent_by(run)? })
    }

    fn deliver(
        &mut self,
        run: &RunId,
        note: &ClaimNote,
        outcome: &Outcome,
    ) -> Result<String, Trouble> {
        let files = match self.result_files(run) {
            Ok(files) => files,
            Err(Trouble::Own(problem)) => {
                // Without its files, the result is useless, so the lease is left to expire.
                self.trouble(format!("run {run} cannot be delivered: {problem}"));
                return Ok(problem.to_string());
            }
            Err(other) => return Err(other),
        };
        let used = self.used(run)?;
        let mut summary = self.store.run(run)?.summary;
        summary.facts.insert(facts::USED.to_owned(), json!(used));
        let delivery = Delivery {
            occurrence: note.occurrence.clone(),
            fence: note.fence,
            worker: note.worker.clone(),
            outcome: outcome.clone(),
            used,
            summary: json!(summary),
            manifest: json!(files),
        };
        Ok(match self.database.deliver(&delivery) {
            Ok(Verdict::Accepted | Verdict::Repeated) => "delivered".to_owned(),
            Ok(Verdict::Late) => {
                self.trouble(format!(
                    "the claim of run {run} was lost; its result is kept but not applied"
                ));
                "late".to_owned()
            }
            Err(FleetError::Stale(stale)) => stale.to_string(),
            Err(error) => return Err(error.into()),
        })
    }

    /// Stores in the fleet's database the files that a run published in its copy of the project.
    fn result_files(&mut self, run: &RunId) -> Result<Vec<ResultFile>, Trouble> {
        let row = self.store.run(run)?;
        let project = self.store.project(&row.project)?;
        let project = project.ok_or_else(|| Failure::internal("its copy is not known"))?;
        let now = self.now()?;
        let recorded = self.store.publish_log(None, now).manifest(run);
        let recorded = recorded.map_err(|error| Failure::internal(error.to_string()))?;
        let mut files = Vec::new();
        for entry in recorded.into_iter().flat_map(|recorded| recorded.manifest.entries) {
            let path = entry.target.as_str().to_owned();
            if let Some(after) = entry.after {
                let most = runner_fleet::LARGEST_CONTENT;
                let content = runner_engine::files::read_in(&project.path, &path, most)
                    .map_err(|error| Failure::unreadable(&project.path.join(&path), error))?;
                if self.database.put_blob(&content)? != after {
                    return Err(Failure::data(format!("{path} was changed after the run")).into());
                }
            }
            files.push(ResultFile { path, before: entry.before, after: entry.after });
        }
        Ok(files)
    }

    /// Starts the waiting run, which applies the result. Settles only the result if the run is
    /// already settled, and settles both the run and the result if there is nothing to publish.
    fn receive(&mut self, result: Deliverable) -> Result<(), Trouble> {
        let Ok(run) = result.occurrence.parse::<RunId>() else { return Ok(()) };
        let now = self.now()?;
        let row = match self.store.run(&run).and_then(|row| self.attempt(row)) {
            Ok(row) => row,
            Err(StoreError::NotFound { .. }) => {
                // This host's database was lost or was restored from a backup.
                self.trouble(format!(
                    "a result arrived for run {run}, which this host does not know"
                ));
                let outcome = Outcome::Lost { why: "its home host lost the run".to_owned() };
                self.settle(&result, &outcome)?;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let run = row.id.clone();
        match &row.state {
            RunState::Queued { ready_at, .. } if *ready_at > now => return Ok(()),
            RunState::Queued { .. } => {}
            RunState::Settled { outcome, .. } => {
                self.settle(&result, outcome)?;
                let report = outcome.to_string();
                self.store.note_fleet(&run, FleetNote::Reported, &report, now)?;
                return Ok(());
            }
            RunState::Requested { .. } | RunState::Running { .. } => return Ok(()),
        }
        let files: Vec<ResultFile> =
            serde_json::from_value(result.manifest.clone()).unwrap_or_default();
        let mut note = ApplyNote {
            fleet: self.member.fleet.clone(),
            occurrence: result.occurrence.clone(),
            fence: result.fence,
            home: self.member.host.clone(),
            host: result.host.clone(),
            outcome: result.outcome.clone(),
            summary: serde_json::from_value(result.summary.clone()).unwrap_or_default(),
            files,
        };
        self.describe_work(&mut note);
        let text = json!(note).to_string();
        if !self.store.start_for_fleet(&run, self.me, (FleetNote::Applies, &text), now)? {
            return Ok(());
        }
        if !note.files.is_empty() || note.outcome.published() {
            self.step.start.push(run);
            return Ok(());
        }
        // There is nothing to publish.
        self.store.settle(&run, None, &note.outcome, &note.summary, now)?;
        spawn::mark(self.home, self.store, &run)?;
        self.settle(&result, &note.outcome)?;
        self.store.note_fleet(&run, FleetNote::Reported, &note.outcome.to_string(), now)?;
        Ok(())
    }

    /// Adds the host that did the work, and the fleet's limits, to the summary of a result.
    fn describe_work(&self, note: &mut ApplyNote) {
        let line = note.work_line();
        let host = note.host.as_deref().unwrap_or("no host");
        let limit = json!(self.settings.day);
        note.summary.lines.push(line);
        for (name, value) in
            [(facts::FLEET, json!(note.fleet)), (facts::HOST, json!(host)), (facts::LIMIT, limit)]
        {
            note.summary.facts.insert(name.to_owned(), value);
        }
    }

    /// Returns the attempt at an offered run that applies the result. If an earlier attempt ended
    /// before it could apply the result, returns the next attempt, because the budget usage of the
    /// work is already recorded.
    fn attempt(&self, offered: RunRow) -> Result<RunRow, StoreError> {
        let mut row = offered;
        if self.store.fleet_note(&row.id, FleetNote::Applies)?.is_none() {
            return Ok(row);
        }
        loop {
            let kept = match row.outcome() {
                Some(Outcome::Deferred { .. } | Outcome::Lost { .. }) => true,
                Some(Outcome::Failed { class, .. }) => *class == Class::Environment,
                _ => false,
            };
            let next = if kept { self.store.next_run_of(&row)? } else { None };
            match next {
                Some(next) if self.store.fleet_note(&next.id, FleetNote::Offered)?.is_none() => {
                    row = next;
                }
                _ => return Ok(row),
            }
        }
    }

    fn settle(&mut self, result: &Deliverable, outcome: &Outcome) -> Result<(), Trouble> {
        let home = self.member.host.clone();
        match self.database.settle(&result.occurrence, result.fence, &home, outcome) {
            Ok(()) => Ok(()),
            Err(FleetError::Stale(stale)) => {
                self.trouble(stale);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Cancels the offers whose runs have ended on this host.
    fn report_ended_offers(&mut self) -> Result<(), Trouble> {
        let now = self.now()?;
        let since = now.saturating_sub(MEMORY).unwrap_or(Timestamp::UNIX_EPOCH);
        for (run, fleet) in self.store.unreported_for_fleet(FleetNote::Offered, since)? {
            if fleet != self.member.fleet {
                continue;
            }
            let Some(outcome) = self.store.run(&run)?.outcome().cloned() else { continue };
            let why = outcome.why().unwrap_or("it ended at home").to_owned();
            let home = self.member.host.clone();
            self.database.cancel(run.as_str(), &home, &why)?;
            self.store.note_fleet(&run, FleetNote::Reported, &why, now)?;
        }
        Ok(())
    }
}

/// Returns the length of a claim's lease.
pub fn claim_lease(claim: &Claim) -> Duration {
    Duration::from_millis(u64::try_from(claim.lease).unwrap_or(0))
}

/// Returns the amounts that a claim on a job reserves: the job's own limits, or otherwise the
/// amounts that a run on one host would reserve.
fn want(spec: &runner_jobs::JobSpec) -> Amounts {
    let budget = spec.budget;
    let ask = spec.kind.asks() != Asks::Never;
    let pays = ask && spec.backend != "builtin";
    let or =
        |limit: Option<u64>, most: u64, used: bool| if used { limit.unwrap_or(most) } else { 0 };
    let most = runner_engine::store::DEFAULT_AMOUNTS;
    Amounts {
        calls: or(budget.calls, most.calls, ask),
        tokens: or(budget.tokens, most.tokens, pays),
        micros: or(budget.micros, most.micros, pays),
        seconds: or(budget.seconds, most.seconds, true),
        ideas: or(budget.ideas, most.ideas, ask),
    }
}
