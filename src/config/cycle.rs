//! The settings of cycles and of agents at work.
//!
//! Must never let two cycles share one agent: they would share its position.

use std::collections::BTreeMap;

use runner_engine::publish::RelPath;
use runner_jobs::KindSpec;
use runner_jobs::lifecycle::cycle::CycleSpec;
use runner_jobs::lifecycle::spec::StateKind;
use runner_jobs::lifecycle::work::WorkSpec;

use super::job::{self, Job, JobContext, NEVER, target};
use super::paths;
use super::sources::{ConfigMistake, Sources, wrong};
use super::trigger::TriggerSpec;
use toml::Table;

/// The longest name of an agent; it becomes a folder's.
const LONGEST_NAME: usize = 40;

/// Returns the state kind of an agent's work by its name. Dreams are not among them.
pub(super) fn kind_of(word: &str) -> Option<StateKind> {
    let works = |kind: &StateKind| *kind != StateKind::Rem && kind.as_str() == word;
    StateKind::ALL.into_iter().find(works)
}

/// Checks the settings of a cycle. The error holds the key and the reason.
pub(super) fn check_cycle(spec: &CycleSpec) -> Result<(), (&'static str, String)> {
    if let Some(path) = &spec.cycle {
        RelPath::new(path).map_err(|error| ("cycle", error.to_string()))?;
    }
    common(&spec.agent, &spec.board, spec.writes.as_deref())
}

/// Checks the settings of a working agent. The error holds the key and the reason.
pub(super) fn check_work(spec: &WorkSpec) -> Result<(), (&'static str, String)> {
    common(&spec.agent, &spec.board, spec.writes.as_deref())
}

/// Checks the agent and the board of a job that only dreams.
pub(super) fn check_names(agent: &str, board: &str) -> Result<(), (&'static str, String)> {
    common(agent, board, None)
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
    if let Some(never) = paths::reserved(board, &NEVER) {
        return Err(("board", format!("{board:?}: no board lies in {never}")));
    }
    for path in writes.iter().copied().flatten().filter(|path| *path != ".") {
        target(path).map_err(|why| ("writes", why))?;
    }
    Ok(())
}

/// Creates the implicit dreams: each job that wakes an agent with no cycle and no dream is followed
/// by one. The dream is a run of its own, so it can neither delay nor fail that job.
pub(super) fn dreams_after(
    jobs: &BTreeMap<String, Job>,
    around: &JobContext<'_>,
) -> Result<Vec<(String, Job)>, ConfigMistake> {
    let named = |agent: &str| {
        Some(agent)
            .filter(|agent| !agent.is_empty())
            .map(str::to_owned)
    };
    let dreams = |agent: &str| {
        jobs.values().any(|job| match &job.spec.kind {
            KindSpec::Cycle(cycle) => cycle.agent == agent,
            KindSpec::Rem(rem) => rem.agent == named(agent),
            _ => false,
        })
    };
    let mut out = Vec::new();
    for (name, job) in jobs.iter().filter(|(_, job)| job.enabled) {
        let KindSpec::Work(work) = &job.spec.kind else {
            continue;
        };
        let own = format!("{name}-rem");
        let alone = work.kind == StateKind::Wake && job.when != TriggerSpec::Lifecycle;
        if !alone || dreams(&work.agent) || jobs.contains_key(&own) || !super::good_name(&own) {
            continue;
        }
        let mut table = Table::new();
        let mut put = |key: &str, value: String| table.insert(key.to_owned(), value.into());
        put("kind", StateKind::Rem.as_str().to_owned());
        put("trigger", format!("after {name} ends"));
        put("backend", job.spec.backend.clone());
        if let Some(agent) = named(&work.agent) {
            put("agent", agent);
        }
        let dream = job::job(&own, table, around)?;
        out.push((own, dream));
    }
    Ok(out)
}

/// Refuses what only shows when all jobs are there.
pub(super) fn check(jobs: &BTreeMap<String, Job>, sources: &Sources) -> Result<(), ConfigMistake> {
    let mut agents: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, job) in jobs {
        match &job.spec.kind {
            KindSpec::Cycle(cycle) => {
                if job.when == TriggerSpec::Lifecycle {
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
            _ if job.when == TriggerSpec::Lifecycle && !in_cycle(job.spec.kind.as_str()) => {
                let why = "only jobs of the kinds wake, audit, rem and plan follow a lifecycle";
                return Err(wrong(sources, &format!("jobs.{name}.trigger"), why));
            }
            _ => {}
        }
    }
    Ok(())
}

fn in_cycle(word: &str) -> bool {
    StateKind::ALL.iter().any(|kind| kind.as_str() == word)
}
