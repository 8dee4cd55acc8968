//! The tables of jobs and backends.

use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use runner_backends::BackendSpec;
use runner_engine::ledger::Budget;
use runner_engine::placement::RelPath;
use runner_engine::schedule::Trigger;
use runner_jobs::command::CommandSpec;
use runner_jobs::dream::DreamSpec;
use runner_jobs::prompt::PromptSpec;
use runner_jobs::{JobSpec, KindSpec};
use runner_text::nearest::nearest;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::{Section, units, wrong};
use crate::cli::Failure;

const KINDS: [&str; 3] = ["dream", "command", "prompt"];

/// A configured job.
#[derive(Clone, Debug)]
pub struct Job {
    /// What it is told.
    pub spec: JobSpec,
    /// What makes it due.
    pub when: When,
    /// Whether clocks and nights may start it.
    pub enabled: bool,
}

/// What makes a job due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// The opening of the project's night.
    Night,
    /// A clock, or nothing but people.
    Clock(Trigger),
}

impl std::fmt::Display for When {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Night => f.write_str("night"),
            Self::Clock(trigger) => trigger.fmt(f),
        }
    }
}

pub(super) fn job(name: &str, mut table: Table, files: &[PathBuf]) -> Result<Job, Failure> {
    let path = format!("jobs.{name}");
    let key = |key: &str| format!("{path}.{key}");
    let mut section = Section::of(&path, &mut table, files);
    let kind = section
        .text("kind")?
        .ok_or_else(|| section.wrong(&path, "it has no kind (dream, command, prompt)"))?;
    if !KINDS.contains(&kind.as_str()) {
        let near = nearest(&kind, KINDS)
            .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        return Err(section.wrong(
            &key("kind"),
            &format!("there is no kind {kind:?} ({}){near}", KINDS.join(", ")),
        ));
    }
    let when = section
        .text("trigger")?
        .unwrap_or_else(|| "night".to_owned());
    let when = trigger(&when).map_err(|why| section.wrong(&key("trigger"), &why))?;
    let enabled = section.flag("enabled")?.unwrap_or(true);
    let backend = section
        .text("backend")?
        .unwrap_or_else(|| "builtin".to_owned());
    let total = match section.text("timeout")? {
        Some(text) => units::duration(&text).map_err(|why| section.wrong(&key("timeout"), &why))?,
        None => default_total(&kind),
    };
    let mut budget_table = section.table("budget")?.unwrap_or_default();
    let budget_path = key("budget");
    let mut budget_section = Section::of(&budget_path, &mut budget_table, files);
    let mut budget = units_of(&mut budget_section)?;
    budget_section.finish()?;
    let mut rest = section.rest();
    for size in ["max_idea_bytes"] {
        if let Some(Value::String(text)) = rest.get(size) {
            let bytes = units::size(text).map_err(|why| wrong(files, &key(size), &why))?;
            rest.insert(
                size.to_owned(),
                Value::Integer(i64::try_from(bytes).unwrap_or(i64::MAX)),
            );
        }
    }
    let kind = match kind.as_str() {
        "dream" => KindSpec::Dream(own::<DreamSpec>(&path, rest, files)?),
        "command" => KindSpec::Command(own::<CommandSpec>(&path, rest, files)?),
        _ => KindSpec::Prompt(own::<PromptSpec>(&path, rest, files)?),
    };
    match &kind {
        KindSpec::Command(command) => {
            for artifact in &command.artifacts {
                target(&artifact.to).map_err(|why| wrong(files, &key("artifacts"), &why))?;
            }
        }
        KindSpec::Prompt(prompt) => {
            let to = prompt.to.replace("{date}", "date");
            target(&to).map_err(|why| wrong(files, &key("to"), &why))?;
        }
        KindSpec::Dream(_) | KindSpec::Report => {}
    }
    if let (KindSpec::Dream(dream), None) = (&kind, budget.ideas) {
        budget.ideas = Some(dream.max_ideas as u64);
    }
    let total =
        Duration::try_from(total).map_err(|_| wrong(files, &key("timeout"), "it is too long"))?;
    budget.seconds = budget.seconds.or(Some(total.as_secs()));
    let spec = JobSpec {
        name: name.to_owned(),
        kind,
        backend,
        budget,
        total,
    };
    Ok(Job {
        spec,
        when,
        enabled,
    })
}

/// What no job places anything in: git's own, runner's own, the proposals and journals that only
/// checked data reaches, and what agents obey.
const NEVER: [&str; 8] = [
    ".git",
    ".runner",
    "runner.toml",
    "dreams",
    "rem",
    "_steps.jsonl",
    ".claude",
    ".codex",
];

