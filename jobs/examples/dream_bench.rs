//! Measures the time and memory of a pass over unchanged ideas.
//!
//! ```text
//! dream_bench REPO      a pass over REPO/ideas in which no idea has changed
//! ```
//!
//! `runner dream bench` measures the quality of the answers.

#![allow(clippy::print_stdout, clippy::disallowed_methods, missing_docs)]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Instant;

use runner_jobs::dream::inventory::take_inventory;
use runner_jobs::dream::quarantine::Quarantine;
use runner_jobs::dream::state::{DreamState, IdeaUpdate, Triaged};
use runner_jobs::dream::{DreamSpec, Selection, delta};

type Done = Result<(), Box<dyn Error>>;

fn main() -> Done {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [repo] => unchanged(Path::new(repo)),
        _ => Err("usage: dream_bench REPO".into()),
    }
}

/// Measures a second pass over ideas that have not changed since the first pass.
fn unchanged(root: &Path) -> Done {
    let spec = DreamSpec::default();
    let folder = std::env::temp_dir().join(format!("dream-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (cache, state_file) = (folder.join("cache"), folder.join("state.json"));
    if std::env::var_os("DREAM_BENCH_KEPT").is_none() {
        let start = Instant::now();
        let first = take_inventory(root, &spec, &cache)?;
        println!(
            "first survey: {} ideas, {} read, {:.0?}",
            first.ideas.len(),
            first.read,
            start.elapsed()
        );
        fs::write(&cache, first.cache.unwrap_or_default())?;
        let now = jiff::Timestamp::UNIX_EPOCH;
        let changes: BTreeMap<&str, IdeaUpdate> = first
            .ideas
            .iter()
            .map(|idea| {
                let triaged = Triaged { hash: idea.digest, modified: now, merit: 0.5 };
                (&*idea.path, IdeaUpdate { at: now, shown: true, triaged: Some(triaged) })
            })
            .collect();
        fs::write(&state_file, DreamState::default().with(&changes))?;
        // The second pass runs in a separate process, so that its peak memory is measured alone.
        let again = std::process::Command::new(std::env::current_exe()?)
            .arg(root)
            .env("DREAM_BENCH_KEPT", &folder)
            .status()?;
        fs::remove_dir_all(&folder)?;
        return again.success().then_some(()).ok_or_else(|| "the second pass failed".into());
    }
    let folder =
        std::env::var_os("DREAM_BENCH_KEPT").map(std::path::PathBuf::from).unwrap_or_default();
    let start = Instant::now();
    let bytes = fs::read(folder.join("state.json"))?;
    let state = DreamState::parse(&bytes)?;
    let parsed = start.elapsed();
    let second = take_inventory(root, &spec, &folder.join("cache"))?;
    let surveyed = start.elapsed();
    let delta = delta::select(
        &second.ideas,
        &state,
        &Quarantine::default(),
        Selection::Changed,
        spec.max_ideas,
    );
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

/// Returns the peak memory of this process, in MB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024
}
