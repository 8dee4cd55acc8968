//! The daemon's decisions, as a state machine that takes an event and a clock reading and returns
//! effects.
//!
//! ```text
//!             first tick                TERM                 drain is over        a while later
//! Starting ──────────────> Serving ───────────> Draining ───────────────> Ending ───────────> Killing ──> exit
//!    │                        │  ^                 │  nothing new is          │ TERM to each      │ each tree is
//!    └── TERM ─> Draining     └──┘ tick when due   │  started                 │ live run          │ killed
//!                                                  └── no live run is left: exit ────────────────┘
//! ```
//!
//! Another TERM advances to the next stage immediately. The daemon ticks when something is due, on
//! a client's request, on HUP, after a run ends, when a fleet has work, and after a clock jump. It
//! also ticks at least every fifteen seconds to notice changes by other processes. This module must
//! never perform I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::ids::RunId;
use runner_engine::outcome::Exit;
use runner_engine::time::{ClockChange, ClockReading, compare};

use super::protocol::{DaemonStatus, Live, Reply};
use crate::tick::{NextTick, Reread};

/// Maximum time between two ticks.
const REST: Duration = Duration::from_secs(15);
/// Until a shutdown, the watchdog is notified only if the last tick is more recent than this.
const RECENT: Duration = Duration::from_secs(60);
/// Time between TERM and KILL. A run gives its own program ten seconds, and then needs a few more
/// to settle.
pub const TERM_TO_KILL: Duration = Duration::from_secs(13);
/// Maximum time to wait for killed processes to exit.
const KILL_WAIT: Duration = Duration::from_secs(10);

/// Identifies a client waiting for a reply.
pub type Asker = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonEvent {
    /// A beat, or the timeout that replaces a missing beat.
    Pace,
    Ticked(Ticked),
    Begun {
        run: RunId,
        job: String,
    },
    /// A run's process has exited. If the run could not be settled, the next tick settles it.
    Ended {
        run: RunId,
        /// The next attempt at the run's occurrence, requested in this process's name.
        again: Option<RunId>,
    },
    Signal(Signal),
    /// A fleet has new work or a result.
    FleetWork,
    Asked {
        by: Asker,
        what: DaemonRequest,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// TERM or INT.
    Stop,
    /// HUP.
    Reload,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonRequest {
    Status,
    Tick,
    Cancel(RunId),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    pub next: Option<NextTick>,
    pub start: Vec<RunId>,
    pub troubles: Vec<String>,
}

/// An action that the loop carries out. Effects are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonEffect {
    /// Ticks, and emits [`DaemonEvent::Ticked`].
    Tick(Reread),
    /// Starts a run, and emits [`DaemonEvent::Begun`]. [`DaemonEvent::Ended`] follows when its
    /// process exits.
    Spawn(RunId),
    /// Cancels a run of this daemon and sends it TERM.
    Terminate(RunId),
    /// Kills a run of this daemon and all its processes.
    Kill(RunId),
    /// Cancels any run, whether or not this daemon started it, and replies.
    Cancel {
        run: RunId,
        to: Asker,
    },
    /// Records a clock jump in the log and the database.
    Note(ClockChange),
    /// Reports that the daemon is ready, with the next scheduled time.
    Welcome(Option<NextTick>),
    /// Prints a message.
    Say(String),
    /// Notifies the service manager.
    Notify(ServiceNotice),
    Reply {
        to: Asker,
        with: Reply,
    },
    Exit(Exit),
}

/// A notification to the service manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceNotice {
    Ready,
    Reloading,
    Stopping,
    Watchdog,
    /// A human-readable status message.
    Status(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub pid: u32,
    /// How long live runs may continue after a TERM.
    pub drain: Duration,
    /// The service manager's watchdog timeout, if it set one.
    pub watchdog: Option<Duration>,
}

/// A stage of the daemon. `until` is the end of the stage on the boot clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownStage {
    Starting,
    Serving,
    Draining { until: Duration },
    Ending { until: Duration },
    Killing { until: Duration },
}

/// The state of the daemon.
#[derive(Debug)]
pub struct Daemon {
    settings: Settings,
    since: Timestamp,
    stage: ShutdownStage,
    seen: ClockReading,
    ticked: Option<ClockReading>,
    next: Option<NextTick>,
    live: BTreeMap<RunId, Live>,
    /// The clients waiting for the next tick to complete.
    waiting: Vec<Asker>,
    reloading: bool,
    /// The time of the last watchdog notification, on the boot clock.
    alive: Duration,
    status: String,
}

