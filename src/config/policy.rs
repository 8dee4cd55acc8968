//! The policy of a job towards its clock and the queue: the keys that `[defaults]` and each job
//! share.
//!
//! A key that is left out keeps the value of the layer below; `"none"` removes a limit.

use std::collections::BTreeMap;

use runner_engine::policy::{
    CatchUpScope, ConcurrencyGroup, DEFAULT_GROUP, Overlap, Policy, Quiet,
};
use runner_text::nearest::nearest;
use toml::{Table, Value};

use super::sandbox::{self, SandboxSettings};
use super::section::Section;
use super::sources::{ConfigMistake, Sources, wrong};
use super::{good_name, units};

/// The slots of each group of jobs.
pub(super) type Groups = BTreeMap<String, u32>;

/// The settings of all jobs that do not set them themselves.
#[derive(Clone, Debug)]
pub(super) struct Defaults {
    /// How they are started, held back and tried again.
    pub(super) policy: Policy,
    /// The IANA zone of their times, but for those of the night.
    pub(super) zone: String,
    /// How their children are confined.
    pub(super) sandbox: SandboxSettings,
    /// Whether the machine is kept awake; without a word, as its kind needs it.
    pub(super) keep_awake: Option<bool>,
}

/// Reads the `[groups]`.
pub(super) fn groups(table: Table, sources: &Sources) -> Result<Groups, ConfigMistake> {
    let mut groups = Groups::new();
    for (name, value) in table {
        let path = format!("groups.{name}");
        let Value::Table(mut table) = value else {
            return Err(wrong(sources, &path, "it must be a table"));
        };
        if !good_name(&name) {
            return Err(wrong(sources, &path, "a group's name has letters, digits, - and _"));
        }
        let mut section = Section::of(&path, &mut table, sources);
        let slots = small(&mut section, "slots", 1)?;
        section.finish()?;
        let slots =
            slots.ok_or_else(|| wrong(sources, &path, "it has no slots (a whole number)"))?;
        groups.insert(name, slots);
    }
    Ok(groups)
}

/// Reads `[defaults]`; `zone` is that of the night.
pub(super) fn defaults(
    mut table: Table,
    zone: &str,
    groups: &Groups,
    sources: &Sources,
) -> Result<Defaults, ConfigMistake> {
    let mut policy = Policy::default();
    if let Some(slots) = groups.get(DEFAULT_GROUP) {
        policy.group.slots = *slots;
    }
    let mut section = Section::of("defaults", &mut table, sources);
    let zone = section.parsed("zone", units::zone)?.unwrap_or_else(|| zone.to_owned());
    lay_over(&mut policy, &mut section, groups)?;
    let mut sandbox = SandboxSettings::default();
    sandbox::lay_over(&mut sandbox, &mut section)?;
    let keep_awake = section.flag("keep_awake")?;
    section.finish()?;
    Ok(Defaults { policy, zone, sandbox, keep_awake })
}

