//! The tables of backends.
//!
//! Must never take a setting that nobody reads, and never a key itself: only where one lies.

use std::time::Duration;

use runner_backends::registry::KINDS as BACKENDS;
use runner_backends::{BackendSpec, Patience};
use runner_text::nearest::nearest;

use super::section::Section;
use super::sources::ConfigMistake;
use super::units;

/// Reads a duration that limits the wait for a child process.
fn waited(section: &mut Section<'_>, key: &'static str) -> Result<Option<Duration>, ConfigMistake> {
    let read = |text: &str| {
        let span = units::duration(text)?;
        Duration::try_from(span).map_err(|_| "it is too long".to_owned())
    };
    section.parsed(key, read)
}

/// Reads one table below `[backends]`.
pub(super) fn backend(name: &str, section: &mut Section<'_>) -> Result<BackendSpec, ConfigMistake> {
    let path = format!("backends.{name}.type");
    let kind = section.text("type")?.ok_or_else(|| {
        let kinds = BACKENDS.join(", ");
        section.wrong(&format!("backends.{name}"), &format!("it has no type ({kinds})"))
    })?;
    if !BACKENDS.contains(&kind.as_str()) {
        let near = nearest(&kind, BACKENDS)
            .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        return Err(section
            .wrong(&path, &format!("there is no type {kind:?} ({}){near}", BACKENDS.join(", "))));
    }
    let env = section.texts("env")?;
    let whole =
        |section: &mut Section<'_>, key: &'static str| -> Result<Option<u32>, ConfigMistake> {
            let Some(number) = section.count(key)? else {
                return Ok(None);
            };
            match u32::try_from(number) {
                Ok(number) if number > 0 => Ok(Some(number)),
                _ => Err(section.wrong(
                    &format!("backends.{name}.{key}"),
                    &format!("it must be from 1 to {}, it is {number}", u32::MAX),
                )),
            }
        };
    Ok(BackendSpec {
        name: name.to_owned(),
        kind,
        model: section.text("model")?,
        program: section.text("program")?,
        args: section.texts("args")?.unwrap_or_default(),
        only_env: env.is_some(),
        env: env.unwrap_or_default(),
        artifact: section.text("artifact")?,
        quiet: section.flag("quiet")?.unwrap_or(false),
        output_cap: section
            .parsed("output_cap", units::size)?
            .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        patience: Patience {
            connect: waited(section, "connect")?,
            first_byte: waited(section, "first_byte")?,
            idle: waited(section, "idle")?,
            grace: waited(section, "grace")?,
        },
        env_file: section.parsed("env_file", own_path)?,
        state: section.parsed("state", own_path)?,
        sessions: section.flag("sessions")?.unwrap_or(false),
        tools: section.texts("tools")?.unwrap_or_default(),
        max_turns: whole(section, "max_turns")?,
        fallback_model: section.text("fallback_model")?,
        slots: whole(section, "slots")?,
        recording: section.text("recording")?.map(Into::into),
        fallback: section.texts("fallback")?.unwrap_or_default(),
        base_url: section.text("base_url")?,
        api: one_of_words(section, "api", &["chat", "responses"])?,
        key: section.text("key")?,
        structured: one_of_words(section, "structured", &["schema", "tool", "prompt"])?,
        max_output_tokens: whole(section, "max_output_tokens")?.map(u64::from),
        ca_file: section.parsed("ca_file", own_path)?,
        num_ctx: whole(section, "num_ctx")?.map(u64::from),
        keep_alive: section
            .parsed("keep_alive", units::wait)?
            .map(|span| format!("{}s", span.as_secs())),
    })
}

/// Reads a key whose value must be one of `words`.
fn one_of_words(
    section: &mut Section<'_>,
    key: &'static str,
    words: &'static [&'static str],
) -> Result<Option<String>, ConfigMistake> {
    section.parsed(key, |text| match words.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("it must be one of {}", words.join(", "))),
    })
}

/// Checks that a path is absolute or begins with `~/`, so that it means the same in every folder.
fn own_path(text: &str) -> Result<std::path::PathBuf, String> {
    if text.starts_with('/') || text.starts_with("~/") {
        return Ok(text.into());
    }
    Err(format!("it must begin with / or ~/, it is {text:?}"))
}
