//! Sets up this machine's own scheduler to call `runner tick`.
//!
//! ```text
//! settings, record, machine state ──converge──> Plan{steps} ──shown──> carried out, step by step
//!                                                  record the intent → … → record the result
//! ```
//!
//! There is one timer for each user, because a tick serves all projects. It ticks every quarter of
//! an hour, and more often if the projects' jobs need it. Runner, not the host, decides what is
//! due. Instead of a timer, the host can keep the daemon running as a service. This module must
//! never change anything that it did not create: files whose contents are not in the record, other
//! lines of a crontab, or lingering that was enabled before.

pub mod crontab;
pub mod environment;
mod escape;
pub mod hosts;
pub mod plan;
pub mod project;
pub mod record;
pub mod render;
pub mod ticks;
pub mod wake;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::env::{self, Env};
use crate::ui::Failure;
use hosts::{HostScheduler, WantedFile};
use plan::{OnFailure, SetupStep};
use record::{InstalledHost, SetupRecord};
use runner_engine::files::{DOCUMENT, read_text_host};
use runner_text::shell_word;

/// A host scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// macOS.
    Launchd,
    /// Any Unix.
    Cron,
    /// Linux with a systemd user manager.
    Systemd,
    /// Windows.
    TaskScheduler,
    /// No scheduler: the user runs ticks manually, or `runner daemon` does.
    #[default]
    Manual,
}

impl SchedulerKind {
    /// All kinds, each with its name on the command line.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("launchd", Self::Launchd),
        ("cron", Self::Cron),
        ("systemd", Self::Systemd),
        ("task-scheduler", Self::TaskScheduler),
        ("manual", Self::Manual),
    ];

    /// Returns the kind's name on the command line.
    pub fn as_str(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, kind)| *kind == self);
        found.map_or("manual", |(word, _)| word)
    }

    pub fn is_of_this_system(self) -> bool {
        match self {
            Self::Launchd => cfg!(target_os = "macos"),
            Self::Cron => cfg!(unix),
            Self::Systemd => cfg!(target_os = "linux"),
            Self::TaskScheduler => cfg!(windows),
            Self::Manual => true,
        }
    }
}

/// Returns the kind that fits this machine, and the reason.
pub fn fitting(record: &SetupRecord) -> (SchedulerKind, String) {
    // A record of "manual" is ignored, because it installed nothing.
    let there = record.hosts.keys().rfind(|kind| **kind != SchedulerKind::Manual);
    if let Some(kind) = there {
        return (*kind, "it is already set up".to_owned());
    }
    if cfg!(target_os = "macos") {
        return (SchedulerKind::Launchd, "this is macOS".to_owned());
    }
    if cfg!(windows) {
        return (SchedulerKind::TaskScheduler, "this is Windows".to_owned());
    }
    let silent = match hosts::ask_systemd() {
        Ok(_) => {
            return (SchedulerKind::Systemd, "`systemctl --user` answers".to_owned());
        }
        Err(_) => "`systemctl --user` does not answer",
    };
    match crontab::read() {
        Ok(_) => (SchedulerKind::Cron, format!("{silent}, and `crontab` runs")),
        Err(_) => (SchedulerKind::Manual, format!("{silent}, and `crontab` does not run either")),
    }
}

pub fn text_at(path: &Path) -> Result<Option<String>, Failure> {
    match read_text_host(path, DOCUMENT) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::unreadable(path, error)),
    }
}

/// The plan for bringing the machine from its current state to the desired one.
#[derive(Debug)]
pub struct Convergence {
    /// The steps to carry out; none if the machine is already in the desired state.
    pub steps: Vec<SetupStep>,
    /// Messages about runner's items that are kept, each with the reason.
    pub left: Vec<String>,
}

/// The desired state of this machine.
pub struct WantedSetup<'a> {
    /// The host scheduler that triggers ticks; `None` removes everything.
    pub kind: Option<SchedulerKind>,
    /// The record of the projects and options, without installed items.
    pub record: SetupRecord,
    /// The changes to project files, which `record` already contains.
    pub edits: Vec<SetupStep>,
    /// The environment to save for ticks; `None` keeps the saved one.
    pub environment: Option<&'a BTreeMap<String, String>>,
}

