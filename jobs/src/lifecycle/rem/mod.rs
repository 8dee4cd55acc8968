//! Writes the dream between an agent's runs: one journal entry, checked against four factual
//! sources.
//!
//! ```text
//! due? ──no──> skipped
//!  │ yes
//! gather ──> ask ──> read strictly ──> checks ──> rem/<id>.org + rem/manifest.json, one publication
//!             ↑           └───────────────┤ once: asked again with the reason
//!             └───────────────────────────┤ twice: the rule-based entry, degraded
//!                                         └ twice malformed: failed, nothing is published
//! ```
//!
//! Only this module writes entries. An invalid answer is never repaired.

pub mod checks;
pub mod gather;
mod kind;
mod mentions;
pub(super) mod repeats;
pub mod request;
pub mod rule;
mod stage;
mod substance;

use jiff::{SignedDuration, Timestamp};
use runner_backends::{BackendError, Reply, Request};
use runner_engine::outcome::Class;
use runner_text::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::entry::{self, Entry, Sections};
use super::{Files, prompts};
use crate::{Context, Finished, JobError};
use checks::Refusal;
use gather::Slice;
use stage::publish_entry;

/// The format in which a model answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerForm {
    /// JSON with a schema that contains the board's headings.
    #[default]
    Data,
    /// Org text, for models that do not support schemas.
    Org,
}

/// The settings of a job that dreams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RemSpec {
    /// The agent whose journal the dream is written to: rem/AGENT/. Default: the agent without a
    /// name, in rem/.
    pub agent: Option<String>,
    /// The board on which the verdicts move tasks, in org or Markdown.
    pub board: String,
    /// Whether a dream requires an "audit:" commit that is newer than the newest entry.
    pub after_audit: bool,
    /// The minimum number of minutes between a successful dream and the next one.
    pub interval_minutes: u32,
    /// The agent's instructions: a project file, or the text itself. Default: the built-in
    /// instructions.
    pub prompt: Option<String>,
    /// The answer format: JSON with a schema that lists the board's headings, or org text.
    pub answer: AnswerForm,
    /// The project's settings for files and commits.
    #[serde(skip)]
    pub files: Files,
}

impl Default for RemSpec {
    fn default() -> Self {
        Self {
            agent: None,
            board: super::BOARD.to_owned(),
            after_audit: true,
            interval_minutes: 50,
            prompt: None,
            answer: AnswerForm::Data,
            files: Files::default(),
        }
    }
}

/// The reason for writing no entry about an idle period.
const IDLE: &str = "nothing happened: no commit, no tool use and no change to the board";

/// Writes a journal entry if a dream is due or the run was started manually.
///
/// # Errors
/// Unless the run was started manually, returns [`JobError::Nothing`] if no dream is due or nothing
/// has happened since the newest entry. Returns another error if a source or the prompt file cannot
/// be read, the entry cannot be staged, the first question is not answered, or both answers are
/// malformed.
pub fn run(ctx: &mut Context<'_>, spec: &RemSpec) -> Result<Finished, JobError> {
    let slice = gather::gather(ctx, spec)?;
    if !ctx.admitted.manual() {
        due(&slice, spec, ctx.clock.now())?;
        if slice.is_idle() {
            return Err(JobError::Nothing(IDLE.to_owned()));
        }
    }
    dream(ctx, spec, &slice)
}

/// Writes a journal entry as part of a cycle, which has its own gates. If nothing has happened
/// since the newest entry, no entry is written, and the result is idle.
///
/// # Errors
/// Returns the same errors as [`run`], except [`JobError::Nothing`].
pub fn run_in_cycle(ctx: &mut Context<'_>, spec: &RemSpec) -> Result<Finished, JobError> {
    let slice = gather::gather(ctx, spec)?;
    if slice.is_idle() {
        let mut headline = format!("{IDLE}; no entry was written");
        if let (Some(task), Some(since)) = (&slice.doing, slice.doing_since) {
            let since = since.strftime("%Y-%m-%d %H:%M UTC");
            headline.push_str(&format!("; \"{task}\" has been in flight since {since}"));
        }
        return Ok(Finished { headline, idle: Some(IDLE.to_owned()), ..Finished::default() });
    }
    dream(ctx, spec, &slice)
}

