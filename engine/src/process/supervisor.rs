//! Decides when to stop a child, without access to a process, a clock or a file.
//!
//! ```text
//!  Starting ──output──> Running ──result──> Grace
//!     │ first-byte, total  │ idle, total      │ exit grace, total         (deadlines)
//!     └────────────┬───────┴──────────────────┘
//!     deadline, cancel, cap                  any state ──exited──> Draining ──both streams
//!                  v                                                  │       closed, drain──> Done
//!              Terminating ──TERM to KILL──> Killing ──kill wait──> Done (given up)
//!                  │ sends TERM                 │ sends KILL
//! ```
//!
//! `handle` receives an event and its time, and returns the actions to take. The loop that owns the
//! process takes these actions and makes no decisions. The supervisor must never read a clock, and
//! never let a later reason replace the first one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::spec::Limits;
use crate::sandbox::Overuse;

/// One of a child's output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// How a child process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// The process exited with this code.
    Exit(i32),
    /// The process was killed by this signal.
    Signal(i32),
}

/// Why a child ended: the limit or cancellation that stopped it, or `Exited` if neither did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The child exited by itself, or was stopped when its exit grace period expired after its
    /// result had been seen.
    Exited,
    /// The child had written no output by its first-byte deadline.
    FirstByteDeadline,
    /// The child wrote no output for too long.
    IdleDeadline,
    /// The child exceeded its total time limit.
    TotalDeadline,
    /// The child wrote more than the output cap.
    OutputCap {
        /// The stream that exceeded the cap.
        stream: Stream,
    },
    /// The child exceeded its folder's disk quota.
    Quota,
    /// The child's process tree exceeded a limit that the launcher enforces.
    Overuse(Overuse),
    Cancelled,
}

/// An event that the supervisor handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupervisorEvent {
    /// The child wrote output.
    Output {
        stream: Stream,
        bytes: usize,
    },
    /// A stream reached its end.
    Closed(Stream),
    /// The observer saw the final result.
    Result,
    /// The child's folder exceeds its disk quota.
    OverQuota,
    /// The run was cancelled.
    Cancel,
    Exited(ExitStatus),
    /// The time has advanced.
    Tick,
}

/// An action that the loop must take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupervisorEffect {
    /// Send TERM to the child's process group.
    Terminate,
    /// Kill the whole process tree.
    Kill,
    /// Stop watching: the process has exited or has been given up on.
    Finish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SupervisorState {
    Starting,
    Running { last: Duration },
    Grace { until: Duration },
    Terminating { kill_at: Duration },
    Killing { give_up_at: Duration },
    Draining { until: Duration },
    Done,
}

/// The state machine that enforces the limits of one child.
#[derive(Clone, Debug)]
pub struct Supervisor {
    limits: Limits,
    started: Duration,
    state: SupervisorState,
    reason: Reason,
    lingered: bool,
    status: Option<ExitStatus>,
    seen: [usize; 2],
    open: [bool; 2],
}

impl Supervisor {
    /// Creates the supervisor for a child that starts at `now` on the boot-time clock.
    pub fn new(limits: Limits, now: Duration) -> Self {
        Self {
            limits,
            started: now,
            state: SupervisorState::Starting,
            reason: Reason::Exited,
            lingered: false,
            status: None,
            seen: [0; 2],
            open: [true; 2],
        }
    }