/// Whether a job may be told to place something at `to`.
fn target(to: &str) -> Result<(), String> {
    RelPath::new(to).map_err(|error| error.to_string())?;
    if to.contains(['{', '}']) {
        return Err(format!("{to:?} has a placeholder that is not {{date}}"));
    }
    let first = to.split('/').next().unwrap_or(to);
    match NEVER.iter().find(|never| never.eq_ignore_ascii_case(first)) {
        Some(never) => Err(format!("{to:?}: no job places anything in {never}")),
        None => Ok(()),
    }
}

/// The settings that only this kind has.
fn own<T: DeserializeOwned>(path: &str, table: Table, files: &[PathBuf]) -> Result<T, Failure> {
    let error: toml::de::Error = match Value::Table(table.clone()).try_into() {
        Ok(own) => return Ok(own),
        Err(error) => error,
    };
    // Serde names the key of an unknown or missing setting, not that of a wrong value: that one is
    // found by trying each setting alone.
    let alone = |key: &str, value: &Value| -> Option<String> {
        let table = Table::from_iter([(key.to_owned(), value.clone())]);
        let error = Value::Table(table).try_into::<T>().err()?;
        (!error.message().starts_with("missing field")).then(|| error.message().to_owned())
    };
    let found = table
        .iter()
        .find_map(|(key, value)| Some((key, alone(key, value)?)));
    let Some((key, message)) = found else {
        return Err(wrong(files, path, error.message()));
    };
    let why = match message.strip_prefix("unknown field ") {
        None => message,
        Some(rest) => {
            let known = rest.split('`').skip(3).step_by(2);
            let near = nearest(key, known)
                .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            format!("there is no such setting{near}")
        }
    };
    Err(wrong(files, &format!("{path}.{key}"), &why))
}

fn default_total(kind: &str) -> SignedDuration {
    match kind {
        "dream" => SignedDuration::from_mins(30),
        "command" => SignedDuration::from_hours(1),
        _ => SignedDuration::from_mins(10),
    }
}

fn trigger(text: &str) -> Result<When, String> {
    match text.split_once(' ') {
        None if text == "night" => Ok(When::Night),
        None if text == "manual" => Ok(When::Clock(Trigger::Manual)),
        Some(("every", period)) => match units::duration(period)? {
            short if short < SignedDuration::from_secs(1) => {
                Err(format!("{text:?}: an interval is one second at least"))
            }
            period => Ok(When::Clock(Trigger::Every(period))),
        },
        Some(("daily", time)) => Ok(When::Clock(Trigger::Daily(units::time(time)?))),
        _ => Err(format!(
            "{text:?} is no trigger (\"night\", \"manual\", \"every 15m\", \"daily 02:30\")"
        )),
    }
}

/// The `budget` table of a level, if there is one.
pub(super) fn budget(section: &mut Section<'_>) -> Result<Budget, Failure> {
    let files = section.files;
    let path = section.full("budget");
    let mut table = section.table("budget")?.unwrap_or_default();
    let mut inner = Section::of(&path, &mut table, files);
    let budget = units_of(&mut inner)?;
    inner.finish()?;
    Ok(budget)
}

fn units_of(section: &mut Section<'_>) -> Result<Budget, Failure> {
    let seconds = match section.text("time")? {
        Some(text) => {
            let span =
                units::duration(&text).map_err(|why| section.wrong(&section.full("time"), &why))?;
            Some(span.as_secs().unsigned_abs())
        }
        None => None,
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be finite and positive"
    )]
    let micros = section
        .number("money")?
        .map(|dollars| (dollars * 1e6).round() as u64);
    Ok(Budget {
        calls: section.count("calls")?,
        tokens: section.count("tokens")?,
        micros,
        seconds,
        ideas: section.count("ideas")?,
    })
}

pub(super) fn backend(name: &str, section: &mut Section<'_>) -> Result<BackendSpec, Failure> {
    let path = format!("backends.{name}.type");
    let kind = section
        .text("type")?
        .ok_or_else(|| section.wrong(&path, "it has no type (builtin, command)"))?;
    Ok(BackendSpec {
        name: name.to_owned(),
        kind,
        model: section.text("model")?,
        program: section.text("program")?,
        args: section.texts("args")?.unwrap_or_default(),
        env: section.texts("env")?.unwrap_or_default(),
        artifact: section.text("artifact")?,
        quiet: section.flag("quiet")?.unwrap_or(false),
        output_cap: None,
    })
}
