//! Pairs the calls of a transcript with their outcomes: one stream of [`Event`]s for all tasks.
//!
//! A session keeps at most [`MOST`] events. Older ones are dropped and counted, so memory use
//! does not depend on the length of a session. This module must never keep the output of a call: an
//! error is immediately reduced to its signature.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use jiff::Timestamp;
use runner_text::redact::Redacted;

use super::imports::{ImportForm, forms};
use super::shell;
pub use super::shell::Action;
use super::signature::{Signature, check_failed, refusal, signature};
use super::transcript::{SessionEvent, SessionEventKind};

/// Maximum number of events to analyze per session.
pub const MOST: usize = 20_000;
/// Maximum number of calls awaiting their outcome.
const OPEN: usize = 1_000;
/// Maximum length of a target in bytes.
const TARGET: usize = 1_000;
/// Maximum length of injected text in bytes.
const INJECTED: usize = 16 * 1024;

/// One event of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The 1-based line number in the transcript.
    pub line: u64,
    pub at: Option<Timestamp>,
    /// The number of prompts up to this event.
    pub turn: u32,
    pub action: Action,
    /// The name of the tool, as it appears in the transcript. Empty for everything but calls.
    pub tool: String,
    /// The command, the path relative to the session's folder, or the injected text.
    pub target: String,
    /// The program of a command and its first arguments. Empty for everything but commands.
    pub subject: String,
    pub outcome: Outcome,
    /// How the file that was read or written orders its imports.
    pub imports: Vec<ImportForm>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The transcript has no outcome, or the event is not a call.
    Open,
    Passed,
    /// The user or a rule refused the call.
    Denied,
    Failed(Signature),
}

impl Event {
    /// Returns the error's signature if the call failed.
    pub fn error(&self) -> Option<&Signature> {
        match &self.outcome {
            Outcome::Failed(signature) => Some(signature),
            _ => None,
        }
    }

    /// Returns whether the event is a tool call.
    pub fn is_call(&self) -> bool {
        !matches!(self.action, Action::Prompt | Action::Answer | Action::Injection)
    }

    /// Returns the part that calls with the same intent share: the tool and its target, or for
    /// commands, the program and its leading arguments.
    pub fn about(&self) -> (&str, &str) {
        let what = if self.tool == "Bash" { &self.subject } else { &self.target };
        (&self.tool, what)
    }
}

/// A session, as described by its transcript.
#[derive(Clone, Debug, Default)]
pub struct Session {
    pub events: Vec<Event>,
    /// The number of older events that were left out.
    pub left_out: u64,
    /// The last line that counts for another session, or 0 if there is none.
    pub shared_until: u64,
    /// The working directory at the start.
    pub cwd: Option<String>,
    /// The last git branch mentioned in the transcript.
    pub branch: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// The combined number of compactions and summaries.
    pub summaries: u64,
}

impl Session {
    /// Returns the events that count for this session.
    pub fn own(&self) -> &[Event] {
        &self.events[self.events.partition_point(|event| event.line <= self.shared_until)..]
    }
}

/// Collects the events of a session.
#[derive(Debug, Default)]
pub struct Collector {
    events: VecDeque<Event>,
    session: Session,
    /// The calls without an outcome, keyed by id: the position of the call's first event, counted
    /// from the session's first event, and the number of its events.
    open: HashMap<String, (u64, u64)>,
    turn: u32,
}

impl Collector {
    /// Adds the next event of the transcript.
    pub fn take(&mut self, from: SessionEvent) {
        let SessionEvent { line, at, cwd, branch, sidechain, what, row: _ } = from;
        self.session.cwd = self.session.cwd.take().or(cwd);
        self.session.branch = branch.or(self.session.branch.take());
        self.session.started_at = self.session.started_at.or(at);
        self.session.ended_at = self.session.ended_at.max(at);
        let mut event = Event {
            line,
            at,
            turn: self.turn,
            action: Action::Other,
            tool: String::new(),
            target: String::new(),
            subject: String::new(),
            outcome: Outcome::Open,
            imports: Vec::new(),
        };
        match what {
            SessionEventKind::Prompt(text) => {
                // The agent's program adds the output of its own commands in tags. This output is
                // not a prompt.
                if sidechain || text.starts_with(['<', '[']) || text.starts_with("Caveat:") {
                    return;
                }
                self.turn += 1;
                event.turn = self.turn;
                event.action = Action::Prompt;
            }
            SessionEventKind::Answer(_) if !sidechain => event.action = Action::Answer,
            SessionEventKind::Injected(text) => {
                event.action = Action::Injection;
                event.target = Redacted::of(&text).head(INJECTED).into_string();
            }
            SessionEventKind::Call { id, tool, target, written } => {
                event.imports = forms(&target, &written);
                return self.call(event, &id, tool, &target);
            }
            SessionEventKind::Outcome { id, failed, text } => {
                return self.outcome(&id, failed, &text);
            }
            SessionEventKind::Summary(_) => {
                self.session.summaries += 1;
                return;
            }
            SessionEventKind::Answer(_) | SessionEventKind::Other(_) => return,
        }
        self.push(event);
    }

