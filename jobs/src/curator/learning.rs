//! Finds learnings in the events of a session: fixes, diagnoses and corrections that name a cause.
//!
//! A fix is a successful call that differs from an earlier failed call of the same kind. A sentence
//! in the session between the two calls must explain the error. A diagnosis is a stated cause with
//! a change and, if there was one, a check that passed (`diagnosis`). A correction is a statement
//! by the user, such as "always …" or "never …", that gives a reason. Nothing else is a learning,
//! so most sessions yield none. This module is pure and must never quote anything that the session
//! did not contain.

use std::collections::BTreeMap;

use runner_text::terms::terms;

use super::diagnosis::{Diagnoses, Diagnosis};
use super::lint::one_line;
use super::seed::shortened;
use crate::overnight::corpus::teaches::{cause, teaches};
use crate::sessions::transcript::{SessionEvent, SessionEventKind};

/// Maximum number of events between a failure and its fix.
const WINDOW: usize = 60;
/// Minimum length, in bytes, of a word shared by an explanation and an error.
const SHARED: usize = 4;

/// A fact from a session that is useful in later sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learning {
    /// The first and last transcript lines that the learning is about.
    pub lines: (u64, u64),
    /// The rule that found the learning: `repair`, `diagnosis` or `correction`.
    pub rule: &'static str,
    /// The title, on one line.
    pub title: String,
    /// The text of the learning in Markdown, with quotations from the session.
    pub body: String,
}

#[derive(Debug)]
struct FailedCall {
    /// The number of the event.
    at: usize,
    line: u64,
    target: String,
    /// The first informative line of the error.
    why: String,
    /// The sentence in the session that explains the error.
    cause: Option<String>,
    /// Whether a file has been changed since the failure. In that case, the change is the fix, not
    /// the next call.
    edited: bool,
}

/// Finds learnings in a sequence of events.
#[derive(Debug, Default)]
pub struct Finder {
    count: usize,
    /// Calls that have no outcome yet: tool, target and line by call id.
    open: BTreeMap<String, (String, String, u64)>,
    /// Failures that have no fix yet, by the tool and the subject of the call.
    failed: BTreeMap<(String, String), FailedCall>,
    diagnoses: Diagnoses,
    found: Vec<Learning>,
}

impl Finder {
    pub fn take(&mut self, event: &SessionEvent) {
        self.count += 1;
        self.diagnoses.at(self.count, event.line);
        match &event.what {
            SessionEventKind::Prompt(text) if !event.sidechain => {
                let found = self.diagnoses.prompted(text);
                self.diagnosed(found);
                self.correction(event.line, text);
            }
            SessionEventKind::Answer(text) => {
                self.diagnoses.answered(text);
                self.explain(text);
            }
            SessionEventKind::Call { id, tool, target, .. } => {
                if changes_files(tool) {
                    self.failed.values_mut().for_each(|failed| failed.edited = true);
                    self.diagnoses.changed(within(target, event.cwd.as_deref()));
                }
                self.open.insert(id.clone(), (tool.clone(), target.clone(), event.line));
                // Calls that never get an outcome must not accumulate.
                if self.open.len() > 10_000 {
                    self.open.pop_first();
                }
            }
            SessionEventKind::Outcome { id, failed, text } => {
                if let Some((tool, target, _)) = self.open.remove(id) {
                    match failed {
                        true => self.failed_call(event.line, (tool, target), text),
                        false => self.succeeded_call(event.line, (tool, target)),
                    }
                }
            }
            _ => {}
        }
    }

    pub fn done(mut self) -> Vec<Learning> {
        let found = self.diagnoses.ended();
        self.diagnosed(found);
        self.found
    }

    fn diagnosed(&mut self, found: Option<Diagnosis>) {
        self.found.extend(found.map(|Diagnosis { lines, title, body }| Learning {
            lines,
            rule: "diagnosis",
            title,
            body,
        }));
    }

    fn failed_call(&mut self, line: u64, (tool, target): (String, String), text: &str) {
        let why = reason(text);
        // A call rejected by the user is not a failed call.
        if !why.is_empty() && !why.contains("doesn't want to") && !why.contains("was rejected") {
            self.diagnoses.failed(&why);
            let about = about(&tool, &target);
            let at = self.count;
            let failed = FailedCall { at, line, target, why, cause: None, edited: false };
            self.failed.insert((tool, about), failed);
        }
    }

