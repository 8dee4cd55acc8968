//! Other items awaiting human attention: everything left by a night except dream proposals and
//! packets.
//!
//! Such an item is a journal entry whose verdicts move the board, a draft of an idea, a provisional
//! learning, or an event that needs attention, each with its command. The items are read from the
//! files that the runs published, from the curator's events, and from the runs' counts. A file that
//! no longer exists is never listed, and a critical event is listed until a person acknowledges it.

use std::path::Path;

use runner_engine::ids::ProjectId;
use runner_engine::store::{Store, StoreError};
use runner_text::{counted, shell_word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::run_line::RunLine;
use crate::curator::events::{self, CriticalEvents, Event};
use crate::curator::{CuratorSpec, KIND as CURATOR};
use crate::dream::inventory::Reader;
use crate::dream::proposal::clean;

/// Maximum size, in bytes, of a file whose title is read.
const LARGEST: u64 = 1024 * 1024;
/// Maximum number of items in the report.
const MOST: usize = 100;

/// The kind of an item, in the order of the report.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum PendingSort {
    Draft,
    Event,
    #[serde(rename = "journal entry")]
    JournalEntry,
    Learning,
}

impl PendingSort {
    /// Returns the display name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Event => "event",
            Self::JournalEntry => "journal entry",
            Self::Learning => "learning",
        }
    }
}

/// An item awaiting human attention.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct PendingItem {
    pub sort: PendingSort,
    /// The job that left the item.
    pub job: String,
    /// The title or the file of the item.
    pub what: String,
    /// Why the item needs attention.
    pub why: String,
    pub command: String,
}

/// Returns the curator's folder from the configuration stored in the database, or the default
/// folder if an earlier build did not store one.
pub(super) fn curator_folder(store: &Store, project: &ProjectId) -> Result<String, StoreError> {
    #[derive(Deserialize)]
    struct Kept {
        worker_dir: String,
    }
    let kept = store.projections(Some(project))?;
    let kept = kept.get(project).and_then(|text| serde_json::from_str::<Kept>(text).ok());
    Ok(kept.map_or_else(|| CuratorSpec::default().worker_dir, |kept| kept.worker_dir))
}

/// Reads the open critical events of the project at `root`. `folder` is the curator's folder.
fn critical(root: &Path, folder: &str) -> Vec<PendingItem> {
    let item = |what: String, why: String, command: String| PendingItem {
        sort: PendingSort::Event,
        job: CURATOR.to_owned(),
        what,
        why,
        command,
    };
    let read = "runner curator events".to_owned();
    let CriticalEvents { open, unreadable, .. } = match events::critical(root, folder) {
        Ok(events) => events.unwrap_or_default(),
        Err(error) => {
            let why = clean(&format!("they cannot be read: {error}"), 200);
            return vec![item("the events".to_owned(), why, read)];
        }
    };
    let lost = (unreadable > 0).then(|| {
        let what = format!("{} of the events", counted(unreadable, "line"));
        item(what, "they could not be parsed".to_owned(), read)
    });
    let item = |event: &Event| {
        let what = format!("the critical event: {}", clean(&event.desired_action, 200));
        let command = format!("runner curator events show {}", shell_word(clean(&event.id, 200)));
        item(what, "nobody has acknowledged it".to_owned(), command)
    };
    open.iter().map(item).chain(lost).collect()
}

