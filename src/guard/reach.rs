//! Determines the paths of a project that a job may write. The sandbox, the hook and every command
//! that shows these paths use this one answer.

use std::fs;
use std::path::{Component, Path, PathBuf};

use runner_jobs::lifecycle::manifest;
use runner_jobs::lifecycle::work::prompt_file;
use runner_jobs::{JobSpec, KindSpec};

use crate::cli::Failure;
use crate::config::{Config, NEVER};
use crate::cycles;
use crate::project::identity;

/// Returns the same paths for an agent. An agent commits its work, so git's folder is added to the
/// paths that it may write.
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

/// Names in git's folder that decide which programs git starts.
const GIT_KEEPS: [&str; 4] = ["hooks", "config", "commondir", "info/attributes"];
/// The same of what need not be there: `config.worktree` is only read where git's settings, which are
/// kept, say so, and the project's id is in the database.
const GIT_KEEPS_IF_THERE: [&str; 2] = ["config.worktree", identity::FILE];
/// Returns the paths of the project that a working kind may write, and the paths among them that it
/// must not write.
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
    keep.extend(steering(root, config));
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

/// Returns the files of the project that its configuration names and that decide what its jobs do:
/// the cycles of agents, and the prompts that a job or a state of a cycle names. The files need not
/// exist.
pub fn steering(root: &Path, config: &Config) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut prompts = Vec::new();
    for job in config.jobs.values() {
        match &job.spec.kind {
            KindSpec::Cycle(cycle) => {
                found.extend(cycles::file(cycle).and_then(|file| within(root, &file)));
                // One that cannot be read names no prompt, and no run of it starts.
                let states =
                    cycles::cycle_of(root, cycle).map_or_else(|_| Vec::new(), |it| it.states);
                prompts.extend(states.into_iter().filter_map(|state| state.prompt));
            }
            KindSpec::Work(work) => prompts.extend(work.prompt.clone()),
            _ => {}
        }
    }
    let files = prompts.iter().filter_map(|prompt| prompt_file(prompt));
    found.extend(files.filter_map(|file| within(root, file)));
    found
}

/// Checks that a job publishes nothing that its program or model wrote over what decides on jobs.
///
/// # Errors
/// It does; the setting must name another file.
pub fn check_targets(root: &Path, spec: &JobSpec, config: &Config) -> Result<(), Failure> {
    let (key, targets): (_, Vec<&str>) = match &spec.kind {
        KindSpec::Command(command) => {
            let artifacts = command.artifacts.iter();
            ("artifacts", artifacts.map(|it| it.to.as_str()).collect())
        }
        KindSpec::Prompt(prompt) => ("to", vec![&prompt.to]),
        _ => return Ok(()),
    };
    let kept = steering(root, config);
    let meets = |target: &&str| {
        let path = root.join(target);
        kept.iter()
            .any(|kept| path.starts_with(kept) || kept.starts_with(&path))
    };
    match targets.into_iter().find(meets) {
        None => Ok(()),
        Some(target) => Err(Failure::configuration(format!(
            "job {:?} would write {target:?}, which decides what the jobs of this project do",
            spec.name
        ))
        .hint(format!(
            "runner config set jobs.{}.{key} ANOTHER-FILE",
            spec.name
        ))),
    }
}

/// Returns the path of a file that a setting names, or `None` if it lies outside the project.
fn within(root: &Path, file: &str) -> Option<PathBuf> {
    let path = root.join(file);
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let path = match path.components().all(plain) {
        // The same path without `.` and doubled slashes.
        true => path.components().collect(),
        false => fs::canonicalize(path).ok()?,
    };
    path.starts_with(root).then_some(path)
}

/// Returns the protected paths of a git folder and of the git folders of its submodules.
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

/// Returns the paths that a job may write, itself or through runner, and the paths among them that
/// it must not write.
pub fn of_job(root: &Path, spec: &JobSpec, config: &Config) -> (Vec<PathBuf>, Vec<PathBuf>) {
    match &spec.kind {
        KindSpec::Dream(dream) => (vec![root.join(&dream.dreams)], Vec::new()),
        KindSpec::Prompt(prompt) => {
            // The date is the night's; until then any file of that form is as good.
            let to = root.join(&prompt.to);
            let folder = to.parent().unwrap_or(root).to_owned();
            let published = if prompt.to.contains("{date}") {
                folder
            } else {
                to
            };
            (vec![published], Vec::new())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, Stack, load};

    #[test]
    fn what_decides_on_jobs_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let toml = root.join("runner.toml");
        fs::write(
            &toml,
            "[jobs.cycle]\nkind = \"lifecycle\"\ntrigger = \"manual\"\ncycle = \"cycles/own.md\"\n\
             [jobs.up]\nkind = \"wake\"\nagent = \"a\"\nprompt = \"prompts/wake.md\"\n\
             [jobs.plan]\nkind = \"plan\"\nagent = \"a\"\nprompt = \"Groom the board.\"\n\
             [jobs.odd]\nkind = \"audit\"\nagent = \"a\"\nprompt = \"../outside.md\"\n",
        )
        .unwrap();
        fs::create_dir(root.join("cycles")).unwrap();
        let cycle = "## add\n- KIND: wake\n- NEXT: rem\n- PROMPT: prompts/state.md\n\n\
                     ## rem\n- KIND: rem\n- NEXT: add\n";
        let kept = || {
            let overrides = Overrides::default();
            let config = load(&Stack {
                user: &root.join("none"),
                project: Some(&toml),
                overrides: &overrides,
            })
            .unwrap();
            let (_, keep) = working(&root, None, &config);
            let beneath = |path: PathBuf| Some(path.strip_prefix(&root).ok()?.to_str()?.to_owned());
            let keep: Vec<String> = keep.into_iter().filter_map(beneath).collect();
            assert!(
                keep.iter().any(|it| it == ".ctxrc") && !keep.iter().any(|it| it.contains(".."))
            );
            ["cycles/own.md", "prompts/wake.md", "prompts/state.md"]
                .map(|name| keep.iter().any(|it| it == name))
        };
        assert_eq!(kept(), [true, true, false], "a cycle that is not there");
        fs::write(root.join("cycles/own.md"), cycle).unwrap();
        assert_eq!(kept(), [true; 3]);
    }
}
