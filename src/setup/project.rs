//! A project's part in a setup: the minutes at which its schedules need ticks, and the changes to
//! its `runner.toml`.
//!
//! A change is undone if and only if the file has not been edited since then. Otherwise, the file
//! is kept, and the removal reports this.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use jiff::civil::Time;
use runner_engine::files::{DOCUMENT, read_text_in};
use runner_jobs::kind::Asks;

use super::plan::SetupStep;
use super::record::{ChangedFile, ServedProject};
use super::ticks::{self, ProjectNeed};
use crate::config::{self, Config, Edit, SettingChange};
use crate::env::Env;
use crate::project::{FILE, LoadedProject};
use crate::ui::Failure;

/// The command-line options for a project.
#[derive(Clone, Debug, Default)]
pub struct SetupOptions {
    /// The time at which the project's night opens.
    pub at: Option<Time>,
    /// The name of the backend to use.
    pub backend: Option<String>,
    /// The jobs to switch to the backend; if empty, all jobs that call a backend.
    pub jobs: Vec<String>,
}

/// The planned state of the project.
#[derive(Debug)]
pub struct ProjectPart {
    /// The project's entry in the setup record.
    pub served: ServedProject,
    /// The jobs that are due more often than a timer ticks, each with its schedule.
    pub frequent: Vec<(String, String)>,
    /// The change to the project's configuration file, if any.
    pub edit: Option<SetupStep>,
    /// The time at which the night opens, with its time zone, for display.
    pub night: String,
}

/// Plans the project's part of the setup.
///
/// # Errors
/// Returns an error if a named job or backend does not exist, or if the project's file cannot be
/// read or changed.
pub fn part(
    home: &Env,
    here: &LoadedProject,
    wish: &SetupOptions,
    before: Option<&ServedProject>,
) -> Result<ProjectPart, Failure> {
    let path = here.root.join(FILE);
    let raw = text_in(&here.root)?.unwrap_or_default();
    let mark = if raw.starts_with('\u{feff}') { "\u{feff}" } else { "" };
    let text = raw[mark.len()..].to_owned();
    let changes = settings(&here.config, wish)?;
    let changes: Vec<SettingChange> =
        changes.into_iter().map(|(key, value)| SettingChange::Set(key, value)).collect();
    let wanted = Edit { changes: &changes, file: &path, user: false };
    let text = config::edit(&home.user_config, &wanted, Some(text))?.1;
    let new = format!("{mark}{text}");
    let changed = chained(before.and_then(|it| it.changed.as_ref()), &raw, &new);
    let at = wish.at.unwrap_or(here.config.night.at);
    let ProjectNeed { minutes, frequent } = ticks::of_project(&here.config, at, home.wall()?)?;
    Ok(ProjectPart {
        served: ServedProject { minutes, changed },
        frequent,
        edit: (new != raw).then_some(SetupStep::Write { path, old: Some(raw), new, mode: None }),
        night: format!("{} {}", at.strftime("%H:%M"), here.config.night.zone),
    })
}

/// Reads the contents of the project's settings file. Returns `None` if there is none.
fn text_in(root: &Path) -> Result<Option<String>, Failure> {
    match read_text_in(root, FILE, DOCUMENT) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::unreadable(&root.join(FILE), error)),
    }
}

/// Returns the settings to write, by key.
fn settings(config: &Config, wish: &SetupOptions) -> Result<Vec<(String, String)>, Failure> {
    let mut wanted = Vec::new();
    if let Some(at) = wish.at.filter(|at| *at != config.night.at) {
        wanted.push(("night.at".to_owned(), at.strftime("%H:%M").to_string()));
    }
    let Some(backend) = &wish.backend else { return Ok(wanted) };
    if !config.backends.contains_key(backend) {
        let known: Vec<&str> = config.backends.keys().map(String::as_str).collect();
        return Err(Failure::configuration(format!(
            "--runner {backend}: there is no such backend (the backends are: {})",
            known.join(", ")
        ))
        .hint(format!(
            "runner config set --user backends.{backend}.type command   (or another type; see the guide)"
        )));
    }
    for name in &wish.jobs {
        config.job(name)?;
    }
    for (name, job) in &config.jobs {
        let asks = job.spec.kind.asks() != Asks::Never;
        let meant = if wish.jobs.is_empty() { asks } else { wish.jobs.contains(name) };
        if meant && job.spec.backend != *backend {
            wanted.push((format!("jobs.{name}.backend"), backend.clone()));
        }
    }
    Ok(wanted)
}

/// Returns the record that is needed to undo all changes, including this one. Returns `None` if
/// nothing is to be undone.
fn chained(known: Option<&ChangedFile>, raw: &str, new: &str) -> Option<ChangedFile> {
    match known {
        Some(known) if known.before == raw || known.after.contains(raw) => {
            let mut known = known.clone();
            known.after.insert(new.to_owned());
            Some(known)
        }
        _ if raw == new => None,
        _ => Some(ChangedFile { before: raw.to_owned(), after: BTreeSet::from([new.to_owned()]) }),
    }
}

/// Returns the step that undoes the changes to a project's file, `None` if there is nothing to
/// undo, or the reason why the file is kept.
pub fn undo(
    root: &str,
    served: &ServedProject,
) -> Result<Result<Option<SetupStep>, String>, Failure> {
    let Some(changed) = &served.changed else { return Ok(Ok(None)) };
    let root = Path::new(root);
    let path = root.join(FILE);
    Ok(match text_in(root)? {
        Some(text) if text == changed.before => Ok(None),
        Some(text) if changed.after.contains(&text) => Ok(Some(SetupStep::Write {
            path,
            old: Some(text),
            new: changed.before.clone(),
            mode: None,
        })),
        Some(_) => Err(format!(
            "{} was changed after the setup, so the settings of the night and the backends are kept",
            path.display()
        )),
        None => Err(format!("{} no longer exists", path.display())),
    })
}
