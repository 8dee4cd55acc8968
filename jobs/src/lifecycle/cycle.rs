//! Runs one tick of an agent's cycle: does the current state's work and advances the agent's
//! position.
//!
//! The next position is staged with the state's files, so either both are published or neither is.
//! A failed run therefore leaves the position unchanged. A run is skipped if its state's gate is
//! closed. This module must never stage a position before the state's work has succeeded.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use runner_engine::digest::Digest;
use runner_engine::files::read_text_named;
use runner_engine::outcome::{Class, Outcome};
use runner_engine::publish::RelPath;
use runner_engine::scope::Expect;
use runner_text::org::BoardForm;
use runner_text::values::read_folders;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::manifest;
use super::position::{self, BadPosition, Position};
use super::rem::{self, AnswerForm, RemSpec};
use super::spec::{self, CycleState, Spec, SpecError, StateKind};
use super::step::{CycleStep, TickFacts, step};
use super::work::{self, WorkSpec};
use super::{Files, files};
use crate::dry_run::DryRunPlan;
use crate::failmark;
use crate::kind::{BadSetting, Kind, ProjectSettings, Targets, Works, given_input};
use crate::{Context, Finished, JobError};

/// The recording key for the cycle's failures.
const FAILURES: &str = "failures";

/// The settings of an agent's cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CycleSpec {
    /// The agent, which has its own position and journal. Default: the agent without a name.
    pub agent: String,
    /// The file that declares the cycle, in org or Markdown. Default: the built-in cycle.
    pub cycle: Option<String>,
    /// The board, in org or Markdown.
    pub board: String,
    /// The paths in the project that the agents may write; "." is the whole project except the
    /// paths reserved for runner, git and agents. Default: ["."].
    #[serde(deserialize_with = "read_folders")]
    #[schemars(with = "Option<Vec<String>>")]
    pub writes: Option<Vec<String>>,
    /// The project's settings for the lifecycle's files.
    #[serde(skip)]
    pub files: Files,
    /// The agent's position, which the program reads when a run begins.
    #[serde(skip)]
    pub now: Option<AgentPosition>,
}

impl Default for CycleSpec {
    fn default() -> Self {
        Self {
            agent: String::new(),
            cycle: None,
            board: super::BOARD.to_owned(),
            writes: None,
            files: Files::default(),
            now: None,
        }
    }
}

/// An agent's position in its cycle, together with that cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentPosition {
    /// The cycle that was declared when the position was read.
    pub spec: Spec,
    /// The current state and the number of its successful runs since it was entered.
    pub position: Position,
    /// The current state's prompt, or `None` for the built-in prompt.
    pub prompt: Option<String>,
    /// The format of a dream's answer.
    #[serde(default)]
    pub answer: AnswerForm,
}

impl AgentPosition {
    pub fn state(&self) -> &CycleState {
        self.spec.state(&self.position.state).unwrap_or_else(|| self.spec.first())
    }
}

impl CycleSpec {
    /// Returns the settings for a dream in this cycle.
    fn rem(&self, now: &AgentPosition) -> RemSpec {
        RemSpec {
            answer: now.answer,
            prompt: now.prompt.clone(),
            agent: Some(self.agent.clone()).filter(|agent| !agent.is_empty()),
            board: self.board.clone(),
            files: self.files.clone(),
            ..RemSpec::default()
        }
    }

    /// Returns the agent's position, or `None` if it was not read or the current state is a dream.
    fn working_state(&self) -> Option<&AgentPosition> {
        let now = self.now.as_ref()?;
        (now.state().kind != StateKind::Rem).then_some(now)
    }

    /// Returns the current state, or `None` if the position was not read.
    pub fn state(&self) -> Option<&CycleState> {
        self.now.as_ref().map(AgentPosition::state)
    }

    /// Returns the settings for the current state's work.
    pub fn work(&self, now: &AgentPosition) -> WorkSpec {
        let state = now.state();
        WorkSpec {
            agent: self.agent.clone(),
            board: self.board.clone(),
            prompt: now.prompt.clone(),
            writes: self.writes.clone(),
            kind: state.kind,
            files: self.files.clone(),
            about: state.about.clone(),
        }
    }
}

/// Why a cycle cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadCycle {
    #[error("cannot read the cycle {path}: {why}")]
    Unreadable { path: String, why: String },
    /// The file does not declare a valid cycle.
    #[error("{path}: {}{}", .mistakes[0], more(.mistakes))]
    Mistakes {
        path: String,
        /// The mistakes in line order. Never empty.
        mistakes: Vec<SpecError>,
    },
}

