//! The settings of cycles and of agents at work.
//!
//! Must never let two cycles share one agent: they would share its position.

use std::collections::BTreeMap;

use runner_engine::placement::RelPath;
use runner_jobs::KindSpec;
use runner_jobs::lifecycle::cycle::CycleSpec;
use runner_jobs::lifecycle::spec::Kind;
use runner_jobs::lifecycle::work::WorkSpec;

use super::job::{Job, NEVER, target};
use super::sources::{Mistake, Sources, wrong};
use super::trigger::When;

/// The longest name of an agent; it becomes a folder's.
const LONGEST_NAME: usize = 40;

/// What an agent of a kind does, of the kind's word.
pub(super) fn kind_of(word: &str) -> Option<Kind> {
    let works = |kind: &Kind| *kind != Kind::Rem && kind.word() == word;
    Kind::ALL.into_iter().find(works)
}

/// What of these settings cannot be worked with: the key, and why.
pub(super) fn check_cycle(spec: &CycleSpec) -> Result<(), (&'static str, String)> {
    if let Some(path) = &spec.cycle {
        RelPath::new(path).map_err(|error| ("cycle", error.to_string()))?;
    }
    common(&spec.agent, &spec.board, spec.writes.as_deref())
}

/// The same of an agent at work.
pub(super) fn check_work(spec: &WorkSpec) -> Result<(), (&'static str, String)> {
    common(&spec.agent, &spec.board, spec.writes.as_deref())
}

fn common(
    agent: &str,
    board: &str,
    writes: Option<&[String]>,
) -> Result<(), (&'static str, String)> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    if agent.len() > LONGEST_NAME || !agent.chars().all(good) {
        let why = format!(
            "{agent:?} is no name of an agent (small letters, digits, - and _, {LONGEST_NAME} at most)"
        );
        return Err(("agent", why));
    }
    RelPath::new(board).map_err(|error| ("board", error.to_string()))?;
    let first = board.split('/').next().unwrap_or(board);
    if let Some(never) = NEVER.iter().find(|never| never.eq_ignore_ascii_case(first)) {
        return Err(("board", format!("{board:?}: no board lies in {never}")));
    }
    for path in writes.iter().copied().flatten().filter(|path| *path != ".") {
        target(path).map_err(|why| ("writes", why))?;
    }
    Ok(())
}

/// Refuses what only shows when all jobs are there.
pub(super) fn check(jobs: &BTreeMap<String, Job>, sources: &Sources) -> Result<(), Mistake> {
    let mut agents: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, job) in jobs {
        match &job.spec.kind {
            KindSpec::Cycle(cycle) => {
                if job.when == When::Lifecycle {
                    let why = "a lifecycle is what ticks: give it a clock, like \"every 10m\"";
                    return Err(wrong(sources, &format!("jobs.{name}.trigger"), why));
                }
                if let Some(other) = agents.insert(&cycle.agent, name) {
                    let why = format!(
                        "{other} is the cycle of the same agent, and they would share its position; \
                         give this one another agent"
                    );
                    return Err(wrong(sources, &format!("jobs.{name}"), &why));
                }
            }
            _ if job.when == When::Lifecycle && !in_cycle(job.spec.kind.word()) => {
                let why = "only jobs of the kinds wake, audit, rem and plan follow a lifecycle";
                return Err(wrong(sources, &format!("jobs.{name}.trigger"), why));
            }
            _ => {}
        }
    }
    Ok(())
}

fn in_cycle(word: &str) -> bool {
    Kind::ALL.iter().any(|kind| kind.word() == word)
}
