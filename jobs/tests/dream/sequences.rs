//! Tests random histories of a project: edits, passes, decisions, undos and process deaths in any
//! order.
//!
//! After each step, every version of an idea that no edit has overwritten still exists somewhere,
//! no id occurs twice, and an undo restores every byte. `RUNNER_TEST_SEED` repeats a history, and
//! `RUNNER_TEST_SCALE` changes the number of histories.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use runner_engine::failpoint::fail_commits_after;
use runner_jobs::dream::proposal::Action;
use runner_jobs::dream::review::{Consent, DecisionInput, DecisionRequest, IfChanged, ReviewError};

use super::fixture::Fixture;

/// A SplitMix64 random number generator.
struct Random(u64);

impl Random {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % below as u64).unwrap()
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.roll(of.len())].clone())
    }
}

const NAMES: [&str; 5] = ["a.md", "b.md", "c.md", "sub/a.md", "sub/d.md"];
const STEMS: [&str; 5] = [
    "# Retry policy with jitter\n\n## Proposal\n\n- Add jitter to every wait\n",
    "# Blog post: a night\n\n## Hook\n\nIt stopped.\n\n## Takeaways\n\nTrust nothing.\n",
    "# Offline maps\n\n## Problem\n\nNo network.\n\n## Proposal\n\n- Download the tiles of a region\n- Show how old each is\n",
    "Coffee is better in the morning, when one has slept well and the house is still quiet.\n",
    "---\ntitle: fronted\n---\n\nWindows\r\nlines without an end",
];

struct ProjectLife {
    place: Fixture,
    dice: Random,
    /// Every version of an idea that must still exist.
    ever: BTreeSet<Vec<u8>>,
    written: usize,
    log: Vec<String>,
}

impl ProjectLife {
    fn ideas(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let ideas = self.place.root.join("ideas");
        let done = ideas.join("done");
        let all = self.place.everything().into_iter();
        all.filter(|(path, _)| path.starts_with(&ideas) && !path.starts_with(&done)).collect()
    }

    /// Returns the files outside `dreams`, including ideas, archived ideas and specs.
    fn readable(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let dreams = self.place.root.join("dreams");
        let all = self.place.everything().into_iter();
        all.filter(|(path, _)| !path.starts_with(&dreams)).collect()
    }

    fn edit(&mut self) {
        let name = NAMES[self.dice.roll(NAMES.len())];
        let path = format!("ideas/{name}");
        // The edit overwrites the old content, which runner does not have to keep.
        if let Ok(old) = std::fs::read(self.place.root.join(&path)) {
            self.ever.remove(&old);
        }
        self.written += 1;
        let stem = STEMS[self.dice.roll(STEMS.len())];
        let text = format!("{stem}({})", self.written).into_bytes();
        self.place.write(&path, &text);
        self.ever.insert(text);
        self.log.push(format!("edit {path}"));
    }

    fn decide(&mut self) {
        let listed = self.place.all_proposals();
        let open: Vec<_> = listed.undecided().cloned().collect();
        let Some(item) = self.dice.pick(&open) else {
            return;
        };
        let ideas: Vec<String> = self
            .ideas()
            .iter()
            .map(|(path, _)| path.strip_prefix(&self.place.root).unwrap().display().to_string())
            .collect();
        let verdict = match self.dice.roll(6) {
            0 => DecisionInput::Reject,
            1 => DecisionInput::Skip,
            2 | 3 => DecisionInput::Accept,
            _ => DecisionInput::Amend {
                action: Action::ALL[self.dice.roll(5)],
                into: self.dice.pick(&ideas),
            },
        };
        let ask = DecisionRequest {
            id: &item.proposal.id,
            verdict,
            note: None,
            consent: Consent {
                if_changed: match self.dice.roll(3) {
                    0 => IfChanged::Proceed,
                    _ => IfChanged::Refuse,
                },
                ..Consent::default()
            },
        };
        let done = self.place.with_decider(|decider| decider.decide(&ask));
        let result = done.as_ref().map(|done| done.says.clone());
        self.log.push(format!("{ask:?}: {:?}", result.map_err(|error| error.to_string())));
    }

    /// Undoes a random decision.
    fn undo(&mut self) {
        let listed = self.place.all_proposals();
        let decided: Vec<_> =
            listed.items.iter().filter(|it| it.decision.is_some()).cloned().collect();
        let Some(item) = self.dice.pick(&decided) else {
            return;
        };
        let id = item.proposal.id;
        let done = self.place.with_decider(|decider| decider.undo(&id, IfChanged::Refuse));
        let result = done.as_ref().map(|done| done.says.clone());
        self.log.push(format!("undo {id}: {:?}", result.map_err(|error| error.to_string())));
    }