    /// Records the cause stated in `text` as the explanation of each unexplained failure whose
    /// error shares a word of at least [`SHARED`] bytes with the cause.
    fn explain(&mut self, text: &str) {
        let Some(cause) = cause(text) else { return };
        let own = terms(&cause);
        for failed in self.failed.values_mut().filter(|it| it.cause.is_none()) {
            let error = terms(&failed.why);
            let shared = error.iter().filter(|term| term.len() >= SHARED && own.contains(term));
            if shared.count() > 0 {
                failed.cause = Some(cause.clone());
            }
        }
    }

    fn succeeded_call(&mut self, line: u64, (tool, target): (String, String)) {
        if tool == "Bash" {
            let found = self.diagnoses.succeeded(&target);
            self.diagnosed(found);
        }
        let about = (tool.clone(), about(&tool, &target));
        let Some(failed) = self.failed.remove(&about) else {
            return;
        };
        // Without an explanation, or if the same call succeeded later, nothing can be learned.
        let (Some(cause), false) = (failed.cause, failed.target == target) else {
            return;
        };
        let edited = failed.edited && !changes_files(&tool);
        if self.count - failed.at > WINDOW || edited || is_read_only(&tool) {
            return;
        }
        let why = &failed.why;
        let body = format!(
            "{}\n\nThis fails:\n\n    {}\n\n> {why}\n\nUse this instead:\n\n    {}\n",
            shortened(&cause, 400),
            shortened(&failed.target, 400),
            shortened(&target, 400)
        );
        if teaches(&body).is_ok() {
            self.found.push(Learning {
                lines: (failed.line, line),
                rule: "repair",
                title: format!("{tool} {}: {}", shortened(&failed.target, 60), shortened(why, 60)),
                body,
            });
        }
    }

    fn correction(&mut self, line: u64, text: &str) {
        // Command output and pasted files were not written by the user.
        if text.starts_with('<') || text.len() > 2_000 {
            return;
        }
        let all: Vec<String> = text.split(['\n', '.', '!']).map(one_line).collect();
        let all: Vec<&String> = all.iter().filter(|sentence| !sentence.is_empty()).collect();
        for (at, said) in all.iter().enumerate() {
            let lower = said.to_lowercase();
            let count = lower.split_whitespace().count();
            let starts = [
                "no, ",
                "don't ",
                "do not ",
                "always ",
                "never ",
                "remember ",
                "please always ",
                "please never ",
                "stop ",
                "from now on",
            ];
            let holds = ["should always ", "should never ", "must always ", "must never "];
            let is = starts.iter().any(|it| lower.starts_with(it))
                || holds.iter().any(|it| lower.contains(it));
            // A question is not a correction.
            if !is || said.contains('?') || !(4..=60).contains(&count) {
                continue;
            }
            // The reason is in the same sentence or in the next one.
            let reason = match cause(said) {
                Some(_) => None,
                None => all.get(at + 1).and_then(|next| cause(next)),
            };
            let body = match reason {
                Some(reason) => format!("A person said:\n\n> {said}\n>\n> {reason}\n"),
                None => format!("A person said:\n\n> {said}\n"),
            };
            if teaches(&body).is_ok() {
                let title = shortened(said, 70);
                let lines = (line, line);
                self.found.push(Learning { lines, rule: "correction", title, body });
            }
        }
    }
}

/// Returns a path relative to the session's working directory, if the path is inside that
/// directory.
fn within<'a>(path: &'a str, cwd: Option<&str>) -> &'a str {
    let below = |cwd: &str| path.strip_prefix(cwd)?.strip_prefix('/');
    cwd.and_then(below).unwrap_or(path)
}

/// Returns whether a tool changes a file.
fn changes_files(tool: &str) -> bool {
    matches!(tool, "Edit" | "MultiEdit" | "Write" | "NotebookEdit")
}

