//! Other items awaiting human attention: everything left by a night except dream proposals and
//! packets.
//!
//! Such an item is a journal entry whose verdicts move the board, a draft of an idea, a provisional
//! learning, or an event that needs attention, each with the command that shows it. The items are
//! read from the files that the runs published and from the runs' counts. A file that no longer
//! exists is never listed.

use std::path::Path;

use runner_text::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::proposals::shell_word;
use super::run_line::RunLine;
use crate::dream::inventory::Reader;
use crate::dream::proposal::clean;
use crate::overnight::night::CRITICAL_EVENTS;

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

/// Reads the items left by these runs. The kinds are in a fixed order.
pub(super) fn read(root: &Path, runs: &[RunLine]) -> Vec<PendingItem> {
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
    let mut all = Vec::new();
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
            } else if is("curator", ".md") {
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
        for event in run.facts.get(CRITICAL_EVENTS).and_then(Value::as_array).into_iter().flatten()
        {
            let text = |name: &str| clean(event[name].as_str().unwrap_or_default(), 200);
            let command = format!("runner curator events show {}", shell_word(&text("id")));
            let what = format!("the critical event: {}", text("what"));
            push(PendingSort::Event, what, "nobody has acknowledged it", command);
        }
        let raised = run.facts.get("raised").and_then(Value::as_u64).unwrap_or(0);
        if run.kind == "curator" && raised > 0 {
            let what = counted(raised, "new event");
            let why = "a person should look at it";
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
        let reported = read(root.path(), &[rem, curator]);
        let all: Vec<(&str, &str, &str)> = reported
            .iter()
            .map(|it| (it.sort.as_str(), it.what.as_str(), it.command.as_str()))
            .collect();
        assert_eq!(
            all,
            [
                ("draft", "Ship it", "$EDITOR ideas/draft.md"),
                ("event", "2 new events", "runner curator events"),
                ("journal entry", "A quiet night", "runner board apply"),
                ("learning", "l.md", "runner corpus close-loop --dry-run"),
            ]
        );
    }
}
