//! The tables of jobs.
//!
//! Must never take a setting that nobody reads.

use std::time::Duration;

use jiff::SignedDuration;
use runner_engine::policy::Policy;
use runner_engine::store::Budget;
use runner_jobs::kind::ProjectSettings;
use runner_jobs::kinds::{self, KindRow};
use runner_jobs::lifecycle::Files;
use runner_jobs::{JobSpec, Kind};
use runner_text::nearest::nearest;
use toml::{Table, Value};

use super::curator::Curator;
use super::keys::{self, Shape};
use super::notify;
use super::policy::{self, Defaults, Groups};
use super::sandbox::{self, SandboxSettings};
use super::section::{Section, no_such};
use super::sources::{ConfigMistake, Sources, unknown, wrong};
use super::trigger::{TriggerSpec, trigger};
use super::{Night, paths, units};

/// A configured job.
#[derive(Clone, Debug)]
pub struct Job {
    pub spec: JobSpec,
    /// The trigger that makes it due.
    pub when: TriggerSpec,
    /// Whether clocks and nights may start it.
    pub enabled: bool,
    /// How it is started, held back and tried again.
    pub policy: Policy,
    /// How its children are confined.
    pub sandbox: SandboxSettings,
    /// Whether the machine is kept awake while it runs.
    pub keep_awake: bool,
    /// The IANA zone of its times.
    pub zone: String,
    /// The most that all its runs of one civil day may spend.
    pub day: Budget,
    /// The time without a success after which people are notified, if it differs from `[notify]`.
    /// The inner `None` means never.
    pub success_within: Option<Option<SignedDuration>>,
}

/// The settings outside of a job that its table depends on.
pub(super) struct JobContext<'a> {
    /// Where the lifecycle's files are.
    pub(super) lifecycle: &'a Files,
    /// `[curator]`.
    pub(super) curator: &'a Curator,
    /// The project's night.
    pub(super) night: &'a Night,
    /// All groups.
    pub(super) groups: &'a Groups,
    pub(super) defaults: &'a Defaults,
    /// Where it is written.
    pub(super) sources: &'a Sources,
}

pub(super) fn job(
    name: &str,
    mut table: Table,
    around: &JobContext<'_>,
) -> Result<Job, ConfigMistake> {
    let sources = around.sources;
    let path = format!("jobs.{name}");
    let key = |key: &str| format!("{path}.{key}");
    let mut section = Section::of(&path, &mut table, sources);
    let row = kind_row(&mut section, &path)?;
    let when = section.parsed("trigger", trigger)?.unwrap_or(TriggerSpec::Night);
    let zone = section.parsed("zone", units::zone)?;
    let zone = match (&when, zone) {
        (TriggerSpec::Night, None) => around.night.zone.clone(),
        (TriggerSpec::Night, Some(_)) => {
            let why = "a job of the night has the zone of the night ([night] zone); another \
                       trigger may have its own";
            return Err(section.wrong(&key("zone"), why));
        }
        (TriggerSpec::Clock(_) | TriggerSpec::Lifecycle, own) => {
            own.unwrap_or_else(|| around.defaults.zone.clone())
        }
    };
    let own_retries = section.has("retries");
    let mut policy = around.defaults.policy.clone();
    policy::lay_over(&mut policy, &mut section, around.groups)?;
    let mut sandbox = around.defaults.sandbox.clone();
    sandbox::lay_over(&mut sandbox, &mut section)?;
    let keep_awake = section.flag("keep_awake")?;
    let enabled = section.flag("enabled")?.unwrap_or(true);
    let success_within = section.parsed("success_within", notify::age_limit)?;
    let backend = section.text("backend")?.unwrap_or_else(|| "builtin".to_owned());
    let total = section.parsed("timeout", units::duration)?;
    let mut budget_table = section.table("budget")?.unwrap_or_default();
    let budget_path = key("budget");
    let mut budget_section = Section::of(&budget_path, &mut budget_table, sources);
    let mut budget = units_of(&mut budget_section)?;
    budget_section.finish()?;
    let mut day_table = section.table("day_budget")?.unwrap_or_default();
    let day_path = key("day_budget");
    let mut day_section = Section::of(&day_path, &mut day_table, sources);
    let day = caps_of(&mut day_section)?;
    day_section.finish()?;
    let known = section.known();
    let rest = in_plain_units(section.rest(), &path, sources)?;
    let mut kind = own(&path, row, rest, &known, sources)?;
    kind.adopt(&ProjectSettings { lifecycle: around.lifecycle, curator: &around.curator.spec });
    kind.check().map_err(|(own, why)| match own {
        paths::OUTPUT => paths::refused(sources, &key(own), &why),
        own => wrong(sources, &key(own), &why),
    })?;
    if let (Some(retries), false) = (kind.default_retries(), own_retries) {
        policy.retry.count = retries;
    }
    budget.ideas = budget.ideas.or_else(|| kind.default_ideas());
    let total = Duration::try_from(total.unwrap_or_else(|| kind.default_timeout()))
        .map_err(|_| wrong(sources, &key("timeout"), "it is too long"))?;
    budget.seconds = budget.seconds.or(Some(total.as_secs()));
    let keep_awake = keep_awake
        .or(around.defaults.keep_awake)
        .unwrap_or_else(|| kind.is_unattended() || matches!(when, TriggerSpec::Night));
    kind.set_keep_awake(keep_awake);
    let spec = JobSpec { name: name.to_owned(), kind, backend, budget, total };
    Ok(Job { success_within, spec, when, enabled, policy, sandbox, keep_awake, zone, day })
}

