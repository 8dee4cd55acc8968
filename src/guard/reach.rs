//! What of a project a job may write: the one answer for its walls, for the hook and for whoever asks.

use std::fs;
use std::path::{Path, PathBuf};

use runner_jobs::lifecycle::manifest;
use runner_jobs::{JobSpec, KindSpec};

use crate::config::{Config, NEVER};
use crate::project::identity;

/// The same of an agent, which commits what it did: git's folder too, whatever it may write besides.
pub fn of_agent(
    root: &Path,
    writes: Option<&[String]>,
    config: &Config,
) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut write, keep) = working(root, writes, config);
    let git = root.join(".git");
    if git.is_dir() && !write.iter().any(|path| path == root) {
        write.push(git);
    }
    (write, keep)
}

/// Of git's own folder, what decides which programs git starts.
const GIT_KEEPS: [&str; 4] = ["hooks", "config", "commondir", "info/attributes"];
/// The same of what need not be there: `config.worktree` is only read where git's settings, which are
/// kept, say so, and the project's id is in the database.
const GIT_KEEPS_IF_THERE: [&str; 2] = ["config.worktree", identity::FILE];
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
    let own = [&config.lifecycle.steps, &config.lifecycle.daydreams];
    keep.extend(own.map(|path| root.join(path)));
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

/// What a job may write, itself or through runner, and what not of that.
pub fn of_job(root: &Path, spec: &JobSpec, config: &Config) -> (Vec<PathBuf>, Vec<PathBuf>) {
    match &spec.kind {
        KindSpec::Dream(dream) => (vec![root.join(&dream.dreams)], Vec::new()),
        KindSpec::Prompt(prompt) => {
            // The date is the night's; until then any file of that form is as good.
            let to = root.join(&prompt.to);
            let folder = to.parent().unwrap_or(root).to_owned();
            let placed = if prompt.to.contains("{date}") {
                folder
            } else {
                to
            };
            (vec![placed], Vec::new())
        }
        KindSpec::Command(command) => {
            let (mut write, keep) = working(root, command.writes.as_deref(), config);
            write.extend(
                command
                    .artifacts
                    .iter()
                    .map(|artifact| root.join(&artifact.to)),
            );
            (write, keep)
        }
        // The widest of its states.
        KindSpec::Cycle(cycle) => of_agent(root, cycle.writes.as_deref(), config),
        KindSpec::Work(work) => of_agent(root, work.writes.as_deref(), config),
        KindSpec::Overnight(own) => {
            use runner_jobs::overnight::{corpus, lock};
            let corpus = root.join(corpus::FOLDER);
            let mut write: Vec<PathBuf> =
                corpus::SUBPATHS.iter().map(|it| corpus.join(it)).collect();
            write.extend([root.join(lock::FOLDER), root.join(&own.output_dir)]);
            (write, Vec::new())
        }
        KindSpec::Report => (vec![root.join(runner_jobs::report::FOLDER)], Vec::new()),
        KindSpec::Rem(rem) => (
            vec![root.join(manifest::folder(rem.agent.as_deref()))],
            Vec::new(),
        ),
        KindSpec::Daydream(daydream) => (vec![root.join(&daydream.files.daydreams)], Vec::new()),
        KindSpec::Curator(curator) => {
            let write = [&curator.worker_dir, &curator.ideas, &curator.learnings];
            (write.map(|path| root.join(path)).to_vec(), Vec::new())
        }
    }
}
