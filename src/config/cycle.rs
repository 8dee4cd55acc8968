//! Checks the settings of cycles and of agents, and creates their implicit rem and daydream jobs.
//!
//! This module must never let two cycles share one agent, because they would also share the agent's
//! position.

use std::collections::BTreeMap;

use runner_jobs::lifecycle::cycle::CycleSpec;
use runner_jobs::lifecycle::daydream::DaydreamSpec;
use runner_jobs::lifecycle::rem::RemSpec;
use runner_jobs::lifecycle::spec::StateKind;
use runner_jobs::lifecycle::work::WorkSpec;

use super::BackendSpec;
use super::job::{self, Job, JobContext};
use super::reader::Reader;
use super::shape::good_name;
use super::trigger::TriggerSpec;
use toml::{Table, Value};

/// Creates the implicit rem jobs. One follows each enabled wake job outside a cycle whose agent has
/// neither a cycle nor a rem job. It is a separate run, so it can neither delay the wake job nor
/// make it fail.
pub(super) fn dreams_after(
    jobs: &BTreeMap<String, Job>,
    around: &JobContext<'_>,
    reader: &mut Reader<'_>,
) -> Vec<(String, Job)> {
    let dreams = |agent: &str| {
        jobs.values().any(|job| {
            let kind = &job.spec.kind;
            let cycle = kind.of::<CycleSpec>();
            let rem = kind.of::<RemSpec>();
            cycle.is_some_and(|cycle| cycle.agent == agent)
                || rem.is_some_and(|rem| rem.agent.as_deref().unwrap_or_default() == agent)
        })
    };
    let mut out = Vec::new();
    for (name, job) in jobs.iter().filter(|(_, job)| job.enabled) {
        let Some(work) = job.spec.kind.of::<WorkSpec>() else { continue };
        let own = format!("{name}-rem");
        let alone = work.kind == StateKind::Wake && job.when != TriggerSpec::Lifecycle;
        if !alone || dreams(&work.agent) || jobs.contains_key(&own) || !good_name(&own) {
            continue;
        }
        let rem = StateKind::Rem.as_str();
        let settings = [
            ("backend", job.spec.backend.as_str()),
            ("agent", work.agent.as_str()),
            ("board", work.board.as_str()),
        ];
        out.extend(follower(name, rem, &settings, around, reader));
    }
    out
}

/// Creates the implicit daydream jobs. For each agent that has a model and no daydream job, one
/// follows one of the agent's enabled jobs.
pub(super) fn daydreams_after(
    jobs: &BTreeMap<String, Job>,
    backends: &BTreeMap<String, BackendSpec>,
    around: &JobContext<'_>,
    reader: &mut Reader<'_>,
) -> Vec<(String, Job)> {
    let agent_of = |job: &Job| {
        let cycle = job.spec.kind.of::<CycleSpec>().map(|cycle| cycle.agent.clone());
        let alone = job.when != TriggerSpec::Lifecycle;
        let work = job.spec.kind.of::<WorkSpec>().filter(|_| alone);
        cycle.or_else(|| work.map(|work| work.agent.clone()))
    };
    let daydreams = jobs.values().filter_map(|job| job.spec.kind.of::<DaydreamSpec>());
    let mut done: Vec<String> = daydreams.map(|it| it.agent.clone().unwrap_or_default()).collect();
    let mut out = Vec::new();
    for (name, job) in jobs.iter().filter(|(_, job)| job.enabled) {
        let Some(agent) = agent_of(job).filter(|agent| !done.contains(agent)) else { continue };
        // The backend of the agent's rem job is preferred, because it is usually the cheapest.
        let rem = jobs.values().find(|other| {
            let rem = other.spec.kind.of::<RemSpec>();
            rem.is_some_and(|rem| rem.agent.as_deref().unwrap_or_default() == agent)
        });
        let backend = &rem.unwrap_or(job).spec.backend;
        let is_model = backends.get(backend).is_some_and(|backend| !backend.is_builtin());
        let own = format!("{name}-daydream");
        if !is_model || jobs.contains_key(&own) || !good_name(&own) {
            continue;
        }
        let settings = [("backend", backend.as_str()), ("agent", agent.as_str())];
        out.extend(follower(name, "daydream", &settings, around, reader));
        done.push(agent);
    }
    out
}

/// Reads an implicit job `NAME-KIND` that follows the job `name` and has these other settings. An
/// empty setting is left out.
fn follower(
    name: &str,
    kind: &str,
    settings: &[(&str, &str)],
    around: &JobContext<'_>,
    reader: &mut Reader<'_>,
) -> Option<(String, Job)> {
    let own = format!("{name}-{kind}");
    let trigger = format!("after {name} ends");
    let common = [("kind", kind), ("trigger", trigger.as_str())];
    let all = common.iter().chain(settings).filter(|(_, value)| !value.is_empty());
    let table = all.map(|(key, value)| ((*key).to_owned(), Value::from(*value)));
    reader.put_job(&own, table.collect::<Table>());
    job::job(&own, around, reader).map(|job| (own, job))
}

/// Checks the combinations of jobs, which is possible only after all jobs have been read.
pub(super) fn check(jobs: &BTreeMap<String, Job>, reader: &mut Reader<'_>) {
    let mut agents: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, job) in jobs {
        let trigger = format!("jobs.{name}.trigger");
        match job.spec.kind.of::<CycleSpec>() {
            Some(cycle) => {
                if job.when == TriggerSpec::Lifecycle {
                    let why = "a lifecycle job cannot have this trigger; use a schedule, like \"every 10m\"";
                    reader.wrong(&trigger, why);
                }
                if let Some(other) = agents.insert(&cycle.agent, name) {
                    let why = format!(
                        "job {other:?} has the same agent, so both would share its position; set \
                         another `agent`"
                    );
                    reader.wrong(&format!("jobs.{name}"), why);
                }
            }
            None if job.when == TriggerSpec::Lifecycle && !in_cycle(job.spec.kind.name()) => {
                let why = "only jobs of the kinds wake, audit, rem and plan can have this trigger";
                reader.wrong(&trigger, why);
            }
            None => {}
        }
    }
}

fn in_cycle(word: &str) -> bool {
    StateKind::ALL.iter().any(|kind| kind.as_str() == word)
}