/// Plans the steps from `old`, the last record, to the desired state.
///
/// # Errors
/// Returns an error if something that runner did not create is in the way, if the current state
/// cannot be read, or if the scheduler or the environment cannot be set up as wanted.
pub fn converge(
    home: &Env,
    old: &SetupRecord,
    wanted: WantedSetup<'_>,
) -> Result<Convergence, Failure> {
    let WantedSetup { kind, mut record, edits, environment } = wanted;
    record.pending = false;
    record.service &= kind.is_some();
    let mut work = Vec::new();
    let mut left = Vec::new();
    let mut intent = record.clone();
    intent.hosts.clone_from(&old.hosts);
    // The record must still list everything to undo if a crash interrupts the steps.
    intent.everywhere |= old.everywhere;
    for (root, served) in &old.projects {
        if !intent.projects.contains_key(root) {
            intent.projects.insert(root.clone(), served.clone());
        }
    }
    record.hosts.clear();
    if let Some(variables) = environment {
        let path = home.environment_file();
        let roots = intent.projects.keys().map(Path::new);
        environment::refuse_project_folders(variables, roots)?;
        let new = environment::text(variables)?;
        write(&mut work, &path, text_at(&path)?, new, Some(0o600));
    }
    work.extend(edits);
    if let Some(kind) = kind {
        let host = HostScheduler::of(kind, home, &record.ticks())?;
        let before = old.hosts.get(&kind).cloned().unwrap_or_default();
        let (published, steps) = install(home, &host, &before, old.pending)?;
        let mut both = published.clone();
        for (path, texts) in &before.files {
            let all = both.files.entry(path.clone()).or_default();
            all.extend(texts.iter().cloned());
        }
        intent.hosts.insert(kind, both);
        record.hosts.insert(kind, published);
        work.extend(superseded(home, kind, &before, &host)?);
        work.extend(steps);
    }
    for (other, published) in &old.hosts {
        if Some(*other) != kind {
            work.extend(uninstall(home, *other, published, &mut left)?);
        }
    }
    if kind.is_none() {
        for path in [home.environment_file(), home.timer_log(), home.old_timer_log()] {
            if path.symlink_metadata().is_ok() {
                work.push(SetupStep::Remove(path));
            }
        }
    }
    let nothing = SetupRecord::default();
    if work.is_empty() && (*old == record || record == nothing && !home.setup_note().exists()) {
        return Ok(Convergence { steps: Vec::new(), left });
    }
    intent.pending = true;
    let mut steps = vec![SetupStep::Note(Box::new(intent))];
    steps.extend(work);
    steps.push(match record == nothing {
        true => SetupStep::Forget,
        false => SetupStep::Note(Box::new(record)),
    });
    Ok(Convergence { steps, left })
}

fn write(
    work: &mut Vec<SetupStep>,
    path: &Path,
    old: Option<String>,
    new: String,
    mode: Option<u32>,
) {
    if old.as_deref() != Some(new.as_str()) {
        work.push(SetupStep::Write { path: path.to_owned(), old, new, mode });
    }
}

/// Returns the items that will be installed for a host, and the steps that install them.
fn install(
    home: &Env,
    host: &HostScheduler,
    before: &InstalledHost,
    pending: bool,
) -> Result<(InstalledHost, Vec<SetupStep>), Failure> {
    let mut published = InstalledHost {
        folders: before.folders.clone(),
        no_crontab_before: before.no_crontab_before,
        lingers_for_us: before.lingers_for_us,
        ..InstalledHost::default()
    };
    let mut steps = Vec::new();
    let folders: BTreeSet<&Path> = host
        .files
        .iter()
        .map(|file| file.path.as_path())
        .chain(host.links.iter().map(|(path, _)| path.as_path()))
        .filter_map(Path::parent)
        .collect();
    for folder in folders {
        let missing: Vec<_> = folder.ancestors().take_while(|it| !it.exists()).collect();
        if !missing.is_empty() {
            steps.push(SetupStep::Folder(folder.to_owned()));
        }
        for made in missing.into_iter().rev().map(Path::to_owned) {
            if !published.folders.contains(&made) {
                published.folders.push(made);
            }
        }
    }
    for WantedFile { path, text, mode } in &host.files {
        let there = text_at(path)?;
        let ours = before.files.get(path);
        if let Some(there) = &there
            && there != text
            && !ours.is_some_and(|texts| texts.contains(there))
        {
            return Err(not_ours(path));
        }
        let texts = BTreeSet::from([text.clone()]);
        published.files.insert(path.clone(), texts);
        write(&mut steps, path, there, text.clone(), Some(*mode));
    }
    for (path, to) in &host.links {
        match fs::read_link(path) {
            Ok(found) if found == *to => {}
            Ok(_) => return Err(not_ours(path)),
            Err(_) if path.symlink_metadata().is_ok() => return Err(not_ours(path)),
            Err(_) => steps.push(SetupStep::Link(path.clone(), to.clone())),
        }
        published.links.insert(path.clone(), to.clone());
    }
    if let Some(line) = &host.crontab {
        let old = crontab::read()?;
        let there = old.clone().unwrap_or_default();
        let new = crontab::with_block(&there, &home.owner(), line).map_err(broken)?;
        if old.is_none() {
            published.no_crontab_before = true;
        }
        if old.as_ref() != Some(&new) {
            steps.push(SetupStep::Crontab { old, new: Some(new) });
        }
    }
    if host.lingers == Some(false) {
        published.lingers_for_us = true;
        steps.push(run(&["loginctl", "enable-linger"], OnFailure::Report));
    }
    // An interrupted setup may have written the files without loading them in the host.
    if !steps.is_empty() || pending || !host.is_awake() {
        steps.extend(host.start.iter().cloned());
    }
    Ok((published, steps))
}