/// Returns whether a tool only reads. A different call to such a tool is not a fix.
fn is_read_only(tool: &str) -> bool {
    matches!(tool, "Read" | "Grep" | "Glob" | "LS")
}

/// Returns the common part of calls with the same intent: the program and its first arguments, or
/// the file.
fn about(tool: &str, target: &str) -> String {
    if tool != "Bash" {
        return target.to_owned();
    }
    let last = target.rsplit("&&").next().unwrap_or(target);
    let words: Vec<&str> = last.split_whitespace().filter(|word| !word.contains('=')).collect();
    // The third word of these commands names the action.
    let deep = ["gh", "docker", "kubectl", "aws", "gcloud", "npm", "pnpm", "yarn"];
    let count = match words.first() {
        Some(first) if deep.contains(first) => 3,
        _ => 2,
    };
    words.into_iter().take(count).collect::<Vec<_>>().join(" ")
}

/// Returns the first informative line of an error message.
fn reason(text: &str) -> String {
    let says = |line: &&str| {
        !line.is_empty()
            && !line.starts_with("Exit code")
            && !line.starts_with("<")
            && !line.starts_with("Traceback")
    };
    let line = text.lines().map(str::trim).find(says).unwrap_or_default();
    one_line(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: u64, what: SessionEventKind) -> SessionEvent {
        SessionEvent { line, at: None, cwd: None, branch: None, sidechain: false, row: None, what }
    }

    fn call(line: u64, id: &str, target: &str, failed: bool, text: &str) -> [SessionEvent; 2] {
        let called = SessionEventKind::Call {
            id: id.into(),
            tool: "Bash".into(),
            target: target.into(),
            written: String::new(),
        };
        let came = SessionEventKind::Outcome { id: id.into(), failed, text: text.into() };
        [event(line, called), event(line + 1, came)]
    }

    #[test]
    fn fixes_and_corrections_are_found() {
        let mut finder = Finder::default();
        let mut events = Vec::new();
        events.extend(call(
            1,
            "a",
            "cargo test --all",
            true,
            "Exit code 101\nerror: no such feature",
        ));
        events.extend(call(3, "b", "ls", false, "x"));
        // Without this explanation, the fix is not a learning.
        events.push(event(
            4,
            SessionEventKind::Answer(
                "The feature flag is missing because only the workspace declares it.".into(),
            ),
        ));
        events.extend(call(5, "c", "cargo test --workspace", false, "ok"));
        events.extend(call(7, "d", "git push", true, "The user doesn't want to proceed"));
        events.extend(call(9, "e", "git push", false, "ok"));
        // A file was changed before the second call, so the call is not the fix.
        events.extend(call(30, "h", "go test -run One", true, "panic: nil map in parser"));
        let text = "The parser panics because the map is never made.";
        events.push(event(32, SessionEventKind::Answer(text.into())));
        let (id, tool, target) = ("i".into(), "Edit".into(), "parser.go".into());
        events.push(event(33, SessionEventKind::Call { id, tool, target, written: String::new() }));
        events.extend(call(34, "j", "go test -run All", false, "ok"));
        events.push(event(
            36,
            SessionEventKind::Prompt("That is fine, since it never changes, right?".into()),
        ));
        // A different subcommand of the same program is not a fix.
        events.extend(call(20, "f", "gh pr diff 3 x", true, "accepts at most 1 arg"));
        events.extend(call(22, "g", "gh pr view 3", false, "ok"));
        events.push(event(
            11,
            SessionEventKind::Prompt("Never commit to main without asking me, because main deploys itself. Thanks. Always add a test."
                    .into()),
        ));
        events.push(event(
            12,
            SessionEventKind::Prompt("<command>always never do this thing</command>".into()),
        ));
        for event in &events {
            finder.take(event);
        }
        let found = finder.done();
        let reported: Vec<(u64, u64, &str)> =
            found.iter().map(|it| (it.lines.0, it.lines.1, it.rule)).collect();
        assert_eq!(reported, [(2, 6, "repair"), (11, 11, "correction")]);
        assert!(
            found[0].title.contains("no such feature")
                && found[0].body.contains("cargo test --workspace")
                && found[0].body.contains("only the workspace declares it")
        );
    }
}