fn more(mistakes: &[SpecError]) -> String {
    match mistakes.len() {
        0 | 1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    }
}

pub const BUILT_IN: &str = "the built-in cycle";

/// Reads the cycle declared in a file, or the built-in cycle if `file` is `None`. The path is
/// absolute or relative to the project.
///
/// # Errors
/// Returns [`BadCycle`] if the file cannot be read or is not a valid cycle.
pub fn declared(root: &Path, file: Option<&str>) -> Result<Spec, BadCycle> {
    let (path, text) = match file {
        None => (BUILT_IN.to_owned(), spec::DEFAULT.to_owned()),
        Some(file) => {
            let unreadable = |why: String| BadCycle::Unreadable { path: file.to_owned(), why };
            let text = read_text_named(root, file, spec::LARGEST as u64)
                .map_err(|error| unreadable(error.to_string()))?;
            (file.to_owned(), text)
        }
    };
    parsed(&path, &text)
}

/// Parses a cycle's declaration. The extension of `path` selects org or Markdown.
///
/// # Errors
/// Returns [`BadCycle::Mistakes`] if the text is not a valid cycle.
pub fn parsed(path: &str, text: &str) -> Result<Spec, BadCycle> {
    let mistake = |mistakes| BadCycle::Mistakes { path: path.to_owned(), mistakes };
    spec::parse(text, BoardForm::of(path)).map_err(mistake)
}

/// Runs one step of the cycle.
///
/// # Errors
/// Returns [`JobError::Nothing`] if the state's gate is closed or the position has changed since it
/// was read, and another error if the position cannot be used or the work fails. A run that returns
/// an error does not change the position.
pub fn run(ctx: &mut Context<'_>, spec: &CycleSpec, job: &str) -> Result<Finished, JobError> {
    let Some(now) = &spec.now else {
        return Err(JobError::failed(Class::Internal, "the agent's position was not read"));
    };
    let state = now.state();
    let unusable = |error| unusable(&error, &spec.agent);
    let position = position::read_in(&ctx.files, &spec.agent, &now.spec).map_err(unusable)?;
    if position != now.position {
        let why = format!("gate: the cycle moved to {position} while this run waited");
        return Err(JobError::Nothing(why));
    }
    let facts = facts(ctx, spec, state, job)?;
    if let CycleStep::Gate { why, .. } = step(state, &facts, ctx.clock.now()) {
        return Err(JobError::Nothing(why));
    }
    let done = match state.kind {
        StateKind::Rem => rem::run_in_cycle(ctx, &spec.rem(now)),
        StateKind::Wake | StateKind::Audit | StateKind::Plan => work::run(ctx, &spec.work(now)),
    };
    let mut finished = done.map_err(|error| held(error, state, &facts, ctx.clock.now()))?;
    let after = position.after(state);
    if finished.idle.is_none() {
        // An idle run does not restart the state's minimum interval.
        let ran = position::ran_path(&spec.agent, &state.name);
        let at = format!("{}\n", ctx.clock.now().as_second());
        ctx.files.stage(&ran, at.as_bytes(), Expect::Current)?;
    }
    let after = stage(ctx, spec, now, &after)?;
    let hits = match state.repeat {
        1 => String::new(),
        most => format!(" ({} of {most})", position.hits.saturating_add(1)),
    };
    finished.headline = format!("{}{hits}: {}", state.name, finished.headline);
    finished.lines.push(format!("next: {}", after.state));
    let reported = &mut finished.facts;
    reported.insert("state".to_owned(), json!(state.name));
    reported.insert("hits".to_owned(), json!(position.hits.saturating_add(1)));
    reported.insert("next".to_owned(), json!(after.state));
    Ok(finished)
}

/// Gathers the facts for the gates: the time of the state's last successful run from its file, the
/// number of consecutive failures from the database, and the time of the last failure from the
/// failure marker.
fn facts<'f>(
    ctx: &Context<'_>,
    spec: &CycleSpec,
    state: &CycleState,
    job: &'f str,
) -> Result<TickFacts<'f>, JobError> {
    let ran = position::ran_in(&ctx.files, &spec.agent, &state.name)
        .map_err(|error| unusable(&error, &spec.agent))?;
    let (failures, failed) = ctx.recording.through(FAILURES, job, || {
        let failures = ctx.spender.store().streak(ctx.admitted.job())?.failures;
        let mark = failmark::read_at(ctx.files.root(), &failmark::of_job(job));
        Ok::<_, JobError>((failures, mark.map(|mark| mark.at)))
    })?;
    Ok(TickFacts { job, ran, failures, failed })
}

