//! Carries out the daemon's effects on the loop's thread.
//!
//! Most effects are short, but killing a process tree may take seconds. The daily maintenance runs
//! on its own thread. This module must never decide which effects to carry out.

use runner_text::counted;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::thread::JoinHandle;

use runner_engine::ids::RunId;
use runner_engine::outcome::{Class, Exit, Outcome};
use runner_engine::process::tree;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::{Event as Row, JobRow, LOG_CEILING, RunRow, RunState, Store, Task};
use runner_engine::tick::REPORT_JOB;
use runner_engine::time::{ClockChange, ClockReading};
use rustix::process::{Pid, Signal, kill_process};
use sd_notify::NotifyState;
use tokio::sync::{mpsc, oneshot};

use super::log::DaemonLog;
use super::machine::{Asker, DaemonEffect, DaemonEvent, ServiceNotice, Ticked};
use super::protocol::Reply;
use crate::cancel::cancel;
use crate::env::{self, Env};
#[cfg(feature = "fleet")]
use crate::fleet::wakeups::Wakeups;
use crate::maintenance;
use crate::spawn::{self, SpawnMode, Started};
use crate::tick::{self, NextTick, Reread, TickResult};
use crate::ui::{Failure, show};

pub struct EffectRunner<'a> {
    pub home: &'a Env,
    pub store: Store,
    pub me: ProcessIdentity,
    pub manner: SpawnMode,
    pub voice: DaemonLog,
    /// Runs whose processes this daemon started and has not reaped yet.
    children: BTreeMap<RunId, Started>,
    askers: BTreeMap<Asker, oneshot::Sender<Reply>>,
    asked: Asker,
    /// The problems of the last tick. A problem that persists is reported only once.
    troubles: BTreeSet<String>,
    /// Runs that were returned by a tick and have not been started yet.
    named: BTreeSet<RunId>,
    /// Whether an error may have left requested runs that no process will start.
    strays: bool,
    /// The daily maintenance thread, until its result is collected.
    maintenance: Option<JoinHandle<Result<Vec<String>, Failure>>>,
    /// The threads that listen for fleet work.
    #[cfg(feature = "fleet")]
    wakeups: Option<Wakeups>,
}

impl<'a> EffectRunner<'a> {
    pub fn new(
        home: &'a Env,
        store: Store,
        me: ProcessIdentity,
        manner: SpawnMode,
        voice: DaemonLog,
    ) -> Self {
        Self {
            home,
            store,
            me,
            manner,
            voice,
            children: BTreeMap::new(),
            askers: BTreeMap::new(),
            asked: 0,
            troubles: BTreeSet::new(),
            named: BTreeSet::new(),
            strays: false,
            maintenance: None,
            #[cfg(feature = "fleet")]
            wakeups: None,
        }
    }

    /// Starts sending a message to `wake` whenever a fleet has work. Does nothing in a build
    /// without fleets.
    pub fn listen(&mut self, wake: &mpsc::Sender<()>) {
        #[cfg(feature = "fleet")]
        {
            self.wakeups = Some(Wakeups::new(wake.clone()));
        }
        #[cfg(not(feature = "fleet"))]
        let _ = wake;
    }

    /// Stores the channel for a reply and returns a number that identifies the client.
    pub fn expect(&mut self, reply: oneshot::Sender<Reply>) -> Asker {
        self.asked += 1;
        self.askers.insert(self.asked, reply);
        self.asked
    }

    /// Carries out one effect and appends the resulting events to `events`. Returns the exit status
    /// if the daemon must exit.
    ///
    /// # Errors
    /// Returns an error only if the database is damaged. The error stops the daemon.
    pub fn carry_out(
        &mut self,
        effect: DaemonEffect,
        now: ClockReading,
        events: &mut VecDeque<DaemonEvent>,
    ) -> Result<Option<Exit>, Failure> {
        match effect {
            DaemonEffect::Tick(reread) => events.push_back(DaemonEvent::Ticked(self.tick(reread)?)),
            DaemonEffect::Spawn(run) => events.extend(self.spawn(&run, now)),
            DaemonEffect::Terminate(run) => {
                // The run only sees a signal, so the database records the reason.
                let why = "the daemon was asked to stop and the run did not end in time";
                if let Err(error) = self.store.cancel(&run, why, now.wall) {
                    self.voice.complain(&Failure::from(error).to_string());
                }
                if let Some(child) = self.children.get(&run) {
                    let _already_gone = kill_process(Pid::from_child(&child.child), Signal::TERM);
                }
            }
            DaemonEffect::Kill(run) => {
                if let Some(child) = self.children.get_mut(&run) {
                    let _already_gone = child.child.kill();
                    tree::kill_marked(run.as_str());
                }
            }
            DaemonEffect::Cancel { run, to } => {
                let why = "through the daemon";
                let reply = match cancel(self.home, &mut self.store, &run, why) {
                    Ok(how) => Reply::Cancelled { how },
                    Err(failure) => Reply::error(failure.to_string()),
                };
                self.reply(to, reply);
            }
            DaemonEffect::Note(notice) => self.note(notice, now),
            DaemonEffect::Welcome(next) => self.welcome(next.as_ref()),
            DaemonEffect::Say(text) => self.voice.log(&text),
            DaemonEffect::Notify(notice) => self.notify(&notice),
            DaemonEffect::Reply { to, with } => self.reply(to, with),
            DaemonEffect::Exit(exit) => return Ok(Some(exit)),
        }
        Ok(None)
    }