/// Reads the items left by these runs, and the open critical events from the curator's folder, and
/// orders them by kind.
pub(super) fn read(root: &Path, runs: &[RunLine], curator_folder: &str) -> Vec<PendingItem> {
    let Ok(reader) = Reader::open(root, LARGEST) else {
        return Vec::new();
    };
    let title = |path: &str| {
        let (bytes, _) = reader.read(path).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let head = text.lines().find_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("# ").or_else(|| line.strip_prefix("#+TITLE:")).map(str::to_owned)
        });
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        Some(clean(&head.unwrap_or(name), 200))
    };
    let mut all = critical(root, curator_folder);
    for run in runs {
        let mut push = |sort, what: String, why: &str, command: String| {
            all.push(PendingItem {
                sort,
                job: run.job.clone(),
                what,
                why: why.to_owned(),
                command,
            });
        };
        for path in &run.artifacts {
            let is = |kind: &str, end: &str| run.kind == kind && path.ends_with(end);
            let manifest = path.ends_with("manifest.json");
            if is("rem", ".org") && !manifest {
                if let Some(what) = title(path) {
                    let why = "its verdicts move the board once they are applied";
                    push(PendingSort::JournalEntry, what, why, "runner board apply".to_owned());
                }
            } else if is(CURATOR, ".md") {
                let learning = path.split('/').any(|part| part == "learnings");
                let Some(what) = title(path) else {
                    continue;
                };
                match learning {
                    true => push(
                        PendingSort::Learning,
                        what,
                        "provisional, until it passes the gate",
                        "runner corpus close-loop --dry-run".to_owned(),
                    ),
                    false => push(
                        PendingSort::Draft,
                        what,
                        "keep it, change it or delete it",
                        format!("$EDITOR {}", shell_word(path)),
                    ),
                }
            }
        }
        let raised = run.facts.get("raised").and_then(Value::as_u64).unwrap_or(0);
        if run.kind == CURATOR && raised > 0 {
            let what = counted(raised, "new event");
            let why = "a person should read and acknowledge each one";
            push(PendingSort::Event, what, why, "runner curator events".to_owned());
        }
    }
    all.sort_by_key(|it| it.sort);
    all.truncate(MOST);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curator::events::{NewEvent, Severity};
    use crate::curator::queue::Worker;
    use crate::report::sample_tests as sample;
    use std::fs;

    #[test]
    fn pending_items_name_their_commands() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("rem/1.org", "#+TITLE: A quiet night\n"),
            ("ideas/draft.md", "---\ngenerated_by: runner\n---\n# Ship\u{202e} it\n"),
            (".agents/learnings/l.md", "no title\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut rem = sample::run("rem", "rem");
        rem.artifacts = vec!["rem/1.org".into(), "rem/manifest.json".into()];
        let mut curator = sample::run("curator", "curator");
        curator.artifacts =
            ["ideas/draft.md", ".agents/learnings/l.md", "ideas/gone.md"].map(str::to_owned).into();
        curator.facts.insert("raised".into(), 2.into());
        let worker = Worker::of(root.path(), ".c").unwrap();
        let now = "2026-11-22T02:30:00Z".parse().unwrap();
        let raise = |severity, action: &str| {
            let event = NewEvent {
                source: "ci".into(),
                severity,
                desired_action: action.into(),
                escalation_target: "me".into(),
                budget: 0,
                note: None,
            };
            events::raise(&worker, event, None, now).unwrap().id
        };
        let id = raise(Severity::Critical, "restore the backup");
        let over = raise(Severity::Critical, "over");
        raise(Severity::High, "less urgent");
        events::record_outcome(&worker, &over, "ack", "seen", now).unwrap();
        let pending = root.path().join(".c/events/pending.jsonl");
        let torn = fs::read_to_string(&pending).unwrap() + "{\"id\":\n";
        fs::write(&pending, torn).unwrap();
        let reported = read(root.path(), &[rem, curator], ".c");
        let show = format!("runner curator events show {id}");
        let all: Vec<(&str, &str, &str)> = reported
            .iter()
            .map(|it| (it.sort.as_str(), it.what.as_str(), it.command.as_str()))
            .collect();
        assert_eq!(
            all,
            [
                ("draft", "Ship it", "$EDITOR ideas/draft.md"),
                ("event", "the critical event: restore the backup", &show),
                ("event", "1 line of the events", "runner curator events"),
                ("event", "2 new events", "runner curator events"),
                ("journal entry", "A quiet night", "runner board apply"),
                ("learning", "l.md", "runner corpus close-loop --dry-run"),
            ]
        );
    }
}