/// Returns the steps that remove obsolete items from an earlier setup for the same host: those of a
/// timer that is replaced by the daemon, or those of a daemon that is replaced by a timer.
fn superseded(
    home: &Env,
    kind: SchedulerKind,
    before: &InstalledHost,
    host: &HostScheduler,
) -> Result<Vec<SetupStep>, Failure> {
    let wanted = |path: &Path| host.files.iter().any(|file| file.path == path);
    let mut old = InstalledHost::default();
    for (path, texts) in before.files.iter().filter(|(path, _)| !wanted(path)) {
        if text_at(path)?.is_some_and(|text| texts.contains(&text)) {
            old.files.insert(path.clone(), texts.clone());
        }
    }
    if old.files.is_empty() {
        return Ok(Vec::new());
    }
    let mut steps = hosts::stop(kind, home, &old);
    let links = before.links.keys().filter(|path| host.links.iter().all(|(link, _)| link != *path));
    steps.extend(links.cloned().map(SetupStep::Remove));
    steps.extend(old.files.into_keys().map(SetupStep::Remove));
    Ok(steps)
}

/// Returns the steps that remove everything that was installed for a host, except files that were
/// changed later. For each of those, adds a message to `left`.
fn uninstall(
    home: &Env,
    kind: SchedulerKind,
    published: &InstalledHost,
    left: &mut Vec<String>,
) -> Result<Vec<SetupStep>, Failure> {
    let mut steps = hosts::stop(kind, home, published);
    for path in published.links.keys() {
        if fs::read_link(path).is_ok_and(|to| published.links.get(path) == Some(&to)) {
            steps.push(SetupStep::Remove(path.clone()));
        }
    }
    for (path, texts) in &published.files {
        match text_at(path)? {
            Some(text) if texts.contains(&text) => steps.push(SetupStep::Remove(path.clone())),
            Some(_) => left.push(format!(
                "{} was changed after the setup, so it is kept; remove it if you do not need it",
                path.display()
            )),
            None => {}
        }
    }
    if kind == SchedulerKind::Cron
        && let Some(old) = crontab::read()?
    {
        let new = crontab::without_block(&old, &home.owner()).map_err(broken)?;
        if new != old {
            let none = new.is_empty() && published.no_crontab_before;
            steps.push(SetupStep::Crontab { old: Some(old), new: (!none).then_some(new) });
        }
    }
    if published.lingers_for_us {
        steps.push(run(&["loginctl", "disable-linger"], OnFailure::Report));
    }
    for folder in published.folders.iter().rev() {
        steps.push(SetupStep::RemoveFolder(folder.clone()));
    }
    steps.extend(hosts::stopped(kind));
    Ok(steps)
}

fn run(words: &[&str], on_failure: OnFailure) -> SetupStep {
    SetupStep::Run { words: words.iter().map(|word| (*word).to_owned()).collect(), on_failure }
}

fn broken(what: String) -> Failure {
    Failure::data(what).hint("crontab -e, remove runner's lines, then run the command again")
}

fn not_ours(path: &Path) -> Failure {
    Failure::data(format!(
        "{} was not created by this setup, or was changed after it; nothing was written",
        path.display()
    ))
    .hint(format!("mv {0} {0}.old, then run the command again", shell_word(path.display())))
}

/// Returns the variables of the current environment to save, and sets `USER` and `LOGNAME` if they
/// are missing.
pub fn frozen() -> BTreeMap<String, String> {
    let mut found = env::named(environment::FROZEN.iter().copied());
    // Some programs read `USER` and others `LOGNAME`.
    for (name, twin) in [("USER", "LOGNAME"), ("LOGNAME", "USER")] {
        if let (None, Some(value)) = (found.get(name), found.get(twin).cloned()) {
            found.insert(name.to_owned(), value);
        }
    }
    if !found.contains_key("USER")
        && let Ok(name) = plan::run(&["id", "-un"].map(str::to_owned))
    {
        found.insert("USER".to_owned(), name.clone());
        found.insert("LOGNAME".to_owned(), name);
    }
    found.retain(|_, value| !value.is_empty());
    found
}
