//! Measures the dream pass: what the rule says of labelled ideas, and what a pass over unchanged
//! ideas costs.
//!
//! ```text
//! dream_bench rule REPO [TRUTH.json]    verdicts on all ideas of a repository
//! dream_bench unchanged REPO            a pass over REPO/ideas of which none has changed
//! ```
//!
//! `TRUTH.json` is an array of `{idea, folder, commits: [{hash}]}`; where `REPO/.git` has a file
//! `original-hashes.tsv`, its second column is what a hash of the first is called in REPO.

#![allow(clippy::print_stdout, clippy::disallowed_methods, missing_docs)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Instant;

use runner_engine::git::Git;
use runner_jobs::dream::parked::Parked;
use runner_jobs::dream::proposal::{Action, Status};
use runner_jobs::dream::state::{Change, State, Triaged};
use runner_jobs::dream::survey::{Reader, survey};
use runner_jobs::dream::verdicts::{One, judge_all};
use runner_jobs::dream::{DreamSpec, delta};
use runner_jobs::evidence::{Bounds, Room};
use runner_jobs::{Silent, dream::rule};
use serde_json::Value;

type Done = Result<(), Box<dyn Error>>;

fn main() -> Done {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["rule", repo] => rule(Path::new(repo), None),
        ["rule", repo, truth] => rule(Path::new(repo), Some(Path::new(truth))),
        ["unchanged", repo] => unchanged(Path::new(repo)),
        _ => Err("usage: dream_bench rule REPO [TRUTH.json] | unchanged REPO".into()),
    }
}

fn rule(root: &Path, truth: Option<&Path>) -> Done {
    let spec = DreamSpec::default();
    let env: BTreeMap<String, String> = std::env::vars().collect();
    let start = Instant::now();
    let survey = survey(root, &spec, Path::new("/nonexistent"))?;
    println!(
        "surveyed {} ideas in {:.0?}",
        survey.ideas.len(),
        start.elapsed()
    );
    let start = Instant::now();
    let room = Room::open(&Git::new(root, &env, "bench"), &Bounds::default())?;
    println!(
        "read and indexed {} commits in {:.0?}",
        room.history().len(),
        start.elapsed()
    );
    let start = Instant::now();
    let all: Vec<usize> = (0..survey.ideas.len()).collect();
    let reader = Reader::open(root, spec.max_idea_bytes)?;
    let mut troubles = Vec::new();
    let judged = judge_all(
        &survey.ideas,
        &all,
        &reader,
        &room,
        &mut troubles,
        &mut Silent,
    )?;
    println!(
        "judged {} ideas in {:.0?}, peak {} MB",
        judged.shown.len(),
        start.elapsed(),
        peak()
    );
    for status in Status::ALL {
        let count = judged
            .shown
            .iter()
            .filter(|one| one.verdict.status == status)
            .count();
        println!("  {:15} {count}", status.word());
    }
    match truth {
        Some(truth) => table(root, &room, &judged.shown, truth),
        None => Ok(()),
    }
}

