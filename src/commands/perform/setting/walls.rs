//! The walls of one run, from its job's kind and settings.
//!
//! *Proposing* kinds (dream, prompt) let a child of a backend write its part of the run's folder, a
//! private temporary folder, and what the backend adds for its own program's state; nothing of the
//! project. *Working* kinds (command) let it write what `writes` names besides, and never what only
//! runner, git's own setup or an agent's settings are. The network is open to backends, which ask
//! over it, and closed to commands unless the job opens it: what a command can read it could send.
//!
//! Must never name a path of the project that was not looked at without following links: what a
//! child put there once must not decide what the next one may write.

use std::fs;
use std::path::{Path, PathBuf};

use runner_engine::walls::blockers::NOTE;
use runner_engine::walls::{Caps, Confine, Quota, Walls};
use runner_jobs::KindSpec;
use runner_jobs::context::{CHILD_FOLDER, OUT_FOLDER};

use super::Setting;
use crate::cli::Failure;
use crate::config::{Config, NEVER, Sandbox};
use crate::home;

/// A run's folder for temporary files.
const TEMP_FOLDER: &str = "tmp";
/// Of git's own folder, what decides which programs git starts.
const GIT_KEEPS: [&str; 4] = ["hooks", "config", "commondir", "info/attributes"];
/// The same of what need not be there, and is only read where git's settings, which are kept, say so.
const GIT_KEEPS_IF_THERE: [&str; 1] = ["config.worktree"];
/// Folders of a home in which other programs' sockets lie.
const SOCKETS: [&str; 4] = [
    ".ssh/agent",
    ".docker/run",
    ".docker/desktop",
    ".gnupg/S.gpg-agent.ssh",
];

impl Setting<'_> {
    /// What this run's children start behind; makes the folders that they may write.
    pub fn confine(&self) -> Result<Confine, Failure> {
        let sandbox = match self.here.config.jobs.get(&self.row.job_name) {
            Some(job) => job.sandbox.clone(),
            None => Sandbox::default(),
        };
        let cannot = |path: &Path, error: std::io::Error| {
            Failure::cannot_write(format!("cannot make {}: {error}", path.display()))
        };
        let real = |path: &Path| fs::canonicalize(path).map_err(|error| cannot(path, error));
        let own = match &self.spec.kind {
            KindSpec::Command(_) => OUT_FOLDER,
            _ => CHILD_FOLDER,
        };
        for folder in [own, TEMP_FOLDER] {
            let folder = self.run_dir.join(folder);
            fs::create_dir_all(&folder).map_err(|error| cannot(&folder, error))?;
        }
        let run_dir = real(&self.run_dir)?;
        let mut walls = Walls {
            off: sandbox.off,
            write: vec![run_dir.join(own)],
            hide: vec![real(&self.home.state)?],
            network: sandbox
                .network
                .unwrap_or(!matches!(self.spec.kind, KindSpec::Command(_))),
            temp: Some(run_dir.join(TEMP_FOLDER)),
            note: Some(run_dir.join(NOTE)),
            caps: Caps {
                file_bytes: sandbox.max_file,
                ..Caps::default()
            },
            quota: Some(Quota {
                folder: run_dir,
                bytes: sandbox.max_folder,
            }),
            ..Walls::default()
        };
        if let Some(home) = self.environment.get("HOME").map(PathBuf::from)
            && let Ok(home) = fs::canonicalize(home)
        {
            walls.hide.extend(SOCKETS.map(|socket| home.join(socket)));
        }
        if let KindSpec::Command(command) = &self.spec.kind {
            let (write, keep) = working(
                &self.here.root,
                command.writes.as_deref(),
                &self.here.config,
            );
            walls.write.extend(write);
            walls.keep.extend(keep);
            let config = self
                .home
                .user_config
                .parent()
                .and_then(|it| fs::canonicalize(it).ok());
            walls.keep.extend(config);
        }
        Ok(Confine {
            launcher: home::executable()?,
            walls,
        })
    }
}

/// What a working kind may write of the project, and what not of that.
pub fn working(
    root: &Path,
    writes: Option<&[String]>,
    config: &Config,
) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let all = [".".to_owned()];
    let write = writes
        .unwrap_or(&all)
        .iter()
        .map(|path| match path.as_str() {
            "." => root.to_owned(),
            path => root.join(path),
        });
    let git = root.join(".git");
    let mut keep: Vec<PathBuf> = NEVER
        .iter()
        .filter(|name| **name != ".git")
        .map(|name| root.join(name))
        .collect();
    let dreams = config.jobs.values().filter_map(|job| match &job.spec.kind {
        KindSpec::Dream(dream) => Some(root.join(&dream.dreams)),
        _ => None,
    });
    keep.extend(dreams);
    if git.is_dir() {
        keep.extend(git_keeps(&git));
    } else {
        // A linked worktree's: it names the folder that git takes its settings from.
        keep.push(git);
    }
    keep.sort();
    keep.dedup();
    (write.collect(), keep)
}

/// What is kept of a git folder, and of those of its submodules.
fn git_keeps(git: &Path) -> Vec<PathBuf> {
    let there = |path: &PathBuf| path.symlink_metadata().is_ok();
    let mut keep: Vec<PathBuf> = GIT_KEEPS.iter().map(|name| git.join(name)).collect();
    // Git makes it only when somebody asks for it.
    if !git.join("info").is_dir() {
        keep.retain(|path| !path.ends_with("info/attributes"));
        keep.push(git.join("info"));
    }
    keep.extend(
        GIT_KEEPS_IF_THERE
            .iter()
            .map(|name| git.join(name))
            .filter(there),
    );
    for entry in fs::read_dir(git.join("modules"))
        .into_iter()
        .flatten()
        .flatten()
    {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            keep.extend(git_keeps(&entry.path()).into_iter().filter(there));
        }
    }
    keep
}
