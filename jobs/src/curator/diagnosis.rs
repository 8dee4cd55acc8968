//! Finds diagnoses in a session: a stated cause, the change that followed from it, and the check
//! that passed afterwards, if any.
//!
//! A session contains many guesses. Hedged guesses are ignored, a later guess replaces an earlier
//! one, and a guess is kept only if the session described a change and made it. A diagnosis that no
//! check confirmed is dropped if the user's next prompt objects to it. This module is pure and must
//! never quote anything that the session did not contain.

use runner_text::terms::terms;

use super::lint::one_line;
use super::seed::shortened;
use crate::overnight::corpus::teaches::sentences;

/// Maximum number of events between a stated cause and the event that completes its diagnosis.
const WINDOW: usize = 150;
/// Minimum number of words in a stated cause.
const CAUSE_WORDS: usize = 6;
/// Minimum length, in bytes, of a term shared by an error and a cause.
const SHARED: usize = 4;
/// Maximum number of changed files. A change to more files is unlikely to result from one stated
/// cause.
const FILES: usize = 4;
/// Nouns that introduce a stated cause.
const NOUNS: [&str; 6] = ["issue", "problem", "bug", "reason", "cause", "root cause"];
/// Words that indicate an objection.
const OBJECTS: [&str; 14] = [
    "no",
    "not",
    "still",
    "wrong",
    "but",
    "doesn't",
    "didn't",
    "isn't",
    "error",
    "fails",
    "failed",
    "interrupted",
    "hmm",
    "undefined",
];
/// Words and phrases that express doubt.
const DOUBTS: [&str; 9] =
    ["likely", "probably", "perhaps", "maybe", "might", "i think", "could be", "seems", "possibly"];
/// Words in commands that check a change.
const CHECKS: [&str; 16] = [
    "test",
    "tests",
    "check",
    "build",
    "lint",
    "vet",
    "clippy",
    "pytest",
    "jest",
    "vitest",
    "tsc",
    "mypy",
    "ruff",
    "eslint",
    "typecheck",
    "commit",
];

/// Words that may precede the verb of a change.
const LEADS: [&str; 20] = [
    "let", "me", "i", "ll", "ve", "we", "need", "needs", "to", "should", "must", "will", "now",
    "so", "the", "fix", "fixed", "is", "by", "solution",
];
/// Verbs that announce a change. Verbs of inspection are not included.
const CHANGES: &[&str] = &[
    "add",
    "added",
    "allow",
    "call",
    "change",
    "changed",
    "convert",
    "converted",
    "create",
    "created",
    "define",
    "disable",
    "disabled",
    "drop",
    "dropped",
    "enable",
    "enabled",
    "exclude",
    "extend",
    "handle",
    "ignore",
    "include",
    "move",
    "moved",
    "normalize",
    "parse",
    "pass",
    "quote",
    "remove",
    "removed",
    "rename",
    "renamed",
    "replace",
    "replaced",
    "set",
    "skip",
    "switch",
    "switched",
    "update",
    "updated",
    "use",
    "wrap",
    "wrapped",
];
/// Words and phrases that mark a change made only for investigation.
const INVESTIGATES: [&str; 10] = [
    "figure out",
    "find out",
    "to see",
    "debug",
    "investigate",
    "understand",
    "summary",
    "timing",
    "logging",
    "make sure",
];
/// Minimum number of words in an announced change.
const ACT_WORDS: usize = 5;

/// A diagnosis that was followed by changes to files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The lines of the statement and of the event that completed the diagnosis.
    pub lines: (u64, u64),
    /// The cause, on one line.
    pub title: String,
    /// The situation (as a quotation), the cause, the change and the check, in Markdown.
    pub body: String,
}

/// A diagnosis that is waiting for a change or a check.
#[derive(Debug)]
struct Open {
    at: usize,
    line: u64,
    situation: String,
    cause: String,
    act: Option<String>,
    files: Vec<String>,
}

/// Finds diagnoses in a sequence of events.
#[derive(Debug, Default)]
pub struct Diagnoses {
    /// The user's last request, and the last error.
    request: String,
    error: String,
    open: Option<Open>,
    /// The number and the line of the current event.
    last: (usize, u64),
}

impl Diagnoses {
    /// Sets the number and the line of the event that is processed next.
    pub fn at(&mut self, count: usize, line: u64) {
        self.last = (count, line);
    }

    /// Processes a user's prompt. Returns the open diagnosis if the described change was made and
    /// the user does not object.
    pub fn prompted(&mut self, text: &str) -> Option<Diagnosis> {
        let lower = text.to_lowercase();
        let mut words = lower.split(|c: char| !c.is_alphanumeric() && c != '\'');
        let objects = words.any(|word| OBJECTS.contains(&word));
        let found = self.finish("No check succeeded afterwards.").filter(|_| !objects);
        self.open = None;
        self.request = shortened(&one_line(text), 300);
        self.error.clear();
        found
    }

