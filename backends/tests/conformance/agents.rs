//! Runs scripts in the suite that imitate agent programs by writing their event streams.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use runner_backends::build;
use serde_json::json;

use super::{CANARY, Case, OUTPUT_CAP, Situation as S, around, spec};

/// The folder that contains the scripts.
pub const FAKES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fakes");

pub fn claude(situation: S, place: &Path) -> Option<Case> {
    agent("claude", situation, place)
}

pub fn codex(situation: S, place: &Path) -> Option<Case> {
    agent("codex", situation, place)
}

fn agent(kind: &str, situation: S, place: &Path) -> Option<Case> {
    // Agents answer only on their event streams, not in files.
    if matches!(situation, S::GoodInAFile | S::LinkedFile | S::HalfFile) {
        return None;
    }
    let calls = place.join("calls");
    let fifo = place.join("fifo");
    let begun = (situation == S::CancelledMidway).then(|| {
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
        fifo.clone()
    });
    let env: BTreeMap<String, String> = [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", place.to_str().unwrap()),
        ("SECRET", CANARY),
        ("CALLS", calls.to_str().unwrap()),
        ("FIFO", fifo.to_str().unwrap()),
        ("SITUATION", &format!("{situation:?}")),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let mut names = ["SECRET", "CALLS", "FIFO", "SITUATION"].map(str::to_owned).to_vec();
    if situation == S::MissingVariable {
        names.push("NOBODY_SET_THIS".to_owned());
    }
    let program = match situation {
        S::MissingProgram => "no-such-agent".to_owned(),
        _ => format!("{FAKES}/{kind}"),
    };
    let settings = json!({ "program": program, "env": names, "output_cap": OUTPUT_CAP });
    Some(Case {
        backend: build(&spec(kind, settings), &around(&env)).unwrap(),
        // The scripts return the question's rule-based answer.
        answer: |request| request.rule_answer.clone(),
        calls: Box::new(move || fs::read_to_string(&calls).map_or(0, |text| text.lines().count())),
        begun,
    })
}