/// Checks that a dream is due, for a run that was not started manually.
fn due(slice: &Slice, spec: &RemSpec, now: Timestamp) -> Result<(), JobError> {
    let last = slice.since();
    let interval = SignedDuration::from_mins(i64::from(spec.interval_minutes));
    // If the last dream is in the future, the clock was set back, and the gate is open.
    if let Some(last) = last.filter(|last| *last <= now && now.duration_since(*last) < interval) {
        return Err(JobError::Nothing(format!(
            "gate: the last dream was at {last:.0}, and the next is due {} after it",
            counted(spec.interval_minutes, "minute")
        )));
    }
    if spec.after_audit && !slice.audited {
        let why = "no `audit:` commit since the last dream".to_owned();
        return Err(JobError::Nothing(why));
    }
    Ok(())
}

/// Builds a dream's first question, and returns it with the messages about unreadable sources.
///
/// # Errors
/// Returns the errors of [`gather::gather`], and an error if the prompt file cannot be read.
pub(crate) fn question(
    ctx: &Context<'_>,
    spec: &RemSpec,
) -> Result<(Request, Vec<String>), JobError> {
    let slice = gather::gather(ctx, spec)?;
    let guidance = prompts::read(ctx, spec.prompt.as_deref(), prompts::REM)?;
    let request = request::build(&ctx.frame(1), (spec.answer, &guidance), &slice, None);
    Ok((request, slice.reported))
}

/// An entry's sections, with their author.
struct Answer {
    sections: Sections,
    author: Author,
}

/// An entry's author.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Author {
    Model,
    Rule,
}

/// Asks for a dream, checks the answer and stages the entry.
///
/// If the answer is refused, asks once more and gives the reason. If the second answer is also
/// refused, stages the rule-based entry, and the run is degraded. If both answers are malformed,
/// the run fails.
fn dream(ctx: &mut Context<'_>, spec: &RemSpec, slice: &Slice) -> Result<Finished, JobError> {
    let mut reported = slice.reported.clone();
    let (answer, degraded) = match ask(ctx, spec, slice, None)? {
        Ok(answer) => (answer, None),
        Err(first) => {
            reported.push(format!("the answer was refused, so runner asked once more: {first}"));
            match second(ctx, spec, slice, &first)? {
                Ok(answer) => (answer, None),
                Err(second) => {
                    let sections = rule::sections(slice);
                    let why = format!(
                        "runner wrote the entry by rule, because both answers failed: {second}"
                    );
                    (Answer { sections, author: Author::Rule }, Some(why))
                }
            }
        }
    };
    let by_model = answer.author == Author::Model;
    let unseen = if by_model { mentions::unseen(&answer.sections.tale, slice) } else { Vec::new() };
    let model = by_model.then(|| {
        reported.extend(answer.sections.warnings());
        reported.extend(unseen.iter().map(|what| format!("no source shows {what}")));
        let model = ctx.spender.backend().model;
        model.unwrap_or_else(|| ctx.spender.backend_name().to_owned())
    });
    let entry = Entry {
        model: model.unwrap_or_else(|| entry::BY_RULE.to_owned()),
        facts: if by_model { facts(ctx, slice) } else { Vec::new() },
        unseen,
        sections: answer.sections,
        ..Entry::default()
    };
    let finished = publish_entry(ctx, spec, slice, entry)?;
    Ok(Finished { lines: reported, degraded, ..finished })
}

/// Returns the facts found in the sources. They are published with a model's entry, one per line,
/// so that a reader learns what happened regardless of what the model wrote.
fn facts(ctx: &Context<'_>, slice: &Slice) -> Vec<String> {
    let facts = rule::facts(slice);
    facts.iter().map(|fact| ctx.redactor.redact(fact).into_owned()).collect()
}

