//! What the daemon does: each effect carried out, at once and on the loop's own thread.
//!
//! A tick and a settling are short. Only the killing of a tree may take seconds: of a run past its
//! deadline, of what a dead one left, and of all when the daemon is about to end. Must never decide what is to be done.

use runner_text::counted;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::thread::JoinHandle;

use runner_engine::ids::RunId;
use runner_engine::ledger::{Event as Row, JobRow, LOG_CEILING, Ledger, RunRow, RunState};
use runner_engine::outcome::{Class, Exit, Outcome};
use runner_engine::owner::Owner;
use runner_engine::process::tree;
use runner_engine::tick::REPORT_JOB;
use runner_engine::time::{Moment, Notice};
use rustix::process::{Pid, Signal, kill_process};
use sd_notify::NotifyState;
use tokio::sync::oneshot;

use super::log::Voice;
use super::machine::{Asker, Effect, Event, Ticked, Word};
use super::protocol::Reply;
use crate::cancel::cancel;
use crate::care;
use crate::cli::{Failure, show};
use crate::drive::{self, Manner, Started};
use crate::home::{self, Home};
use crate::tick::{self, Done, Next, Reread};

/// What effects are carried out with.
pub struct Hands<'a> {
    pub home: &'a Home,
    pub ledger: Ledger,
    pub me: Owner,
    pub manner: Manner,
    pub voice: Voice,
    /// Runs whose processes are ours and not reaped yet.
    children: BTreeMap<RunId, Started>,
    askers: BTreeMap<Asker, oneshot::Sender<Reply>>,
    asked: Asker,
    /// What the last tick could not do: said once.
    troubles: BTreeSet<String>,
    /// Runs that a tick named and whose turn to be started has not come yet.
    named: BTreeSet<RunId>,
    /// A tick has failed, and may have left runs that it was about to name.
    strays: bool,
    /// The daily care of the ledger, while it is taken.
    care: Option<JoinHandle<Result<Vec<String>, Failure>>>,
}

impl<'a> Hands<'a> {
    pub fn new(home: &'a Home, ledger: Ledger, me: Owner, manner: Manner, voice: Voice) -> Self {
        Self {
            home,
            ledger,
            me,
            manner,
            voice,
            children: BTreeMap::new(),
            askers: BTreeMap::new(),
            asked: 0,
            troubles: BTreeSet::new(),
            named: BTreeSet::new(),
            strays: false,
            care: None,
        }
    }

    /// Keeps the way back to somebody who asked.
    pub fn expect(&mut self, reply: oneshot::Sender<Reply>) -> Asker {
        self.asked += 1;
        self.askers.insert(self.asked, reply);
        self.asked
    }

    /// Carries out one effect; what comes of it goes to the end of `events`.
    ///
    /// An error ends the daemon: only a damaged ledger is one.
    pub fn carry_out(
        &mut self,
        effect: Effect,
        now: Moment,
        events: &mut VecDeque<Event>,
    ) -> Result<Option<Exit>, Failure> {
        match effect {
            Effect::Tick(reread) => events.push_back(Event::Ticked(self.tick(reread)?)),
            Effect::Spawn(run) => events.extend(self.spawn(&run, now)),
            Effect::Terminate(run) => {
                // The run knows only of a signal; the ledger is told why it came.
                let why = "the daemon was told to end and it was not over in time";
                if let Err(error) = self.ledger.cancel(&run, why, now.wall) {
                    self.voice.complain(&Failure::from(error).to_string());
                }
                if let Some(child) = self.children.get(&run) {
                    let _already_gone = kill_process(Pid::from_child(&child.child), Signal::TERM);
                }
            }
            Effect::Kill(run) => {
                if let Some(child) = self.children.get_mut(&run) {
                    let _already_gone = child.child.kill();
                    tree::kill_marked(run.as_str());
                }
            }
            Effect::Cancel { run, to } => {
                let why = "through the daemon";
                let reply = match cancel(self.home, &mut self.ledger, &run, why) {
                    Ok(how) => Reply::Cancelled { how },
                    Err(failure) => Reply::error(failure.to_string()),
                };
                self.reply(to, reply);
            }
            Effect::Note(notice) => self.note(notice, now),
            Effect::Welcome(next) => self.welcome(next.as_ref()),
            Effect::Say(text) => self.voice.say(&text),
            Effect::Notify(word) => self.notify(&word),
            Effect::Reply { to, with } => self.reply(to, with),
            Effect::Exit(exit) => return Ok(Some(exit)),
        }
        Ok(None)
    }