    /// Makes a decision, undoes it immediately, and checks that every idea and spec is restored.
    fn there_and_back(&mut self) {
        let listed = self.place.all_proposals();
        let open: Vec<_> = listed.undecided().filter(|it| it.stale.is_none()).cloned().collect();
        let Some(item) = self.dice.pick(&open) else {
            return;
        };
        let before = super::review::snapshot(&self.place);
        let action = Action::ALL[self.dice.roll(5)];
        let into = self.dice.pick(&open).map(|it| it.proposal.targets[0].clone());
        let ask = DecisionRequest {
            id: &item.proposal.id,
            verdict: DecisionInput::Amend { action, into },
            note: None,
            consent: Consent { if_changed: IfChanged::Refuse, ..Consent::default() },
        };
        if self.place.with_decider(|decider| decider.decide(&ask)).is_ok() {
            self.place.with_decider(|decider| decider.undo(ask.id, IfChanged::Refuse)).unwrap();
        }
        self.log.push(format!("there and back {ask:?}"));
        assert_eq!(super::review::snapshot(&self.place), before);
    }

    /// Simulates a crash during a decision or an undo. The next undo finishes the interrupted
    /// operation.
    fn die(&mut self) {
        let commits = u32::try_from(self.dice.roll(6)).unwrap();
        self.log.push(format!("dies after {commits} commits:"));
        fail_commits_after(Some(commits));
        if self.dice.roll(3) == 0 {
            self.undo()
        } else {
            self.decide()
        }
        fail_commits_after(None);
        let nobody = self.place.with_decider(|decider| decider.undo("nobody", IfChanged::Refuse));
        assert!(matches!(nobody, Err(ReviewError::NotFound(_))), "{nobody:?}");
    }

    fn nothing_is_lost(&self) {
        let everything = self.place.everything();
        for content in &self.ever {
            let held = everything.values().any(|bytes| holds(bytes, content));
            assert!(held, "lost: {:?}", String::from_utf8_lossy(content));
        }
        // Every idea, archived idea and spec contains a complete version written by the user.
        for (path, bytes) in self.readable() {
            let known = self.ever.iter().any(|content| holds(&bytes, content));
            let ours = !path.starts_with(self.place.root.join("ideas"))
                && !path.starts_with(self.place.root.join("specs"));
            assert!(known || ours, "{}", path.display());
        }
        let listed = self.place.all_proposals();
        let ids: BTreeSet<&str> = listed.items.iter().map(|it| it.proposal.id.as_str()).collect();
        assert_eq!(ids.len(), listed.items.len(), "an id occurs twice");
        assert_eq!(listed.troubles, []);
        let staging = std::fs::read_dir(self.place.root.join("dreams/.staging"));
        assert_eq!(staging.map_or(0, Iterator::count), 0, "the staging folder is not empty");
    }
}

/// Returns whether the bytes contain the complete content. Only the lines of its front matter may
/// differ.
fn holds(bytes: &[u8], content: &[u8]) -> bool {
    let within = |part: &[u8]| bytes.windows(part.len().max(1)).any(|window| window == part);
    within(content) || content.strip_prefix(b"---\ntitle: fronted\n").is_some_and(within)
}

#[test]
fn random_histories_lose_no_content() {
    let setting = |name: &str| std::env::var(name).ok();
    let seed: u64 = setting("RUNNER_TEST_SEED")
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| u64::from(std::process::id()) * 1_000_003);
    let scale: f64 = setting("RUNNER_TEST_SCALE").and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let lives = (100.0 * scale).ceil().max(1.0) as u64;
    println!("lives: RUNNER_TEST_SEED={seed}");
    let mut steps = 0;
    for number in 0..lives {
        let mut life = ProjectLife {
            place: Fixture::new(),
            dice: Random(seed.wrapping_add(number)),
            ever: BTreeSet::new(),
            written: 0,
            log: Vec::new(),
        };
        std::fs::write(life.place.root.join(".git/info/exclude"), "/ideas/\n/dreams/\n/specs/\n")
            .unwrap();
        for _ in 0..3 {
            life.edit();
        }
        let reported = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..14 {
                match life.dice.roll(10) {
                    0 | 1 => life.edit(),
                    2 | 3 => {
                        let settled = life.place.pass();
                        life.log.push(format!("pass: {}", settled.outcome));
                    }
                    4 | 5 => life.decide(),
                    6 => life.undo(),
                    7 => life.there_and_back(),
                    _ => life.die(),
                }
                life.nothing_is_lost();
                steps += 1;
            }
        }));
        if let Err(panic) = reported {
            println!(
                "RUNNER_TEST_SEED={} (life {number})\n{}",
                seed.wrapping_add(number),
                life.log.join("\n")
            );
            std::panic::resume_unwind(panic);
        }
    }
    println!("lives: {lives}, {steps} steps");
}