/// Asks one question, and checks the answer.
///
/// # Errors
/// Returns an error if the prompt file cannot be read or the question is not answered. A truncated
/// answer is a [`Refusal`].
fn ask(
    ctx: &mut Context<'_>,
    spec: &RemSpec,
    slice: &Slice,
    refused: Option<&Refusal>,
) -> Result<Result<Answer, Refusal>, JobError> {
    let frame = ctx.frame(if refused.is_none() { 1 } else { 2 });
    let guidance = prompts::read(ctx, spec.prompt.as_deref(), prompts::REM)?;
    let request = request::build(&frame, (spec.answer, &guidance), slice, refused);
    let reply = match ctx.spender.ask(&request, 0).map_err(JobError::from) {
        Ok(reply) => reply,
        Err(JobError::Backend(BackendError::Truncated { most })) => {
            return Ok(Err(Refusal::TooLong(most)));
        }
        Err(error) => return Err(error),
    };
    Ok(read(&reply, slice).and_then(|answer| {
        if answer.author == Author::Rule {
            return Ok(answer);
        }
        // The checks must see the text that is published.
        let sections = clean(&answer.sections, |text| ctx.redactor.redact(text).into_owned());
        checks::check(&sections, slice)?;
        Ok(Answer { sections, ..answer })
    }))
}

/// Asks the question again, explaining why the first answer was refused.
///
/// # Errors
/// Returns an error if both answers are malformed, if the first answer is malformed and the second
/// question is not answered, if the database cannot be used, or if the run must end.
fn second(
    ctx: &mut Context<'_>,
    spec: &RemSpec,
    slice: &Slice,
    first: &Refusal,
) -> Result<Result<Answer, Refusal>, JobError> {
    let is_entry = !matches!(first, Refusal::Malformed(_));
    match ask(ctx, spec, slice, Some(first)) {
        Ok(Err(second @ Refusal::Malformed(_))) if !is_entry => {
            Err(JobError::failed(Class::Malformed, second.to_string()))
        }
        Ok(judged) => Ok(judged),
        Err(
            error @ (JobError::Ledger(_) | JobError::Cancelled { .. } | JobError::TimedOut { .. }),
        ) => Err(error),
        Err(error) if !is_entry => Err(error),
        Err(error) => {
            let why = format!("{first}; the second question was not answered: {}", error.whole());
            Ok(Err(Refusal::Untrue(why)))
        }
    }
}

/// Parses an answer into sections.
fn read(reply: &Reply, slice: &Slice) -> Result<Answer, Refusal> {
    let by_model = |sections| Answer { sections, author: Author::Model };
    let text = |text: &str| {
        let sections = entry::parse_sections(text);
        sections.map(by_model).map_err(|error| Refusal::Malformed(error.to_string()))
    };
    match &reply.value {
        Some(answer) if request::is_rule(answer) => {
            Ok(Answer { sections: rule::sections(slice), author: Author::Rule })
        }
        Some(Value::String(org)) => text(org),
        Some(answer) => {
            let sections = request::sections_of(answer)?;
            checks::same_tasks(&sections, &slice.board)?;
            Ok(by_model(sections))
        }
        None => text(&reply.text),
    }
}

/// Returns the sections with the function `text` applied to every string.
fn clean(sections: &Sections, text: impl Fn(&str) -> String) -> Sections {
    let all = |lines: &[String]| lines.iter().map(|line| text(line)).collect();
    let mut out = Sections {
        tale: text(&sections.tale),
        goals: all(&sections.goals),
        blue_sky: all(&sections.blue_sky),
        fears: all(&sections.fears),
        verdicts: sections.verdicts.clone(),
        unread: all(&sections.unread),
        carry: all(&sections.carry),
    };
    for verdict in &mut out.verdicts {
        verdict.task = verdict.task.as_deref().map(&text);
        verdict.why = text(&verdict.why);
        verdict.said = text(&verdict.said);
    }
    out
}