    /// Handles one event and returns the actions to take, in order.
    #[must_use = "each effect has to be carried out"]
    pub fn handle(&mut self, event: SupervisorEvent, now: Duration) -> Vec<SupervisorEffect> {
        match event {
            SupervisorEvent::Output { stream, bytes } => self.output(stream, bytes, now),
            SupervisorEvent::Closed(stream) => {
                self.open[stream as usize] = false;
                match self.state {
                    SupervisorState::Draining { .. } if self.open == [false; 2] => self.finish(),
                    _ => Vec::new(),
                }
            }
            SupervisorEvent::Result => {
                if let SupervisorState::Starting | SupervisorState::Running { .. } = self.state {
                    let until = now.saturating_add(self.limits.exit_grace);
                    self.state = SupervisorState::Grace { until };
                }
                Vec::new()
            }
            SupervisorEvent::Cancel => match self.state {
                SupervisorState::Starting | SupervisorState::Running { .. } => {
                    self.stop(Reason::Cancelled, now)
                }
                // The observer has already seen the result, so the child only has to exit.
                SupervisorState::Grace { .. } => self.linger(now),
                _ => Vec::new(),
            },
            SupervisorEvent::OverQuota => match self.state {
                SupervisorState::Starting
                | SupervisorState::Running { .. }
                | SupervisorState::Grace { .. } => self.stop(Reason::Quota, now),
                _ => Vec::new(),
            },
            SupervisorEvent::Exited(status) => {
                if matches!(self.state, SupervisorState::Draining { .. } | SupervisorState::Done) {
                    return Vec::new();
                }
                self.status = Some(status);
                if self.open == [false; 2] {
                    return self.finish();
                }
                self.state =
                    SupervisorState::Draining { until: now.saturating_add(self.limits.drain) };
                Vec::new()
            }
            SupervisorEvent::Tick => self.tick(now),
        }
    }

    /// Returns the time by which `Tick` must be sent unless another event arrives earlier.
    pub fn next_deadline(&self) -> Option<Duration> {
        let total = self.total();
        match self.state {
            SupervisorState::Starting | SupervisorState::Running { .. } => {
                [self.silence().map(|(at, _)| at), total].into_iter().flatten().min()
            }
            SupervisorState::Grace { until } => Some(total.map_or(until, |total| total.min(until))),
            SupervisorState::Terminating { kill_at } => Some(kill_at),
            SupervisorState::Killing { give_up_at } => Some(give_up_at),
            SupervisorState::Draining { until } => Some(until),
            SupervisorState::Done => None,
        }
    }

    /// Returns why the child ended. The value is meaningful only after the child has ended.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Shortens the time between a future TERM and KILL to at most `term_to_kill`.
    pub fn hurry(&mut self, term_to_kill: Duration) {
        self.limits.term_to_kill = self.limits.term_to_kill.min(term_to_kill);
    }

    /// Returns whether the child had to be stopped after its result had been seen.
    pub fn lingered(&self) -> bool {
        self.lingered
    }

    /// Returns how the child ended, or `None` if it is still running or KILL did not end it in
    /// time.
    pub fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Returns how many more bytes of `stream` may be kept.
    pub fn room(&self, stream: Stream) -> usize {
        self.limits.output_cap.saturating_sub(self.seen[stream as usize])
    }

    /// Returns whether `stream` received more bytes than may be kept.
    pub fn truncated(&self, stream: Stream) -> bool {
        self.seen[stream as usize] > self.limits.output_cap
    }

    fn output(&mut self, stream: Stream, bytes: usize, now: Duration) -> Vec<SupervisorEffect> {
        let seen = &mut self.seen[stream as usize];
        *seen = seen.saturating_add(bytes);
        let over = *seen > self.limits.output_cap;
        match self.state {
            SupervisorState::Starting | SupervisorState::Running { .. } if !over => {
                self.state = SupervisorState::Running { last: now };
                Vec::new()
            }
            SupervisorState::Starting
            | SupervisorState::Running { .. }
            | SupervisorState::Grace { .. }
                if over =>
            {
                self.stop(Reason::OutputCap { stream }, now)
            }
            // The child has already exited, but its kept output is incomplete.
            SupervisorState::Draining { .. } if over => {
                if self.reason == Reason::Exited {
                    self.reason = Reason::OutputCap { stream };
                }
                self.finish()
            }
            _ => Vec::new(),
        }
    }