impl Daemon {
    /// Creates the daemon and its first effects.
    pub fn start(settings: Settings, now: ClockReading) -> (Self, Vec<DaemonEffect>) {
        let daemon = Self {
            settings,
            since: now.wall,
            stage: ShutdownStage::Starting,
            seen: now,
            ticked: None,
            next: None,
            live: BTreeMap::new(),
            waiting: Vec::new(),
            reloading: false,
            alive: now.boot,
            status: String::new(),
        };
        (daemon, vec![DaemonEffect::Tick(Reread::WhatChanged)])
    }

    /// Returns the effects of `event` at time `now`.
    #[must_use]
    pub fn handle(&mut self, event: DaemonEvent, now: ClockReading) -> Vec<DaemonEffect> {
        let mut effects: Vec<DaemonEffect> = Vec::new();
        let jumped = compare(self.seen, now);
        self.seen = now;
        let mut tick = !jumped.is_empty();
        effects.extend(jumped.into_iter().map(DaemonEffect::Note));
        match event {
            DaemonEvent::Pace => {
                tick |= self.is_due(now);
                self.advance(now, &mut effects);
                self.notify_watchdog(now, &mut effects);
            }
            DaemonEvent::FleetWork => tick = true,
            DaemonEvent::Ticked(ticked) => self.has_ticked(ticked, now, &mut effects),
            DaemonEvent::Begun { run, job } => {
                let live = Live { run: run.to_string(), job, since: now.wall };
                self.live.insert(run, live);
                self.report_status(&mut effects);
            }
            DaemonEvent::Ended { run, again } => {
                self.live.remove(&run);
                if self.serves() {
                    effects.extend(again.map(DaemonEffect::Spawn));
                    tick = true;
                }
                self.advance(now, &mut effects);
                self.report_status(&mut effects);
            }
            DaemonEvent::Signal(Signal::Stop) => self.stop(now, &mut effects),
            DaemonEvent::Signal(Signal::Reload) => {
                if self.serves() {
                    self.reloading = true;
                    effects.push(DaemonEffect::Notify(ServiceNotice::Reloading));
                    effects.push(DaemonEffect::Tick(Reread::All));
                    return effects;
                }
            }
            DaemonEvent::Asked { by, what } => match what {
                DaemonRequest::Status => effects
                    .push(DaemonEffect::Reply { to: by, with: Reply::Status(self.describe()) }),
                DaemonRequest::Cancel(run) => effects.push(DaemonEffect::Cancel { run, to: by }),
                DaemonRequest::Tick if self.serves() => {
                    self.waiting.push(by);
                    tick = true;
                }
                DaemonRequest::Tick => effects.push(DaemonEffect::Reply {
                    to: by,
                    with: Reply::error("the daemon is shutting down and starts nothing new"),
                }),
            },
        }
        if tick && self.serves() {
            effects.push(DaemonEffect::Tick(Reread::WhatChanged));
        }
        effects
    }

    fn serves(&self) -> bool {
        matches!(self.stage, ShutdownStage::Starting | ShutdownStage::Serving)
    }

    fn is_due(&self, now: ClockReading) -> bool {
        let Some(ticked) = self.ticked else { return true };
        let rested = now.boot.saturating_sub(ticked.boot) >= REST;
        rested || self.next.as_ref().is_some_and(|next| next.at <= now.wall)
    }

    fn has_ticked(&mut self, ticked: Ticked, now: ClockReading, effects: &mut Vec<DaemonEffect>) {
        self.ticked = Some(now);
        // If the next time is already due, this tick could not handle it, so the next regular tick
        // tries again.
        self.next = ticked.next.filter(|next| next.at > now.wall);
        // The loop receives no signal between a tick and its result, so these runs may still be
        // started.
        effects.extend(ticked.start.iter().cloned().map(DaemonEffect::Spawn));
        let started: Vec<String> = ticked.start.iter().map(ToString::to_string).collect();
        effects.extend(self.waiting.drain(..).map(|to| DaemonEffect::Reply {
            to,
            with: Reply::Ticked { started: started.clone(), troubles: ticked.troubles.clone() },
        }));
        if self.stage == ShutdownStage::Starting {
            self.stage = ShutdownStage::Serving;
            effects.push(DaemonEffect::Welcome(self.next.clone()));
            effects.push(DaemonEffect::Notify(ServiceNotice::Ready));
        } else if self.reloading {
            effects.push(DaemonEffect::Notify(ServiceNotice::Ready));
        }
        self.reloading = false;
        self.report_status(effects);
    }

