//! Writes the dream between an agent's runs: one journal entry, checked against four factual
//! sources (contracts/lifecycle.md).
//!
//! ```text
//! due? ──no──> skipped
//!  │ yes
//! gather ──> ask ──> read strictly ──> checks ──> rem/<id>.org + rem/manifest.json, one publication
//!                        │                │ a tale that repeats: asked once more without the previous
//!                        └────────────────┴──> failed (malformed): nothing is published
//! ```
//!
//! Only this module writes entries. An invalid answer fails the run and is never repaired.

pub mod checks;
pub mod gather;
mod kind;
pub mod request;
pub mod rule;

use jiff::{SignedDuration, Timestamp};
use runner_backends::{Reply, Request};
use runner_engine::outcome::Class;
use runner_engine::scope::Expect;
use runner_text::counted;
use runner_text::org;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::entry::{self, Entry, Sections, VerdictMove};
use super::manifest::{self, Listed};
use super::{Files, publish};
use crate::{Context, Finished, JobError};
use gather::{PreviousEntry, Slice};

/// The form in which a model gives its answer.
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
    /// The agent in whose journal the dream is written: rem/AGENT/. Default: the agent without a
    /// name, in rem/.
    pub agent: Option<String>,
    /// The board whose tasks the verdicts move, in org or Markdown.
    pub board: String,
    /// Whether a dream requires an "audit:" commit that is newer than the newest entry.
    pub after_audit: bool,
    /// The minimum number of minutes between a successful dream and the next one.
    pub interval_minutes: u32,
    /// The form of the answer: JSON with a schema that lists the board's headings, or org text.
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
            answer: AnswerForm::Data,
            files: Files::default(),
        }
    }
}

/// Writes a journal entry if a dream is due.
///
/// # Errors
/// Returns [`JobError::Nothing`] if no dream is due. Returns another error if there is no answer,
/// or if the answer is not a valid entry or fails the checks.
pub fn run(ctx: &mut Context<'_>, spec: &RemSpec) -> Result<Finished, JobError> {
    let slice = gather::gather(ctx, spec)?;
    if !ctx.admitted.manual() {
        due(&slice, spec, ctx.clock.now())?;
    }
    dream(ctx, spec, &slice)
}

/// Writes a journal entry as part of a cycle, which has separate gates.
///
/// # Errors
/// Returns the same errors as [`run`], except for a closed gate.
pub fn run_in_cycle(ctx: &mut Context<'_>, spec: &RemSpec) -> Result<Finished, JobError> {
    let slice = gather::gather(ctx, spec)?;
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
    let audited = slice.commits.iter().filter(|it| it.subject.starts_with("audit:"));
    let newest = audited.map(|it| it.at).max();
    // The time in an entry's name may be precise only to the minute.
    let last = last.map_or(i64::MIN, Timestamp::as_second);
    if spec.after_audit && newest.is_none_or(|at| at <= last) {
        let why = "no `audit:` commit since the last dream".to_owned();
        return Err(JobError::Nothing(why));
    }
    Ok(())
}

/// Builds the question that a dream would ask.
///
/// # Errors
/// Returns an error if a source cannot be read.
pub(crate) fn question(
    ctx: &Context<'_>,
    spec: &RemSpec,
) -> Result<(Request, Vec<String>), JobError> {
    let slice = gather::gather(ctx, spec)?;
    let request = request::build(&ctx.frame(1), spec.answer, &slice, PreviousEntry::Shown);
    Ok((request, slice.reported))
}

/// Asks for a dream, checks the answer and stages the entry.
fn dream(ctx: &mut Context<'_>, spec: &RemSpec, slice: &Slice) -> Result<Finished, JobError> {
    let malformed = |why: String| JobError::failed(Class::Malformed, why);
    let request = request::build(&ctx.frame(1), spec.answer, slice, PreviousEntry::Shown);
    let reply = ctx.spender.ask(&request, 0)?;
    let (mut sections, mut by_rule) = read(&reply, slice).map_err(malformed)?;
    let mut reported = slice.reported.clone();
    if !by_rule && checks::is_parrot(&sections.tale, slice) {
        reported.push("the tale repeated the previous one; it was asked for once more".to_owned());
        let request = request::build(&ctx.frame(2), spec.answer, slice, PreviousEntry::LeftOut);
        let reply = ctx.spender.ask(&request, 0)?;
        (sections, by_rule) = read(&reply, slice).map_err(malformed)?;
        if !by_rule && checks::is_parrot(&sections.tale, slice) {
            let why =
                "parrot: the tale repeats that of the previous entry, even after a second request";
            return Err(malformed(why.to_owned()));
        }
    }
    // The checks must see the text that is published.
    let sections = clean(&sections, |text| ctx.redactor.redact(text).into_owned());
    checks::check(&sections, slice).map_err(malformed)?;
    let model = (!by_rule).then(|| {
        reported.extend(sections.warnings());
        let model = ctx.spender.backend().model;
        model.unwrap_or_else(|| ctx.spender.backend_name().to_owned())
    });
    let finished = publish_entry(ctx, spec, slice, sections, model)?;
    Ok(Finished { lines: reported, ..finished })
}