    /// Lets the daily care be taken beside the loop, in a connection of its own; one that found the
    /// ledger damaged ends the daemon at its next tick.
    fn care(&mut self) -> Result<(), Failure> {
        if self.care.as_ref().is_some_and(|care| !care.is_finished()) {
            return Ok(());
        }
        if let Some(care) = self.care.take() {
            match care.join() {
                Ok(Ok(troubles)) => troubles.iter().for_each(|one| self.voice.complain(one)),
                Ok(Err(failure)) if failure.is_damage() => return Err(failure),
                Ok(Err(failure)) => self.voice.complain(&failure.to_string()),
                Err(_panicked) => self
                    .voice
                    .complain("the daily care of the ledger ended badly"),
            }
        }
        let looked = self
            .home
            .wall()
            .and_then(|now| Ok(self.ledger.cares_due(now)?));
        if !looked.unwrap_or(false) && self.ledger.log_length() <= LOG_CEILING {
            return Ok(());
        }
        let home = self.home.clone();
        self.care = Some(std::thread::spawn(move || {
            let mut ledger = home.ledger()?;
            care::daily(&home, &mut ledger)
        }));
        Ok(())
    }

    fn tick(&mut self, reread: Reread) -> Result<Ticked, Failure> {
        self.care()?;
        let mut done = match tick::once(self.home, &mut self.ledger, &self.me, reread) {
            Ok(done) => done,
            Err(failure) if failure.is_damage() => return Err(failure),
            // A full disk, a clock that cannot be read: another tick may get by.
            Err(failure) => {
                self.strays = true;
                Done {
                    troubles: vec![failure.to_string()],
                    ..Done::default()
                }
            }
        };
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
        for (run, word) in &done.settled {
            self.voice
                .say(&format!("run {run} was settled for its dead owner: {word}"));
        }
        let unreadable = done
            .unreadable
            .iter()
            .map(|(path, why)| format!("{path}: {why}; its jobs stay as they were"));
        let troubles: BTreeSet<String> = done.troubles.into_iter().chain(unreadable).collect();
        for trouble in &troubles {
            // Somebody who asks for everything to be read again wants to hear it again.
            if reread == Reread::All || !self.troubles.contains(trouble) {
                self.voice.complain(trouble);
            }
        }
        if reread == Reread::All && troubles.is_empty() {
            self.voice.say("configuration read again");
        }
        self.troubles.clone_from(&troubles);
        self.named.extend(done.start.iter().cloned());
        Ok(Ticked {
            next,
            start: done.start,
            troubles: troubles.into_iter().collect(),
        })
    }

    fn next(&self) -> Result<Option<Next>, Failure> {
        tick::next(&self.ledger, self.home.wall()?)
    }

    /// Runs that a tick had recorded in our name before it failed: nobody else would start them for as
    /// long as we live.
    fn strays(&self) -> Result<Vec<RunId>, Failure> {
        let stray = |row: &RunRow| {
            row.state == RunState::Requested
                && row.starter.as_ref() == Some(&self.me)
                && !self.children.contains_key(&row.id)
                && !self.named.contains(&row.id)
        };
        let live = self.ledger.live()?;
        Ok(live.into_iter().filter(stray).map(|row| row.id).collect())
    }