    fn call(&mut self, event: Event, id: &str, tool: String, target: &str) {
        let action = action(&tool, target);
        // A patch changes several files, one per line.
        let targets: Vec<&str> = match action {
            Action::Edit => target.lines().collect(),
            _ => vec![target],
        };
        let first = self.session.left_out + self.events.len() as u64;
        for target in &targets {
            let target = match action {
                Action::Read | Action::Edit => self.below(target),
                _ => target,
            };
            let target = target[..target.floor_char_boundary(TARGET)].to_owned();
            let subject = if tool == "Bash" { shell::subject(&target) } else { String::new() };
            self.push(Event { action, tool: tool.clone(), target, subject, ..event.clone() });
        }
        if id.is_empty() {
            return;
        }
        if self.open.len() == OPEN {
            // The oldest call is the least likely to still get an outcome.
            let oldest =
                self.open.iter().min_by_key(|(_, place)| place.0).map(|(id, _)| id.clone());
            oldest.map(|id| self.open.remove(&id));
        }
        self.open.insert(id.to_owned(), (first, targets.len() as u64));
    }

    fn outcome(&mut self, id: &str, failed: bool, text: &str) {
        let Some((first, count)) = self.open.remove(id) else { return };
        for at in first..first + count {
            let at = at.checked_sub(self.session.left_out).and_then(|at| usize::try_from(at).ok());
            let Some(event) = at.and_then(|at| self.events.get_mut(at)) else { continue };
            // A pipe may hide a check's exit code, so the check's output is inspected too.
            let failed = failed || event.action == Action::Check && check_failed(text);
            if event.tool == "Read" && !failed {
                event.imports = forms(&event.target, text);
            }
            event.outcome = match failed {
                false => Outcome::Passed,
                true if refusal(text) => Outcome::Denied,
                true => Outcome::Failed(signature(&event.tool, &event.target, text)),
            };
        }
    }

    fn push(&mut self, event: Event) {
        if self.events.len() == MOST {
            self.events.pop_front();
            self.session.left_out += 1;
        }
        self.events.push_back(event);
    }

    /// Returns a path relative to the session's folder, or unchanged if it is outside.
    fn below<'p>(&self, path: &'p str) -> &'p str {
        let cwd = self.session.cwd.as_deref().unwrap_or_default();
        let below = Path::new(path).strip_prefix(cwd).ok().and_then(Path::to_str);
        below.filter(|_| !cwd.is_empty()).unwrap_or(path)
    }

    pub fn done(self) -> Session {
        Session { events: self.events.into(), ..self.session }
    }
}

fn action(tool: &str, target: &str) -> Action {
    match tool {
        "Read" | "Grep" | "Glob" | "LS" | "NotebookRead" | "LSP" | "read_file" | "list_dir" => {
            Action::Read
        }
        "Edit" | "Write" | "MultiEdit" | "NotebookEdit" => Action::Edit,
        "Bash" => shell::action(target),
        _ => Action::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_calls_are_paired_despite_many_open_ones() {
        let mut collector = Collector::default();
        let event = |what| SessionEvent {
            line: 1,
            at: None,
            cwd: None,
            branch: None,
            sidechain: false,
            row: None,
            what,
        };
        let call = |id: usize| SessionEventKind::Call {
            id: id.to_string(),
            tool: "Read".into(),
            target: "a.rs".into(),
            written: String::new(),
        };
        let outcome = |id: usize| SessionEventKind::Outcome {
            id: id.to_string(),
            failed: false,
            text: "fn a() {}".into(),
        };
        for id in 0..=OPEN {
            collector.take(event(call(id)));
        }
        collector.take(event(outcome(OPEN)));
        collector.take(event(outcome(0)));
        let events = collector.done().events;
        assert_eq!(events[OPEN].outcome, Outcome::Passed);
        assert_eq!(events[0].outcome, Outcome::Open, "the oldest call was given up");
    }
}