/// Returns the sections of an answer, and whether the answer is rule-based.
fn read(reply: &Reply, slice: &Slice) -> Result<(Sections, bool), String> {
    let text = |text: &str| {
        let sections = entry::parse_sections(text).map_err(|error| error.to_string())?;
        Ok((sections, false))
    };
    match &reply.value {
        Some(answer) if request::is_rule(answer) => Ok((rule::sections(slice), true)),
        Some(Value::String(org)) => text(org),
        Some(answer) => {
            let sections = request::sections_of(answer)?;
            same_tasks(&sections, &slice.board)?;
            Ok((sections, false))
        }
        None => text(&reply.text),
    }
}

/// Checks that each verdict of a JSON answer still resolves to its own task once it is written as
/// org text with its reason.
fn same_tasks(sections: &Sections, board: &org::Board) -> Result<(), String> {
    for verdict in sections.verdicts.iter().filter(|it| it.act != VerdictMove::KeepCourse) {
        let named = verdict.task.as_deref().unwrap_or_default();
        if let org::Resolved::One { task, .. } = board.resolve(&verdict.said)
            && org::fold(&task.heading) != org::fold(named)
        {
            return Err(format!(
                "{named:?} together with its reason could be read as {:?}",
                task.heading
            ));
        }
    }
    Ok(())
}

/// Returns the sections with `text` applied to every text.
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

/// Stages an entry and the manifest. `model` is `None` if the rules wrote the entry.
fn publish_entry(
    ctx: &mut Context<'_>,
    spec: &RemSpec,
    slice: &Slice,
    sections: Sections,
    model: Option<String>,
) -> Result<Finished, JobError> {
    let folder = manifest::folder(spec.agent.as_deref());
    let file = |id: &str| format!("{folder}/{id}.org");
    let (now, known) = (ctx.clock.now(), &slice.listed.manifest);
    let id = manifest::new_id(now, |id| {
        // Two dreams may happen in one minute, and a file may exist that no manifest lists.
        let listed = known.entries.iter().any(|it| manifest::id_of(&it.file) == Some(id));
        listed || ctx.files.is_there(&file(id))
    });
    let by_rule = model.is_none();
    let model = model.unwrap_or_else(|| "by rule".to_owned());
    let entry = Entry {
        title: format!("rem — {}", now.strftime("%Y-%m-%d %H:%M UTC")),
        id: id.clone(),
        model: model.clone(),
        sections,
    };
    let text = entry::render(&entry);
    let line = first_line(&entry.sections.tale);
    let listed = Listed { file: format!("{id}.org"), ts: Some(now), model, line: line.clone() };
    let list = format!("{folder}/{}", manifest::FILE);
    ctx.files.stage(&file(&id), text.as_bytes(), Expect::Absent)?;
    let new = known.with(listed);
    ctx.files.stage(&list, new.text().as_bytes(), slice.listed.expect)?;
    ctx.publish = spec.files.commit.then(|| publish::Publish {
        paths: vec![file(&id), list],
        message: publish::message("rem", &line),
        push: spec.files.push,
    });
    let facts = json!({
        "entry": id,
        "agent": spec.agent,
        "by_rule": by_rule,
        "verdicts": entry.sections.verdicts,
        "claims": entry.claims().len(),
    });
    Ok(Finished {
        headline: format!("{} dreamt {}", ctx.spender.backend_name(), file(&id)),
        facts: facts.as_object().cloned().unwrap_or_default(),
        ..Finished::default()
    })
}

/// Returns the first line of a tale, truncated to 160 characters.
fn first_line(tale: &str) -> String {
    let line = tale.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or_default().trim().chars().take(160).collect()
}