    fn stop(&mut self, now: ClockReading, effects: &mut Vec<DaemonEffect>) {
        match self.stage {
            ShutdownStage::Starting | ShutdownStage::Serving => {
                self.stage =
                    ShutdownStage::Draining { until: now.boot.saturating_add(self.settings.drain) };
                effects.push(DaemonEffect::Notify(ServiceNotice::Stopping));
                if !self.live.is_empty() {
                    effects.push(DaemonEffect::Say(format!(
                        "shutting down; {} may continue for {}",
                        runs(self.live.len()),
                        seconds(self.settings.drain)
                    )));
                }
                self.advance(now, effects);
            }
            ShutdownStage::Draining { .. } => self.end(now, effects),
            ShutdownStage::Ending { .. } => self.kill(now, effects),
            ShutdownStage::Killing { .. } => effects.push(DaemonEffect::Exit(Exit::Done)),
        }
    }

    /// Exits during a shutdown if no runs are live, and otherwise enters the next stage once the
    /// current one is over.
    fn advance(&mut self, now: ClockReading, effects: &mut Vec<DaemonEffect>) {
        match self.stage {
            ShutdownStage::Starting | ShutdownStage::Serving => {}
            _ if self.live.is_empty() => effects.push(DaemonEffect::Exit(Exit::Done)),
            ShutdownStage::Draining { until } if now.boot >= until => self.end(now, effects),
            ShutdownStage::Ending { until } if now.boot >= until => self.kill(now, effects),
            ShutdownStage::Killing { until } if now.boot >= until => {
                effects.push(DaemonEffect::Say(format!(
                    "{} could not be killed; the next tick settles what is left",
                    runs(self.live.len())
                )));
                effects.push(DaemonEffect::Exit(Exit::Done));
            }
            _ => {}
        }
    }

    fn end(&mut self, now: ClockReading, effects: &mut Vec<DaemonEffect>) {
        self.stage = ShutdownStage::Ending { until: now.boot.saturating_add(TERM_TO_KILL) };
        effects.push(DaemonEffect::Say(format!(
            "asking {} to stop; remaining runs are killed in {}",
            runs(self.live.len()),
            seconds(TERM_TO_KILL)
        )));
        effects.extend(self.live.keys().cloned().map(DaemonEffect::Terminate));
    }

    fn kill(&mut self, now: ClockReading, effects: &mut Vec<DaemonEffect>) {
        self.stage = ShutdownStage::Killing { until: now.boot.saturating_add(KILL_WAIT) };
        effects.push(DaemonEffect::Say(format!("killing {}", runs(self.live.len()))));
        effects.extend(self.live.keys().cloned().map(DaemonEffect::Kill));
    }

    fn notify_watchdog(&mut self, now: ClockReading, effects: &mut Vec<DaemonEffect>) {
        let Some(limit) = self.settings.watchdog else { return };
        let recent = |at: ClockReading| now.boot.saturating_sub(at.boot) < RECENT;
        // During a shutdown the daemon does not tick, so the last tick may be old.
        let works = !self.serves() || self.ticked.is_some_and(recent);
        if works && now.boot.saturating_sub(self.alive) >= limit / 2 {
            self.alive = now.boot;
            effects.push(DaemonEffect::Notify(ServiceNotice::Watchdog));
        }
    }

    fn report_status(&mut self, effects: &mut Vec<DaemonEffect>) {
        let mut text = format!("{} live", runs(self.live.len()));
        if !self.serves() {
            text.push_str("; draining");
        } else if let Some(next) = &self.next {
            text.push_str(&format!(
                "; next: {} at {}",
                next.what,
                next.at.strftime("%Y-%m-%dT%H:%M:%SZ")
            ));
        }
        if text != self.status {
            self.status.clone_from(&text);
            effects.push(DaemonEffect::Notify(ServiceNotice::Status(text)));
        }
    }

    fn describe(&self) -> DaemonStatus {
        DaemonStatus {
            pid: self.settings.pid,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since: self.since,
            last_tick: self.ticked.map(|at| at.wall),
            draining: !self.serves(),
            live: self.live.values().cloned().collect(),
        }
    }
}

fn runs(count: usize) -> String {
    match count {
        1 => "1 run".to_owned(),
        n => format!("{n} runs"),
    }
}

fn seconds(duration: Duration) -> String {
    jiff::SignedDuration::try_from(duration)
        .map_or_else(|_| "ever".to_owned(), |it| format!("{it:#}"))
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