    /// Starts the daily maintenance on a separate thread with its own connection, if it is due or
    /// the database's log is too long. If the maintenance finds the database damaged, a later call
    /// returns the error.
    fn maintenance(&mut self) -> Result<(), Failure> {
        if self.maintenance.as_ref().is_some_and(|maintenance| !maintenance.is_finished()) {
            return Ok(());
        }
        if let Some(maintenance) = self.maintenance.take() {
            match maintenance.join() {
                Ok(Ok(troubles)) => troubles.iter().for_each(|one| self.voice.complain(one)),
                Ok(Err(failure)) if failure.is_damage() => return Err(failure),
                Ok(Err(failure)) => self.voice.complain(&failure.to_string()),
                Err(_panicked) => {
                    self.voice.complain("the daily maintenance of the database failed")
                }
            }
        }
        let looked =
            self.home.wall().and_then(|now| Ok(self.store.maintenance_due(Task::Daily, now)?));
        if !looked.unwrap_or(false) && self.store.log_length() <= LOG_CEILING {
            return Ok(());
        }
        let home = self.home.clone();
        self.maintenance = Some(std::thread::spawn(move || {
            let mut store = home.store()?;
            maintenance::daily(&home, &mut store)
        }));
        Ok(())
    }

    fn tick(&mut self, reread: Reread) -> Result<Ticked, Failure> {
        self.maintenance()?;
        let mut done = match tick::once(self.home, &mut self.store, &self.me, reread) {
            Ok(done) => done,
            Err(failure) if failure.is_damage() => return Err(failure),
            // An error such as a full disk may be gone by the next tick.
            Err(failure) => {
                self.strays = true;
                TickResult { troubles: vec![failure.to_string()], ..TickResult::default() }
            }
        };
        #[cfg(feature = "fleet")]
        if let Some(wakeups) = &mut self.wakeups {
            wakeups.refresh(self.home);
        }
        if self.strays {
            match self.strays() {
                Ok(strays) => {
                    self.strays = false;
                    let new = |run: &RunId| !done.start.contains(run);
                    let strays: Vec<RunId> = strays.into_iter().filter(new).collect();
                    done.start.extend(strays);
                }
                Err(failure) => done.troubles.push(failure.to_string()),
            }
        }
        let next = self.next().unwrap_or_else(|failure| {
            done.troubles.push(failure.to_string());
            None
        });
        for (run, outcome) in &done.settled {
            self.voice.log(&format!("run {run} was settled by recovery: {outcome}"));
        }
        let unreadable = done
            .unreadable
            .iter()
            .map(|(path, why)| format!("{path}: {why}; its jobs keep their old schedules"));
        let troubles: BTreeSet<String> = done.troubles.into_iter().chain(unreadable).collect();
        for trouble in &troubles {
            // A request to reread everything also repeats problems that were already reported.
            if reread == Reread::All || !self.troubles.contains(trouble) {
                self.voice.complain(trouble);
            }
        }
        if reread == Reread::All && troubles.is_empty() {
            self.voice.log("configuration read again");
        }
        self.troubles.clone_from(&troubles);
        self.named.extend(done.start.iter().cloned());
        Ok(Ticked { next, start: done.start, troubles: troubles.into_iter().collect() })
    }

    fn next(&self) -> Result<Option<NextTick>, Failure> {
        tick::next(&self.store, self.home.wall()?)
    }

    /// Returns the runs that were requested in this process's name but are neither started nor
    /// about to be started. No other process starts them while this one is alive.
    fn strays(&self) -> Result<Vec<RunId>, Failure> {
        let stray = |row: &RunRow| {
            matches!(&row.state, RunState::Requested { starter, .. } if *starter == self.me)
                && !self.children.contains_key(&row.id)
                && !self.named.contains(&row.id)
        };
        let live = self.store.live()?;
        Ok(live.into_iter().filter(stray).map(|row| row.id).collect())
    }