    /// Records the error from a failed call.
    pub fn failed(&mut self, error: &str) {
        self.error = shortened(error, 300);
    }

    /// Processes an answer. Opens a diagnosis if the answer states a cause. Otherwise, adds the
    /// described change to the open diagnosis.
    pub fn answered(&mut self, text: &str) {
        let sentences: Vec<String> = sentences(text).into_iter().map(plain).collect();
        let found = sentences.iter().rposition(|sentence| stated(sentence).is_some());
        let act =
            sentences.iter().skip(found.map_or(0, |at| at + 1)).find(|it| is_act(it)).cloned();
        match found.and_then(|at| stated(&sentences[at])) {
            Some(cause) => {
                let (at, line) = self.last;
                let situation = self.situation(&cause);
                self.open = Some(Open { at, line, situation, cause, act, files: Vec::new() });
            }
            None => {
                if let Some(open) = self.open.as_mut().filter(|open| open.act.is_none()) {
                    open.act = act;
                }
            }
        }
    }

    /// Returns the last error if it shares a term with the cause, or else the last request.
    fn situation(&self, cause: &str) -> String {
        let own = terms(cause);
        let error = terms(&self.error);
        match error.iter().any(|term| term.len() >= SHARED && own.contains(term)) {
            true => self.error.clone(),
            false => self.request.clone(),
        }
    }

    /// Records that the session changed a file.
    pub fn changed(&mut self, path: &str) {
        if let Some(open) = &mut self.open
            && !open.files.iter().any(|known| known == path)
        {
            open.files.push(path.to_owned());
        }
    }

    /// Records that a command succeeded, and returns the diagnosis that it confirms, if any.
    pub fn succeeded(&mut self, command: &str) -> Option<Diagnosis> {
        if !is_check(command) {
            return None;
        }
        self.finish(&format!("Afterwards `{}` succeeded.", shortened(&one_line(command), 120)))
    }

    /// Returns the open diagnosis at the end of the session, if the described change was made.
    pub fn ended(&mut self) -> Option<Diagnosis> {
        self.finish("No check succeeded afterwards.")
    }

    /// Closes the open diagnosis if the session described a change and changed files. Returns the
    /// diagnosis unless it exceeds [`WINDOW`] or [`FILES`] or has no situation.
    fn finish(&mut self, check: &str) -> Option<Diagnosis> {
        if let Some(open) = &mut self.open {
            // If the described change mentions only other files, another description must follow.
            let own = |act: &String| open.files.is_empty() || names_only(act, &open.files);
            open.act = open.act.take().filter(own);
        }
        let ready = |open: &mut Open| !open.files.is_empty() && open.act.is_some();
        let Open { at, line, situation, cause, act, files } = self.open.take_if(ready)?;
        if self.last.0 - at > WINDOW || files.len() > FILES || situation.is_empty() {
            return None;
        }
        let body = format!(
            "The situation:\n\n> {situation}\n\nThe cause: {cause}\n\nWhat was done: {}\n\nChanged: {}. {check}\n",
            act?,
            files.join(", "),
        );
        Some(Diagnosis { lines: (line, self.last.1), title: shortened(&cause, 90), body })
    }
}

/// Returns the cause that a sentence states without hedging, as a sentence of its own.
fn stated(sentence: &str) -> Option<String> {
    let lower = sentence.to_lowercase();
    if sentence.contains('?') || DOUBTS.iter().any(|doubt| lower.contains(doubt)) {
        return None;
    }
    let words: Vec<&str> = sentence.split_whitespace().collect();
    // The statement begins after "the issue is that" or "root cause:".
    let (head, rest) = match words.iter().take(6).position(|word| *word == "that") {
        Some(at) => (words[..at].join(" ").to_lowercase(), &words[at + 1..]),
        None => {
            let at = words.iter().take(4).position(|word| word.ends_with(':'))?;
            (words[..=at].join(" ").to_lowercase(), &words[at + 1..])
        }
    };
    let head = head.trim_end_matches(':').trim_start_matches("the ");
    let head = head.trim_start_matches("real ").trim_end_matches(" is").trim_end_matches(" was");
    if !NOUNS.contains(&head) || !(CAUSE_WORDS..=60).contains(&rest.len()) {
        return None;
    }
    let mut rest = rest.join(" ");
    if let Some(first) = rest.get(..1) {
        rest.replace_range(..1, &first.to_uppercase());
    }
    Some(rest)
}

