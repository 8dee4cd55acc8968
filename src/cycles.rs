//! Resolves an agent's cycle: its declaration, the agent's position, and the job settings that the
//! current state overrides.
//!
//! This module must never change a position.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::SignedDuration;
use runner_engine::store::Budget;
use runner_jobs::JobSpec;
use runner_jobs::lifecycle::cycle::{AgentPosition, CycleSpec, declared, parsed};
use runner_jobs::lifecycle::daydream::DaydreamSpec;
use runner_jobs::lifecycle::position;
use runner_jobs::lifecycle::prompts::prompt_file;
use runner_jobs::lifecycle::rem::{AnswerForm, RemSpec};
use runner_jobs::lifecycle::spec::{Spec, StateKind};
use runner_jobs::lifecycle::work::WorkSpec;

use crate::config::{Config, TriggerSpec};
use crate::env;
use crate::ui::Failure;

/// The environment variable with the path of the file that declares the cycle. It overrides the
/// `cycle` setting of every agent.
const DEFINITION: &str = "WB_LIFECYCLE_DEF";
/// The environment variable with the minimum time between two dreams, in milliseconds.
const INTERVAL: &str = "WB_DREAM_MIN_INTERVAL_MS";
/// The environment variable with the name of the model for dreams.
const MODEL: &str = "WB_DREAM_MODEL";

fn variable(name: &str) -> Option<String> {
    env::setting(name).and_then(|value| value.into_string().ok())
}

/// Returns the file that declares a cycle, or `None` for the built-in cycle.
pub fn file(cycle: &CycleSpec) -> Option<String> {
    variable(DEFINITION).or_else(|| cycle.cycle.clone())
}

pub fn cycle_of(root: &Path, cycle: &CycleSpec) -> Result<Spec, Failure> {
    cycle_with(root, cycle, &BTreeMap::new())
}

/// Returns the checked contents of the file that a `prompt` setting names, or the setting itself if
/// it does not name a file in `texts`.
fn checked(prompt: String, texts: &BTreeMap<String, String>) -> String {
    let text = prompt_file(&prompt).and_then(|file| texts.get(file));
    // The line feed marks the result as text rather than a file name.
    text.map_or_else(|| prompt.clone(), |text| format!("{}\n", text.trim_end()))
}

fn cycle_with(
    root: &Path,
    cycle: &CycleSpec,
    texts: &BTreeMap<String, String>,
) -> Result<Spec, Failure> {
    let file = file(cycle);
    let checked = file.as_ref().and_then(|file| Some((file, texts.get(file)?)));
    let found = match checked {
        Some((file, text)) => parsed(file, text),
        None => declared(root, file.as_deref()),
    };
    let mut spec = found.map_err(|error| {
        Failure::configuration(error.to_string()).hint("runner lifecycle check")
    })?;
    if let Some(least) = interval()? {
        let dreams = spec.states.iter_mut().filter(|it| it.kind == StateKind::Rem);
        dreams.for_each(|state| state.min_interval = Some(least));
    }
    Ok(spec)
}

/// Returns the minimum time between two dreams, if the environment sets one.
fn interval() -> Result<Option<SignedDuration>, Failure> {
    let Some(millis) = variable(INTERVAL) else { return Ok(None) };
    let least = millis.parse().ok().map(SignedDuration::from_millis);
    let least = least.filter(|least| !least.is_negative());
    least.map(Some).ok_or_else(|| {
        Failure::configuration(format!("{INTERVAL} must be milliseconds, but is {millis:?}"))
    })
}

/// Replaces the instruction files of a lifecycle job with their checked contents, and applies the
/// environment variables. For a cycle job, also reads the agent's position and applies the settings
/// of the current state to `job`. The state's own settings take precedence over those of the
/// agent's enabled job that has the same kind and the `lifecycle` trigger.
///
/// `texts` contains the instruction files, keyed by path, as they were when the user's acceptance
/// was checked. These versions are used instead of the files on disk, which may have changed since
/// then.
pub fn resolve(
    root: &Path,
    config: &mut Config,
    job: &mut JobSpec,
    texts: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    if let Some(rem) = job.kind.of_mut::<RemSpec>() {
        if let Some(least) = interval()? {
            let minutes = (least.as_secs() + 59) / 60;
            rem.interval_minutes = u32::try_from(minutes).unwrap_or(u32::MAX);
        }
        rem.prompt = rem.prompt.take().map(|prompt| checked(prompt, texts));
        set_dream_model(config, &job.backend);
    }
    if let Some(daydream) = job.kind.of_mut::<DaydreamSpec>() {
        daydream.prompt = daydream.prompt.take().map(|prompt| checked(prompt, texts));
    }
    if let Some(work) = job.kind.of_mut::<WorkSpec>() {
        work.prompt = work.prompt.take().map(|prompt| checked(prompt, texts));
    }
    let Some(cycle) = job.kind.of_mut::<CycleSpec>() else { return Ok(()) };
    let spec = cycle_with(root, cycle, texts)?;
    let position = position::read(root, &cycle.agent, &spec).map_err(|error| {
        Failure::environment(runner_engine::error_chain::whole(&error))
            .hint(position::reset(&cycle.agent, &spec.first().name))
    })?;
    let mut now = AgentPosition { spec, position, prompt: None, answer: AnswerForm::default() };
    let state = now.state().clone();
    let follows = config.jobs.values().find(|it| {
        let kind = &it.spec.kind;
        let work = kind.of::<WorkSpec>().map(|work| work.agent.as_str());
        let rem = kind.of::<RemSpec>().map(|rem| rem.agent.as_deref().unwrap_or_default());
        let same = work.or(rem).is_some_and(|agent| agent == cycle.agent);
        it.enabled
            && it.when == TriggerSpec::Lifecycle
            && it.spec.kind.name() == state.kind.as_str()
            && same
    });
    if let Some(follows) = follows {
        job.backend.clone_from(&follows.spec.backend);
        job.budget = follows.spec.budget;
        job.total = follows.spec.total;
        if let Some(work) = follows.spec.kind.of::<WorkSpec>() {
            now.prompt.clone_from(&work.prompt);
            cycle.writes.clone_from(&work.writes);
        }
        if let Some(rem) = follows.spec.kind.of::<RemSpec>() {
            now.answer = rem.answer;
            now.prompt.clone_from(&rem.prompt);
        }
    }
    now.prompt = state.prompt.or(now.prompt).map(|prompt| checked(prompt, texts));
    job.backend = state.backend.unwrap_or_else(|| job.backend.clone());
    if let Some(timeout) = state.timeout {
        job.total = timeout;
        job.budget.seconds = Some(timeout.as_secs());
    }
    job.budget = overlaid(job.budget, state.budget);
    cycle.now = Some(now);
    if state.kind == StateKind::Rem {
        set_dream_model(config, &job.backend);
    }
    Ok(())
}

/// Sets a backend's model to the one in `WB_DREAM_MODEL`, if the variable is set. A backend
/// that answers by rule or from a recording has no model.
fn set_dream_model(config: &mut Config, backend: &str) {
    if let (Some(model), Some(backend)) = (variable(MODEL), config.backends.get_mut(backend))
        && !backend.is_builtin()
    {
        backend.kind.set_model(model);
    }
}

fn overlaid(under: Budget, own: Budget) -> Budget {
    Budget {
        calls: own.calls.or(under.calls),
        tokens: own.tokens.or(under.tokens),
        micros: own.micros.or(under.micros),
        seconds: own.seconds.or(under.seconds),
        ideas: own.ideas.or(under.ideas),
    }
}