    fn spawn(&mut self, run: &RunId, now: Moment) -> Option<Event> {
        self.named.remove(run);
        let started = drive::spawn(self.home, &mut self.ledger, run, self.manner);
        let job = self
            .ledger
            .run(run)
            .map_or_else(|_| "?".to_owned(), |row| row.job_name);
        match started {
            Ok(started) => {
                self.voice.say(&format!("{job}: started (run {run})"));
                self.children.insert(run.clone(), started);
                let run = run.clone();
                Some(Event::Begun { run, job })
            }
            // It was requested in our name, so nobody else would ever start it.
            Err(failure) => {
                self.voice.complain(&format!("{job}: {failure}"));
                let outcome = Outcome::Failed {
                    class: Class::Environment,
                    why: failure.to_string(),
                };
                if let Err(error) = self.ledger.decline(run, &outcome, now.wall) {
                    self.strays = true;
                    self.voice
                        .complain(&format!("run {run}: {}", Failure::from(error)));
                }
                None
            }
        }
    }

    /// Reaps the processes that have ended and settles their runs, where they are not settled.
    pub fn bury(&mut self, events: &mut VecDeque<Event>) -> Result<(), Failure> {
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
            events.push_back(Event::Ended { run, again });
        }
        Ok(())
    }

    fn settle(&mut self, run: &RunId, status: &str) -> Result<Option<RunId>, Failure> {
        let again = drive::settle_after(self.home, &mut self.ledger, &self.me, run, status);
        let again = match again {
            Ok(again) => again,
            Err(failure) if failure.is_damage() => return Err(failure),
            Err(failure) => {
                // It may still be recorded in our name.
                self.strays = true;
                self.voice.complain(&format!("run {run}: {failure}"));
                None
            }
        };
        if let Ok(row) = self.ledger.run(run)
            && let Some(outcome) = &row.outcome
        {
            let line = format!("{}: {outcome} (run {run})", row.job_name);
            if outcome.exit(true) == Exit::Done {
                self.voice.say(&line);
            } else {
                self.voice.complain(&line);
            }
        }
        Ok(again)
    }

    fn note(&mut self, notice: Notice, now: Moment) {
        let detail = notice.to_string();
        self.voice.say(&detail);
        let row = Row {
            at: now.wall,
            project: None,
            run: None,
            kind: notice.word().to_owned(),
            detail,
        };
        if let Err(error) = self.ledger.event(&row) {
            self.voice.complain(&Failure::from(error).to_string());
        }
    }

    fn welcome(&mut self, next: Option<&Next>) {
        let count = || -> Result<(usize, usize), Failure> {
            let projects = self.ledger.projects()?;
            let mut jobs = 0;
            for project in &projects {
                let all = self.ledger.jobs(&project.id)?;
                let counted = |job: &&JobRow| job.enabled && job.name != REPORT_JOB;
                jobs += all.iter().filter(counted).count();
            }
            Ok((projects.len(), jobs))
        };
        let (projects, jobs) = count().unwrap_or_default();
        let next = next.map_or_else(
            || "nothing is due by a clock".to_owned(),
            |next| format!("next: {} at {}", next.what, show::moment(next.at)),
        );
        self.voice.say(&format!(
            "ready, {}, {}, {next}",
            counted(projects, "project"),
            counted(jobs, "job")
        ));
    }

    fn notify(&self, word: &Word) {
        let told = match word {
            Word::Ready => home::tell_manager(&[NotifyState::Ready]),
            Word::Stopping => home::tell_manager(&[NotifyState::Stopping]),
            Word::Watchdog => home::tell_manager(&[NotifyState::Watchdog]),
            Word::Status(text) => home::tell_manager(&[NotifyState::Status(text)]),
            Word::Reloading => NotifyState::monotonic_usec_now()
                .and_then(|since| home::tell_manager(&[NotifyState::Reloading, since])),
        };
        if let Err(error) = told {
            // Not worth a line on every beat for people; the log has it.
            tracing::debug!(%error, "the service manager could not be told");
        }
    }

    fn reply(&mut self, to: Asker, with: Reply) {
        if let Some(asker) = self.askers.remove(&to) {
            let _gone = asker.send(with);
        }
    }
}