/// Class, ideas, proposed implemented, with a true commit among the cited, with one in the top 3.
fn table(root: &Path, room: &Room, shown: &[One], truth: &Path) -> Done {
    let renamed: HashMap<String, String> =
        fs::read_to_string(root.join(".git/original-hashes.tsv"))
            .unwrap_or_default()
            .lines()
            .filter_map(|line| {
                line.split_once('\t')
                    .map(|(a, b)| (a.to_owned(), b.to_owned()))
            })
            .collect();
    let truth: Vec<Value> = serde_json::from_str(&fs::read_to_string(truth)?)?;
    let by_path: HashMap<&str, &One> = shown.iter().map(|one| (one.path.as_str(), one)).collect();
    let mut rows: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for label in &truth {
        let path = label["idea"].as_str().unwrap_or_default();
        let Some(one) = by_path.get(path) else {
            continue;
        };
        let commits: HashSet<&str> = label["commits"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|commit| commit["hash"].as_str())
            .map(|hash| renamed.get(hash).map_or(hash, String::as_str))
            .collect();
        let folder = label["folder"].as_str().unwrap_or_default();
        let class = match (commits.is_empty(), folder) {
            (false, _) => "commits known",
            (true, "released" | "future-complete") => "shipped, commits unknown",
            _ => "open",
        };
        let archived = one.verdict.action == Action::Archive;
        let true_one = |hash: &str| commits.iter().any(|full| full.starts_with(hash));
        let cited = archived
            && one
                .verdict
                .evidence
                .split("; ")
                .any(|it| true_one(it.split(' ').next().unwrap_or("?")));
        let top = one
            .grounds
            .candidates
            .iter()
            .take(3)
            .any(|it| true_one(room.commit(it).short()));
        let row = rows.entry(class).or_default();
        for (cell, yes) in row.iter_mut().zip([true, archived, cited, top]) {
            *cell += usize::from(yes);
        }
        let best = one.grounds.candidates.first();
        let (strength, named) = best.map_or((0.0, 0.0), |best| (best.strength, best.named));
        let wrong = match class {
            "open" => archived,
            "commits known" => !cited,
            _ => false,
        };
        if wrong || class == "open" {
            let mark = if wrong { '!' } else { ' ' };
            println!(
                "{mark} {class:14} {path} {} {} strength {strength:.2} named {named:.2} top {top}: {}",
                one.verdict.status.word(),
                one.verdict.action.word(),
                one.verdict.evidence
            );
        }
    }
    println!(
        "\n{:26}{:>6}{:>13}{:>12}{:>12}",
        "class", "ideas", "implemented", "true cited", "true top 3"
    );
    for (class, [ideas, archived, cited, top]) in rows {
        println!("{class:26}{ideas:>6}{archived:>13}{cited:>12}{top:>12}");
    }
    println!(
        "threshold {} ({} declared, {} open)",
        rule::IMPLEMENTED,
        rule::IMPLEMENTED_DECLARED,
        rule::IMPLEMENTED_OPEN
    );
    Ok(())
}

/// The second of two passes, as far as it goes when nothing has changed.
fn unchanged(root: &Path) -> Done {
    let spec = DreamSpec::default();
    let folder = std::env::temp_dir().join(format!("dream-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (cache, state_file) = (folder.join("cache"), folder.join("state.json"));
    if std::env::var_os("DREAM_BENCH_KEPT").is_none() {
        let start = Instant::now();
        let first = survey(root, &spec, &cache)?;
        println!(
            "first survey: {} ideas, {} read, {:.0?}",
            first.ideas.len(),
            first.read,
            start.elapsed()
        );
        fs::write(&cache, first.cache.unwrap_or_default())?;
        let now = jiff::Timestamp::UNIX_EPOCH;
        let changes: BTreeMap<&str, Change> = first
            .ideas
            .iter()
            .map(|idea| {
                let triaged = Triaged {
                    hash: idea.digest,
                    modified: now,
                    merit: 0.5,
                };
                (
                    &*idea.path,
                    Change {
                        surfaced: now,
                        triaged: Some(triaged),
                    },
                )
            })
            .collect();
        fs::write(&state_file, State::default().with(&changes))?;
        // The second pass is a process of its own, so that its peak is its own.
        let again = std::process::Command::new(std::env::current_exe()?)
            .args(["unchanged".as_ref(), root.as_os_str()])
            .env("DREAM_BENCH_KEPT", &folder)
            .status()?;
        fs::remove_dir_all(&folder)?;
        return again
            .success()
            .then_some(())
            .ok_or_else(|| "the second pass failed".into());
    }
    let folder = std::env::var_os("DREAM_BENCH_KEPT")
        .map(std::path::PathBuf::from)
        .unwrap_or_default();
    let start = Instant::now();
    let bytes = fs::read(folder.join("state.json"))?;
    let state = State::parse(&bytes)?;
    let parsed = start.elapsed();
    let second = survey(root, &spec, &folder.join("cache"))?;
    let surveyed = start.elapsed();
    let delta = delta::select(&second.ideas, &state, &Parked::default(), spec.max_ideas);
    println!(
        "second pass: state of {} entries {parsed:.0?}, survey {:.0?} ({} read, cache written: {}), delta {:.0?}, all {:.0?}, \
         {} selected, peak {} MB",
        state.len(),
        surveyed - parsed,
        second.read,
        second.cache.is_some(),
        start.elapsed() - surveyed,
        start.elapsed(),
        delta.selected.len(),
        peak()
    );
    Ok(())
}

/// The most memory that this process ever had, in MB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap_or_default();
    line.split_whitespace()
        .next()
        .and_then(|kb| kb.parse::<u64>().ok())
        .unwrap_or(0)
        / 1024
}