    fn tick(&mut self, now: Duration) -> Vec<SupervisorEffect> {
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return Vec::new();
        }
        match self.state {
            // A late tick may find both deadlines passed.
            SupervisorState::Starting | SupervisorState::Running { .. } => match self.silence() {
                Some((at, reason)) if now >= at && self.total().is_none_or(|total| at <= total) => {
                    self.stop(reason, now)
                }
                _ => self.stop(Reason::TotalDeadline, now),
            },
            SupervisorState::Grace { .. } => self.linger(now),
            SupervisorState::Terminating { .. } => {
                let give_up_at = now.saturating_add(self.limits.kill_wait);
                self.state = SupervisorState::Killing { give_up_at };
                vec![SupervisorEffect::Kill]
            }
            SupervisorState::Killing { .. } | SupervisorState::Draining { .. } => self.finish(),
            SupervisorState::Done => Vec::new(),
        }
    }

    /// Returns the total deadline, if there is one.
    fn total(&self) -> Option<Duration> {
        self.limits.total.map(|total| self.started.saturating_add(total))
    }

    fn silence(&self) -> Option<(Duration, Reason)> {
        let Limits { first_byte, idle, .. } = self.limits;
        let (since, limit, reason) = match self.state {
            SupervisorState::Starting if first_byte.is_some() => {
                (self.started, first_byte, Reason::FirstByteDeadline)
            }
            SupervisorState::Starting => (self.started, idle, Reason::IdleDeadline),
            SupervisorState::Running { last } => (last, idle, Reason::IdleDeadline),
            _ => return None,
        };
        limit.map(|limit| (since.saturating_add(limit), reason))
    }

    fn linger(&mut self, now: Duration) -> Vec<SupervisorEffect> {
        self.lingered = true;
        self.stop(Reason::Exited, now)
    }

    fn stop(&mut self, reason: Reason, now: Duration) -> Vec<SupervisorEffect> {
        self.reason = reason;
        self.state =
            SupervisorState::Terminating { kill_at: now.saturating_add(self.limits.term_to_kill) };
        vec![SupervisorEffect::Terminate]
    }

    fn finish(&mut self) -> Vec<SupervisorEffect> {
        self.state = SupervisorState::Done;
        vec![SupervisorEffect::Finish]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: Stream = Stream::Stdout;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1_000 + seconds)
    }

    fn supervisor() -> Supervisor {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let limits = Limits {
            first_byte: seconds(20),
            idle: seconds(30),
            total: seconds(100),
            output_cap: 10,
            ..Limits::default()
        };
        Supervisor::new(limits, at(0))
    }

    fn output(bytes: usize) -> SupervisorEvent {
        SupervisorEvent::Output { stream: OUT, bytes }
    }

    #[test]
    fn silent_child_is_terminated_killed_then_abandoned() {
        let mut child = supervisor();
        assert_eq!(child.next_deadline(), Some(at(20)));
        assert_eq!(child.handle(SupervisorEvent::Tick, at(19)), []);
        assert_eq!(child.handle(SupervisorEvent::Tick, at(20)), [SupervisorEffect::Terminate]);
        assert_eq!(child.handle(SupervisorEvent::Tick, at(29)), []);
        assert_eq!(child.handle(SupervisorEvent::Cancel, at(29)), []);
        assert_eq!(child.handle(SupervisorEvent::Tick, at(30)), [SupervisorEffect::Kill]);
        assert_eq!(child.handle(SupervisorEvent::Tick, at(40)), [SupervisorEffect::Finish]);
        assert_eq!((child.reason(), child.status()), (Reason::FirstByteDeadline, None));
        assert_eq!(child.next_deadline(), None);
    }

    #[test]
    fn output_extends_only_the_idle_deadline() {
        let mut child = supervisor();
        for second in [10, 39, 68, 97] {
            assert_eq!(child.handle(output(1), at(second)), []);
        }
        assert_eq!(child.next_deadline(), Some(at(100)));
        assert_eq!(child.handle(SupervisorEvent::Tick, at(100)), [SupervisorEffect::Terminate]);
        assert_eq!(child.reason(), Reason::TotalDeadline);

        let mut child = supervisor();
        assert_eq!(child.handle(output(1), at(10)), []);
        // After a suspend, both deadlines have passed. The earlier one is the reason.
        assert_eq!(child.handle(SupervisorEvent::Tick, at(5_000)), [SupervisorEffect::Terminate]);
        assert_eq!(child.reason(), Reason::IdleDeadline);

        let mut child = supervisor();
        for second in [10, 39, 68, 97] {
            assert_eq!(child.handle(output(1), at(second)), []);
        }
        assert_eq!(child.handle(SupervisorEvent::Tick, at(5_000)), [SupervisorEffect::Terminate]);
        assert_eq!(child.reason(), Reason::TotalDeadline);
    }

    #[test]
    fn exit_grace_applies_after_result() {
        let mut child = supervisor();
        assert_eq!(child.handle(output(5), at(1)), []);
        assert_eq!(child.handle(SupervisorEvent::Result, at(1)), []);
        assert_eq!(child.handle(output(5), at(9)), []);
        assert_eq!(child.next_deadline(), Some(at(11)));
        assert_eq!(child.handle(SupervisorEvent::Tick, at(11)), [SupervisorEffect::Terminate]);
        assert_eq!(child.handle(SupervisorEvent::Exited(ExitStatus::Signal(15)), at(12)), []);
        assert_eq!(child.handle(SupervisorEvent::Closed(Stream::Stderr), at(12)), []);
        assert_eq!(child.handle(SupervisorEvent::Closed(OUT), at(12)), [SupervisorEffect::Finish]);
        assert!(child.lingered());
        assert_eq!(child.reason(), Reason::Exited);
    }

    #[test]
    fn output_beyond_the_cap_terminates() {
        let mut child = supervisor();
        assert_eq!(child.handle(output(10), at(1)), []);
        assert_eq!((child.room(OUT), child.truncated(OUT)), (0, false));
        assert_eq!(child.handle(output(1), at(2)), [SupervisorEffect::Terminate]);
        assert_eq!(child.handle(output(1_000), at(2)), []);
        assert_eq!(child.reason(), Reason::OutputCap { stream: OUT });
        assert!(child.truncated(OUT) && !child.truncated(Stream::Stderr));
    }

    #[test]
    fn held_pipe_delays_finish_only_by_drain() {
        let mut child = supervisor();
        assert_eq!(child.handle(SupervisorEvent::Exited(ExitStatus::Exit(0)), at(1)), []);
        let end = at(1) + Limits::default().drain;
        assert_eq!(child.next_deadline(), Some(end));
        assert_eq!(child.handle(output(4), at(1)), []);
        assert_eq!(child.handle(SupervisorEvent::Cancel, at(1)), []);
        assert_eq!(child.next_deadline(), Some(end));
        assert_eq!(child.handle(SupervisorEvent::Tick, end), [SupervisorEffect::Finish]);
        assert_eq!((child.reason(), child.status()), (Reason::Exited, Some(ExitStatus::Exit(0))));
    }

    #[test]
    fn supervisor_finishes_once_with_first_reason() {
        // For every sequence of five events, the supervisor finishes at most once and has a next
        // deadline until it finishes. Once the reason is not `Exited`, it never changes.
        let events = [
            output(6),
            SupervisorEvent::Closed(OUT),
            SupervisorEvent::Closed(Stream::Stderr),
            SupervisorEvent::Result,
            SupervisorEvent::Cancel,
            SupervisorEvent::OverQuota,
            SupervisorEvent::Exited(ExitStatus::Exit(1)),
            SupervisorEvent::Tick,
        ];
        let count = events.len();
        for code in 0..count.pow(5) {
            let mut child = supervisor();
            let (mut finished, mut reason) = (0, Reason::Exited);
            for step in 0..5 {
                let event = events[code / count.pow(step) % count];
                let now = at(u64::from(step) * 15);
                for effect in child.handle(event, now) {
                    finished += usize::from(effect == SupervisorEffect::Finish);
                }
                assert!(reason == Reason::Exited || reason == child.reason(), "sequence {code}");
                reason = child.reason();
                assert_eq!(finished == 1, child.next_deadline().is_none(), "sequence {code}");
            }
            assert!(finished <= 1, "sequence {code}");
        }
    }
}
