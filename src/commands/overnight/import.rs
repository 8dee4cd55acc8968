//! `runner overnight import`: imports what another program left: unfinished commits, a linked
//! `.agents` folder, the registry of findings, and settings.
//!
//! Commits and findings are imported under the night's lock, and copies of removed files are kept.
//! The command must never change the folder that a link points to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runner_engine::files::open_host;
use runner_engine::outcome::Exit;
use runner_jobs::overnight::KIND;
use runner_jobs::overnight::corpus::{Changes, Corpus, FOLDER};
use runner_jobs::overnight::import::{self, CommitEnd, ForeignCommit, ImportedFindings};
use runner_text::counted;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;
use toml::Value;

use crate::commands::corpus::{self, CorpusFolder};
use crate::commands::{Cli, default_job};
use crate::config::{self, Edit, SettingChange};
use crate::project::FILE;
use crate::ui::{Failure, Ui, View, safe, show};

/// The copy of a linked folder until it is complete.
const COPY: &str = ".agents.importing";
/// The files with another program's settings, relative to the project.
const SETTINGS: [&str; 2] = [".agents/ao/config.yaml", ".agentops/config.yaml"];
/// The settings whose names differ, each with the other program's name and runner's name.
const NAMES: [(&str, &str); 4] = [
    ("report_dir", "output_dir"),
    ("run_timeout", "timeout"),
    ("runner", "runners"),
    ("council_runner_timeout", "council_timeout"),
];
/// The settings with the same name in both programs.
const SAME: [&str; 11] = [
    "goal",
    "output_dir",
    "keep_awake",
    "runners",
    "creative_lane",
    "queue",
    "max_iterations",
    "plateau_epsilon",
    "plateau_window",
    "warn_only",
    "checkpoint_max_mb",
];

/// Import what another program left: unfinished commits, the registry of findings, settings and a
/// linked .agents folder; without --apply, show the changes
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner overnight import --apply")]
pub(super) struct ImportArgs {
    /// Make the changes [default: show them]
    #[arg(long)]
    apply: bool,
}

/// The result of an import.
#[derive(Debug, Serialize)]
struct Imported {
    applied: bool,
    /// The target of `.agents`, if `.agents` is a symbolic link. The import replaces the link with
    /// a copy.
    link: Option<PathBuf>,
    commits: Vec<ForeignCommit>,
    findings: ImportedFindings,
    /// The names of runner's settings to import, each with its value.
    settings: Vec<(String, String)>,
    /// The settings that runner does not have.
    unknown_settings: Vec<String>,
    /// The settings whose value runner refuses, each with the reason.
    refused_settings: Vec<(String, String)>,
}

impl ImportArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let root = corpus::find_any(cli.here)?;
        if self.apply {
            finish_replacement(&root).map_err(cannot_copy)?;
        }
        let mut imported = Imported {
            applied: self.apply,
            link: fs::read_link(root.join(FOLDER)).ok(),
            commits: Vec::new(),
            findings: ImportedFindings::default(),
            settings: Vec::new(),
            unknown_settings: Vec::new(),
            refused_settings: Vec::new(),
        };
        // The settings are read before any change, because an unreadable file is an error.
        imported.read_settings(cli, &root)?;
        if self.apply && imported.link.is_some() {
            replace_link(&root).map_err(cannot_copy)?;
        }
        // Files reached through a link cannot be read until the link has been replaced.
        if self.apply || imported.link.is_none() {
            let folder = CorpusFolder { cli, root: root.clone() };
            let step = |_: &Corpus| import::commits(&root).map_err(unreadable);
            imported.commits = self.step(&folder, step)?;
            let step = |corpus: &Corpus| import::findings(&root, corpus).map_err(unreadable);
            imported.findings = self.step(&folder, step)?;
        }
        if self.apply {
            for commit in imported.commits.iter().filter(|it| it.end != CommitEnd::LeftAlone) {
                import::set_aside(&root, commit).map_err(|error| {
                    Failure::cannot_write(format!("cannot move {}: {error}", commit.marker))
                })?;
            }
            if !imported.settings.is_empty() {
                let project = default_job::overnight(cli)?;
                default_job::add(cli, &project.root, &imported.settings)?;
            }
        }
        cli.ui.show(&imported);
        Ok(Exit::Done)
    }

    /// Returns a step's result, and makes its changes if `--apply` is given.
    fn step<T>(
        &self,
        folder: &CorpusFolder<'_>,
        step: impl FnOnce(&Corpus) -> Result<(T, Changes), Failure>,
    ) -> Result<T, Failure> {
        match self.apply {
            true => folder.change(step),
            false => folder.preview(step),
        }
    }
}