/// Reads the kind of a job.
fn kind_row(section: &mut Section<'_>, path: &str) -> Result<&'static KindRow, ConfigMistake> {
    let names = kinds::NAMES;
    let kind = section
        .text("kind")?
        .ok_or_else(|| section.wrong(path, &format!("it has no kind ({})", names.join(", "))))?;
    kinds::find(&kind).ok_or_else(|| {
        let near = nearest(&kind, names)
            .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        section.wrong(
            &format!("{path}.kind"),
            &format!("there is no kind {kind:?} ({}){near}", names.join(", ")),
        )
    })
}

/// Turns sizes and durations among the settings of a kind into bytes and seconds.
fn in_plain_units(mut rest: Table, path: &str, sources: &Sources) -> Result<Table, ConfigMistake> {
    let key = |key: &str| format!("{path}.{key}");
    // Serde would take a date for text.
    if let Some((dated, _)) = rest.iter().find(|(_, value)| has_date(value)) {
        let why = "no setting is a date; text stands in quotes";
        return Err(wrong(sources, &key(dated), why));
    }
    for size in ["max_idea_bytes"] {
        if let Some(Value::String(text)) = rest.get(size) {
            let bytes = units::size(text).map_err(|why| wrong(sources, &key(size), &why))?;
            rest.insert(size.to_owned(), Value::Integer(i64::try_from(bytes).unwrap_or(i64::MAX)));
        }
    }
    for span in ["council_timeout"] {
        let seconds = match rest.get(span) {
            None => continue,
            Some(Value::String(text)) => units::duration(text).map(|span| span.as_secs()),
            Some(_) => Err("it must be a duration like \"3m\"".to_owned()),
        };
        let seconds = seconds.map_err(|why| wrong(sources, &key(span), &why))?;
        rest.insert(span.to_owned(), Value::Integer(seconds));
    }
    Ok(rest)
}

fn has_date(value: &Value) -> bool {
    match value {
        Value::Datetime(_) => true,
        Value::Array(items) => items.iter().any(has_date),
        Value::Table(table) => table.values().any(has_date),
        _ => false,
    }
}

/// The keys whose values are folders, or may be.
const FOLDERS: [&str; 6] = ["ideas", "dreams", "done", "specs", "writes", "output_dir"];

/// Strips a trailing slash from each folder, because both forms mean the same.
fn as_folder(value: &mut Value) {
    match value {
        Value::String(text) => *text = folder(text).to_owned(),
        Value::Array(items) => items.iter_mut().for_each(as_folder),
        _ => {}
    }
}

/// Strips a trailing slash. The root folder keeps its slash and is refused later.
pub(super) fn folder(text: &str) -> &str {
    match text.strip_suffix('/') {
        Some(bare) if !bare.is_empty() => bare,
        _ => text,
    }
}

/// Reads the settings that only this kind has. Errors use runner's own wording, because the
/// deserializer's messages describe the program's internals.
fn own(
    path: &str,
    row: &KindRow,
    mut table: Table,
    common: &[&str],
    sources: &Sources,
) -> Result<Box<dyn Kind>, ConfigMistake> {
    let kind = row.name;
    for key in FOLDERS {
        table.get_mut(key).into_iter().for_each(as_folder);
    }
    let error = match (row.read)(Value::Table(table.clone())) {
        Ok(own) => return Ok(own),
        Err(error) => error,
    };
    let place = |key: &str| format!("{path}.{key}");
    let mut known: Vec<&str> = common.to_vec();
    for key in keys::own_of(kind) {
        known.push(key);
    }
    if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(unknown(sources, &place(key), &no_such(key, &known)));
    }
    // The deserializer does not name the key of a wrong value: it is found by trying each alone.
    let alone = |key: &str, value: &Value| {
        let table = Table::from_iter([(key.to_owned(), value.clone())]);
        let error = (row.read)(Value::Table(table)).err();
        error.is_some_and(|error| {
            let missing = missing(&error);
            missing.is_none_or(|field| known.iter().all(|known| *known != field))
        })
    };
    if let Some((key, value)) = table.iter().find(|(key, value)| alone(key, value)) {
        let shape = keys::of_job(kind, key);
        let words = shape.map_or_else(|| "something else".to_owned(), Shape::describe);
        let near = match (shape, value.as_str()) {
            (Some(Shape::OneOf(words)), Some(text)) => nearest(text, words.iter().copied()),
            _ => None,
        };
        let near = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        let why = match (shape, value) {
            (Some(Shape::Artifacts), Value::Array(items)) => match misshapen(items) {
                Some(why) => format!("{why}; it must be {words}"),
                None => format!("it must be {words}"),
            },
            _ => format!("it must be {words}, it is {}{near}", brief(value)),
        };
        return Err(wrong(sources, &place(key), &why));
    }
    let why = match missing(&error) {
        Some(field) => format!("it has no {field}"),
        None => "these settings do not go together".to_owned(),
    };
    Err(wrong(sources, path, &why))
}