    fn spawn(&mut self, run: &RunId, now: ClockReading) -> Option<DaemonEvent> {
        self.named.remove(run);
        let started = spawn::spawn(self.home, &mut self.store, run, self.manner);
        let job = self.store.run(run).map_or_else(|_| "?".to_owned(), |row| row.job_name);
        match started {
            Ok(started) => {
                self.voice.log(&format!("{job}: started (run {run})"));
                self.children.insert(run.clone(), started);
                let run = run.clone();
                Some(DaemonEvent::Begun { run, job })
            }
            // The run was requested in this process's name, so no other process would start it.
            Err(failure) => {
                self.voice.complain(&format!("{job}: {failure}"));
                let outcome =
                    Outcome::Failed { class: Class::Environment, why: failure.to_string() };
                if let Err(error) = self.store.decline(run, &outcome, now.wall) {
                    self.strays = true;
                    self.voice.complain(&format!("run {run}: {}", Failure::from(error)));
                }
                None
            }
        }
    }

    /// Reaps exited processes and settles their runs if necessary.
    pub fn recover_stale(&mut self, events: &mut VecDeque<DaemonEvent>) -> Result<(), Failure> {
        let ended: Vec<(RunId, String)> = self
            .children
            .iter_mut()
            .filter_map(|(run, started)| match started.child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some((run.clone(), status.to_string())),
                Err(error) => Some((run.clone(), error.to_string())),
            })
            .collect();
        for (run, status) in ended {
            self.children.remove(&run);
            let again = self.settle(&run, &status)?;
            events.push_back(DaemonEvent::Ended { run, again });
        }
        Ok(())
    }

    fn settle(&mut self, run: &RunId, status: &str) -> Result<Option<RunId>, Failure> {
        let again = spawn::settle_after(self.home, &mut self.store, &self.me, run, status);
        let again = match again {
            Ok(again) => again,
            Err(failure) if failure.is_damage() => return Err(failure),
            Err(failure) => {
                // The next attempt may already be requested in this process's name.
                self.strays = true;
                self.voice.complain(&format!("run {run}: {failure}"));
                None
            }
        };
        if let Ok(row) = self.store.run(run)
            && let Some(outcome) = row.outcome()
        {
            let line = format!("{}: {outcome} (run {run})", row.job_name);
            if outcome.exit(true) == Exit::Done {
                self.voice.log(&line);
            } else {
                self.voice.complain(&line);
            }
        }
        Ok(again)
    }

    fn note(&mut self, notice: ClockChange, now: ClockReading) {
        let detail = notice.to_string();
        self.voice.log(&detail);
        let row = Row {
            at: now.wall,
            project: None,
            run: None,
            kind: notice.as_str().to_owned(),
            detail,
        };
        if let Err(error) = self.store.event(&row) {
            self.voice.complain(&Failure::from(error).to_string());
        }
    }

    fn welcome(&mut self, next: Option<&NextTick>) {
        let count = || -> Result<(usize, usize), Failure> {
            let projects = self.store.projects()?;
            let mut jobs = 0;
            for project in &projects {
                let all = self.store.jobs(&project.id)?;
                let counted = |job: &&JobRow| job.enabled && job.name != REPORT_JOB;
                jobs += all.iter().filter(counted).count();
            }
            Ok((projects.len(), jobs))
        };
        let (projects, jobs) = count().unwrap_or_default();
        let next = next.map_or_else(
            || "nothing is scheduled".to_owned(),
            |next| format!("next: {} at {}", next.what, show::format_time(next.at)),
        );
        self.voice.log(&format!(
            "ready, {}, {}, {next}",
            counted(projects, "project"),
            counted(jobs, "job")
        ));
    }

    fn notify(&self, notice: &ServiceNotice) {
        let reported = match notice {
            ServiceNotice::Ready => env::notify_manager(&[NotifyState::Ready]),
            ServiceNotice::Stopping => env::notify_manager(&[NotifyState::Stopping]),
            ServiceNotice::Watchdog => env::notify_manager(&[NotifyState::Watchdog]),
            ServiceNotice::Status(text) => env::notify_manager(&[NotifyState::Status(text)]),
            ServiceNotice::Reloading => NotifyState::monotonic_usec_now()
                .and_then(|since| env::notify_manager(&[NotifyState::Reloading, since])),
        };
        if let Err(error) = reported {
            // The error may repeat on every beat, so it is only logged.
            tracing::debug!(%error, "the service manager could not be notified");
        }
    }

    fn reply(&mut self, to: Asker, with: Reply) {
        if let Some(asker) = self.askers.remove(&to) {
            let _gone = asker.send(with);
        }
    }
}