impl Imported {
    /// Reads the other program's settings. Each setting is checked separately, so an invalid one
    /// does not prevent the import of the others.
    fn read_settings(&mut self, cli: &Cli<'_>, root: &Path) -> Result<(), Failure> {
        let file = root.join(FILE);
        for path in SETTINGS {
            let Some(section) = config::foreign_section(&root.join(path))? else { continue };
            for (name, value) in section {
                let Some((key, value)) = setting(&name, value) else {
                    self.unknown_settings.push(format!("{path}: dream.{name}"));
                    continue;
                };
                let job = [("kind", KIND), ("trigger", "manual")];
                let job = job.map(|(key, value)| (format!("jobs.{KIND}.{key}"), value.to_owned()));
                let all = job.into_iter().chain([(key.clone(), value.clone())]);
                let changes: Vec<SettingChange> =
                    all.map(|(key, value)| SettingChange::Set(key, value)).collect();
                let edit = Edit { changes: &changes, file: &file, user: false };
                match config::edit(&cli.env.user_config, &edit, None) {
                    Ok(_) => self.settings.push((key, value)),
                    Err(why) => self.refused_settings.push((key, why.to_string())),
                }
            }
        }
        Ok(())
    }
}

fn unreadable(error: io::Error) -> Failure {
    Failure::data(format!("cannot read what the other program left: {error}"))
}

/// Returns the full name of runner's setting and its value as TOML text, or `None` if runner has no
/// such setting.
fn setting(name: &str, value: Value) -> Option<(String, String)> {
    let own = NAMES.iter().find(|(theirs, _)| *theirs == name).map(|(_, own)| *own);
    let own = own.or_else(|| SAME.into_iter().find(|own| *own == name));
    match (own, name, value) {
        (Some(own), _, value) => Some((format!("jobs.overnight.{own}"), value.to_string())),
        (None, "at", Value::String(at)) => {
            Some(("jobs.overnight.trigger".to_owned(), format!("\"daily {at}\"")))
        }
        _ => None,
    }
}

fn cannot_copy(error: io::Error) -> Failure {
    Failure::cannot_write(format!("cannot copy the linked {FOLDER}: {error}"))
}

/// Removes the link that remains if a replacement was killed after the exchange.
fn finish_replacement(root: &Path) -> io::Result<()> {
    let left = root.join(COPY);
    match left.is_symlink() {
        true => fs::remove_file(left),
        false => Ok(()),
    }
}

/// Replaces the link with a copy of the folder that it points to. Links inside that folder are not
/// copied, and the folder itself is not changed.
fn replace_link(root: &Path) -> io::Result<()> {
    let (link, copy) = (root.join(FOLDER), root.join(COPY));
    match fs::remove_dir_all(&copy) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut waiting = vec![PathBuf::new()];
    while let Some(at) = waiting.pop() {
        fs::create_dir(copy.join(&at))?;
        for entry in fs::read_dir(link.join(&at))? {
            let entry = entry?;
            let (path, kind) = (at.join(entry.file_name()), entry.file_type()?);
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file() {
                io::copy(
                    &mut open_host(entry.path())?,
                    &mut fs::File::create_new(copy.join(path))?,
                )?;
            }
        }
    }
    // The link and its copy are exchanged, so a kill loses neither. Without such an exchange, a kill
    // leaves the copy.
    match renameat_with(CWD, &copy, CWD, &link, RenameFlags::EXCHANGE) {
        Ok(()) => fs::remove_file(&copy),
        Err(_) => fs::remove_file(&link).and_then(|()| fs::rename(&copy, &link)),
    }
}

impl View for Imported {
    fn print(&self, _ui: Ui) {
        let mut lines = Vec::new();
        if let Some(link) = &self.link {
            let target = safe::line(&link.display().to_string());
            lines.push(format!("{FOLDER} is a link to {target}: replaced by a copy"));
        }
        for commit in &self.commits {
            let end = match commit.end {
                CommitEnd::Completed => "completed",
                CommitEnd::RolledBack => "rolled back",
                CommitEnd::LeftAlone => {
                    "its marker cannot be read; remove it once the corpus is correct"
                }
            };
            let (marker, files) = (safe::line(&commit.marker), counted(commit.files, "file"));
            lines.push(format!("unfinished commit {marker}: {end}, {files}"));
        }
        let findings = &self.findings;
        lines.push(format!(
            "findings: {} new, {} already known",
            findings.added.len(),
            findings.known
        ));
        lines.extend(findings.added.iter().map(|path| format!("  {}", safe::line(path))));
        let unreadable = findings.unreadable.iter();
        lines.extend(
            unreadable.map(|line| format!("  line {line} of the registry is not a finding")),
        );
        for (key, value) in &self.settings {
            lines.push(format!("setting {key} = {}", safe::line(value)));
        }
        for (key, why) in &self.refused_settings {
            lines.push(format!("not imported: {} ({})", safe::line(key), safe::line(why)));
        }
        for name in &self.unknown_settings {
            lines.push(format!("runner has no such setting: {}", safe::line(name)));
        }
        if !self.applied {
            lines.push(
                "nothing was changed; to make these changes: runner overnight import --apply"
                    .to_owned(),
            );
        }
        show::out(&(lines.join("\n") + "\n"));
    }
}