/// Converts an unusable position to an error that names the command for setting the position.
fn unusable(error: &BadPosition, agent: &str) -> JobError {
    let why = format!("{error}; fix: {}", position::reset(agent, "STATE"));
    JobError::failed(Class::Environment, why)
}

/// Extends a failure's message with the state's name, the number of consecutive failures and a note
/// that the cycle remains in this state. Any other error is returned unchanged.
fn held(error: JobError, state: &CycleState, facts: &TickFacts<'_>, now: Timestamp) -> JobError {
    let Outcome::Failed { class, why } = error.outcome(now) else {
        return error;
    };
    let times = facts.failures.saturating_add(1);
    let again = match times {
        1 => String::new(),
        n => format!(" {n} times in a row"),
    };
    let why = format!("{} failed{again} and remains the current state: {why}", state.name);
    JobError::failed(class, why)
}

/// Stages the next position and returns it. If the position was changed while the step was running,
/// returns the changed position without staging anything.
fn stage(
    ctx: &mut Context<'_>,
    spec: &CycleSpec,
    now: &AgentPosition,
    after: &Position,
) -> Result<Position, JobError> {
    let path = position::path(&spec.agent);
    let seen = ctx.files.inspect(&path, 1 << 16)?;
    let stands = position::read_in(&ctx.files, &spec.agent, &now.spec)
        .map_err(|error| unusable(&error, &spec.agent))?;
    if stands != now.position {
        return Ok(stands);
    }
    let expect = seen.map_or(Expect::Absent, |(bytes, _)| Expect::Digest(Digest::of(&bytes)));
    ctx.files.stage(&path, format!("{after}\n").as_bytes(), expect)?;
    Ok(after.clone())
}

impl Kind for CycleSpec {
    fn name(&self) -> &'static str {
        "lifecycle"
    }

    fn run(&self, ctx: &mut Context<'_>, job: &str) -> Result<Finished, JobError> {
        run(ctx, self, job)
    }

    fn dry_run(&self, ctx: &mut Context<'_>) -> Result<DryRunPlan, JobError> {
        let mut plan = match self.working_state() {
            Some(now) => self.work(now).dry_run(ctx)?,
            None => DryRunPlan::default(),
        };
        plan.checks = vec![
            "the gate of the state is open, and the position has not changed since it was read"
                .to_owned(),
            "the position changes only together with the files that the state publishes".to_owned(),
        ];
        Ok(plan)
    }

    fn publishes(&self) -> Targets {
        Targets::Folders(vec![manifest::folder_of(&self.agent), ".runner".to_owned()])
    }

    fn check(&self) -> Result<(), BadSetting> {
        if let Some(path) = &self.cycle {
            RelPath::new(path).map_err(|error| ("cycle", error.to_string()))?;
        }
        files::check(&self.agent, &self.board, self.writes.as_deref())
    }

    fn adopt(&mut self, project: &ProjectSettings<'_>) {
        self.files = project.lifecycle.clone();
    }

    fn given(&self) -> Value {
        json!({ "files": self.files, "now": self.now })
    }

    fn give(&mut self, given: Value) -> Result<(), String> {
        self.files = given_input(&given, "files")?;
        self.now = given_input::<Option<AgentPosition>>(&given, "now")?;
        match &self.now {
            Some(now) if now.spec.states.is_empty() => Err("its cycle has no state".to_owned()),
            _ => Ok(()),
        }
    }

    fn default_timeout(&self) -> SignedDuration {
        SignedDuration::from_mins(12)
    }

    /// The next tick is the next attempt, so no retry is needed.
    fn default_retries(&self) -> Option<u32> {
        Some(0)
    }

    /// A cycle backs off after failures but is never stopped because of them.
    fn opens_breaker(&self) -> bool {
        false
    }

    fn works(&self) -> Option<Works<'_>> {
        Some(Works::Agent(self.writes.as_deref()))
    }

    fn works_now(&self) -> Option<Works<'_>> {
        self.working_state().and_then(|_| self.works())
    }

    fn paths(&self) -> Vec<(&'static str, String)> {
        vec![("board", self.board.clone())]
    }
}