/// Returns the name of the field that the deserializer misses.
fn missing(error: &toml::de::Error) -> Option<&str> {
    let rest = error.message().strip_prefix("missing field `")?;
    rest.split('`').next()
}

/// Describes the first invalid artifact.
fn misshapen(items: &[Value]) -> Option<String> {
    const KEYS: [&str; 2] = ["from", "to"];
    items.iter().enumerate().find_map(|(at, item)| {
        let number = at + 1;
        let Some(table) = item.as_table() else {
            return Some(format!("number {number} is {}", brief(item)));
        };
        if let Some(odd) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Some(format!("number {number} has {odd:?}"));
        }
        let absent = KEYS.iter().find(|key| !table.contains_key(**key));
        let absent = absent.map(|key| format!("number {number} has no {key:?}"));
        absent.or_else(|| {
            let odd = table.iter().find(|(_, value)| !value.is_str())?;
            Some(format!("{:?} of number {number} is {}", odd.0, brief(odd.1)))
        })
    })
}

/// Formats a value for an error. A long value is cut.
fn brief(value: &Value) -> String {
    const SHOWN: usize = 80;
    let text = super::inline(value);
    if text.chars().count() <= SHOWN {
        return text;
    }
    text.chars().take(SHOWN).chain(['…']).collect()
}

/// Reads the `budget` table of a level, if there is one.
pub(super) fn budget(section: &mut Section<'_>) -> Result<Budget, ConfigMistake> {
    let sources = section.sources;
    let path = section.full("budget");
    let mut table = section.table("budget")?.unwrap_or_default();
    let mut inner = Section::of(&path, &mut table, sources);
    let budget = caps_of(&mut inner)?;
    inner.finish()?;
    Ok(budget)
}

/// Reads the caps of a level. The value "unlimited" means the same as no value, and removes the cap
/// of a lower layer.
pub(super) fn caps_of(section: &mut Section<'_>) -> Result<Budget, ConfigMistake> {
    for unit in ["time", "money", "calls", "tokens", "ideas"] {
        section.drop_if(unit, "unlimited");
    }
    units_of(section)
}

fn units_of(section: &mut Section<'_>) -> Result<Budget, ConfigMistake> {
    let seconds =
        section.parsed("time", units::duration)?.map(|span| span.as_secs().unsigned_abs());
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be finite and positive"
    )]
    let micros = section.number("money")?.map(|dollars| (dollars * 1e6).round() as u64);
    Ok(Budget {
        calls: section.count("calls")?,
        tokens: section.count("tokens")?,
        micros,
        seconds,
        ideas: section.count("ideas")?,
    })
}