/// Applies the settings of this table to `policy`.
pub(super) fn lay_over(
    policy: &mut Policy,
    section: &mut Section<'_>,
    groups: &Groups,
) -> Result<(), ConfigMistake> {
    let which =
        [("none", CatchUpScope::None), ("last", CatchUpScope::Last), ("all", CatchUpScope::All)];
    let overlap =
        [("skip", Overlap::Skip), ("queue", Overlap::Queue), ("replace", Overlap::Replace)];
    let catch_up = &mut policy.catch_up;
    lay(&mut catch_up.which, section.parsed("catch_up", |text| one_of(text, &which))?);
    lay(&mut catch_up.window, section.parsed("catch_up_window", units::duration)?);
    lay(&mut catch_up.cap, small(section, "catch_up_cap", 1)?);
    lay(&mut catch_up.stagger, section.parsed("stagger", units::wait)?);
    lay(&mut policy.overlap, section.parsed("overlap", |text| one_of(text, &overlap))?);
    lay(
        &mut policy.start_within,
        section.parsed("start_within", |text| or_none(text, units::duration))?,
    );
    lay(&mut policy.quiet, section.parsed("quiet", |text| or_none(text, quiet))?);
    lay(
        &mut policy.min_interval,
        section.parsed("min_interval", |text| or_none(text, units::duration))?,
    );
    if let Some(percent) = small(section, "min_battery", 0)? {
        policy.min_battery = u8::try_from(percent)
            .ok()
            .filter(|percent| *percent <= 100)
            .ok_or_else(|| too_big(section, "min_battery", "100"))?;
    }
    if let Some(load) = section.number("max_load")? {
        policy.max_load = load_limit(load).map_err(|most| too_big(section, "max_load", most))?;
    }
    lay(&mut policy.group, section.parsed("group", |name| group(name, groups))?);
    if let Some(priority) = section.integer("priority")? {
        policy.priority = i32::try_from(priority)
            .map_err(|_| section.wrong(&section.full("priority"), "it is out of all measure"))?;
    }
    lay(&mut policy.retry.count, small(section, "retries", 0)?);
    if let Some(texts) = section.texts("backoff")? {
        let waits: Result<Vec<_>, _> = texts.iter().map(|text| units::wait(text)).collect();
        let refuse = |why: &str| section.wrong(&section.full("backoff"), why);
        policy.retry.backoff = waits.map_err(|why| refuse(&why))?;
        if policy.retry.backoff.is_empty() {
            return Err(refuse("it must have one wait at least; retries = 0 is never"));
        }
    }
    Ok(())
}

fn lay<T>(under: &mut T, over: Option<T>) {
    if let Some(over) = over {
        *under = over;
    }
}

fn one_of<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, meant)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*meant);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let near = nearest(text, known.iter().copied())
        .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
    Err(format!("it must be one of {}, it is {text:?}{near}", known.join(", ")))
}

fn or_none<T>(
    text: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if text == "none" {
        return Ok(None);
    }
    read(text).map(Some)
}

/// Parses quiet hours such as "22:00-06:00".
fn quiet(text: &str) -> Result<Quiet, String> {
    let (from, to) = text
        .split_once('-')
        .ok_or_else(|| format!("{text:?} is not a part of the day (like \"22:00-06:00\")"))?;
    let (from, to) = (units::time(from.trim())?, units::time(to.trim())?);
    if from == to {
        return Err(format!(
            "{text:?} ends where it begins: a job that is never to be started has enabled = false"
        ));
    }
    Ok(Quiet { from, to })
}

fn group(name: &str, groups: &Groups) -> Result<ConcurrencyGroup, String> {
    match groups.get(name) {
        Some(slots) => Ok(ConcurrencyGroup { name: name.to_owned(), slots: *slots }),
        None => {
            let near = nearest(name, groups.keys().map(String::as_str))
                .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            Err(format!("there is no [groups.{name}]{near}"))
        }
    }
}

/// Converts a load limit to thousandths; 0 means no limit.
fn load_limit(load: f64) -> Result<Option<u32>, &'static str> {
    if load > 1000.0 {
        return Err("1000");
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be between 0 and 1000"
    )]
    let thousandths = (load * 1000.0).ceil() as u32;
    Ok((thousandths > 0).then_some(thousandths))
}

/// Reads a whole number of at least `least`.
fn small(
    section: &mut Section<'_>,
    key: &'static str,
    least: u32,
) -> Result<Option<u32>, ConfigMistake> {
    let Some(count) = section.count(key)? else {
        return Ok(None);
    };
    let count = u32::try_from(count).map_err(|_| too_big(section, key, "4294967295"))?;
    if count < least {
        return Err(section
            .wrong(&section.full(key), &format!("it must be {least} at least, it is {count}")));
    }
    Ok(Some(count))
}

fn too_big(section: &Section<'_>, key: &str, most: &str) -> ConfigMistake {
    section.wrong(&section.full(key), &format!("it must be {most} at most"))
}