/// Returns a sentence on one line, without bold, list or heading markers.
fn plain(sentence: &str) -> String {
    let marks = |c: char| c.is_whitespace() || "-*#>0123456789.".contains(c);
    one_line(&sentence.trim_start_matches(marks).replace("**", ""))
}

/// Returns whether a sentence describes a change.
fn is_act(sentence: &str) -> bool {
    let lower = sentence.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let count = words.clone().count();
    let verb = words.find(|word| !LEADS.contains(word));
    !INVESTIGATES.iter().any(|it| lower.contains(it))
        && (ACT_WORDS..=60).contains(&count)
        && verb.is_some_and(|verb| CHANGES.contains(&verb))
}

/// Returns whether a sentence mentions at least one of the files, or no file with any of their
/// extensions. A sentence that mentions only other files describes a different change.
fn names_only(sentence: &str, files: &[String]) -> bool {
    let end = |name: &str| name.rsplit_once('.').map(|(_, end)| end.to_owned());
    let kinds: Vec<String> = files.iter().filter_map(|file| end(file)).collect();
    let words = sentence.split(|c: char| c.is_whitespace() || "`'\"(),:;".contains(c));
    let words = words.map(|word| word.trim_end_matches('.'));
    let mut named =
        words.filter(|word| end(word).is_some_and(|end| kinds.contains(&end))).peekable();
    named.peek().is_none() || named.any(|name| files.iter().any(|file| file.ends_with(name)))
}

/// Returns whether a command checks the project's state.
fn is_check(command: &str) -> bool {
    let words = command.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    words.take(40).any(|word| CHECKS.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSE: &str = "**The issue is that** the cache file is opened before its folder exists.";
    const ACT: &str = "I'll create the folder before the file is opened.";

    /// Plays a session and returns the bodies of the diagnoses found. An event is a prompt (`p`),
    /// an answer (`a`), an error (`x`), an edited file (`e`) or a successful command (`c`).
    fn play(events: &[(char, &str)]) -> Vec<String> {
        let mut diagnoses = Diagnoses::default();
        let mut found = Vec::new();
        for (at, (kind, text)) in events.iter().enumerate() {
            diagnoses.at(at, at as u64 + 1);
            match kind {
                'p' => found.extend(diagnoses.prompted(text)),
                'a' => diagnoses.answered(text),
                'x' => diagnoses.failed(text),
                'e' => diagnoses.changed(text),
                _ => found.extend(diagnoses.succeeded(text)),
            }
        }
        found.extend(diagnoses.ended());
        found.into_iter().map(|one| one.body).collect()
    }

    #[test]
    fn confirmed_cause_names_situation_change_and_check() {
        let error = "open cache/a.bin: no such file";
        let found = play(&[
            ('p', "run the job"),
            ('x', error),
            ('a', &format!("{CAUSE} {ACT}")),
            ('e', "src/a.rs"),
            ('c', "cargo test --lib"),
        ]);
        assert_eq!(found.len(), 1);
        for part in [error, "The cache file is opened", ACT, "src/a.rs", "cargo test"] {
            assert!(found[0].contains(part), "{part}: {}", found[0]);
        }
    }

    #[test]
    fn guesses_and_rejected_changes_yield_no_diagnosis() {
        let answer = format!("{CAUSE} {ACT}");
        let doubted = answer.replace("is opened", "is probably opened");
        let unchanged = [('p', "run it"), ('a', answer.as_str()), ('c', "cargo test")];
        let undescribed = [('p', "run it"), ('a', CAUSE), ('e', "a.rs"), ('c', "cargo test")];
        let guessed = [('p', "run it"), ('a', &doubted), ('e', "a.rs"), ('c', "cargo test")];
        let probed = answer.replace(ACT, "Let me add some output to figure out the order.");
        let probed = [('p', "run it"), ('a', &probed), ('e', "a.rs"), ('c', "cargo test")];
        let refused = [('p', "run it"), ('a', &answer), ('e', "a.rs"), ('p', "it still crashes")];
        let elsewhere = answer.replace(ACT, "I'll create the folder in `src/main.rs` before that.");
        let elsewhere = [('p', "run it"), ('a', &elsewhere), ('e', "a.rs"), ('c', "cargo test")];
        for session in [&unchanged[..], &undescribed, &guessed, &probed, &refused, &elsewhere] {
            assert_eq!(play(session), Vec::<String>::new(), "{session:?}");
        }
    }

    #[test]
    fn prompt_without_objection_yields_diagnosis() {
        let answer = format!("{CAUSE} {ACT}");
        let found =
            play(&[('p', "run it"), ('a', &answer), ('e', "a.rs"), ('p', "thanks, commit")]);
        assert!(found[0].contains("No check succeeded afterwards."), "{found:?}");
    }
}
