//! Determines which project paths a job may write. The sandbox, the hook and every command that
//! shows these paths all use this one result.

use std::fs;
use std::path::{Component, Path, PathBuf};

use runner_jobs::JobSpec;
use runner_jobs::kind::Works;
use runner_jobs::lifecycle::cycle::CycleSpec;
use runner_jobs::lifecycle::prompts::prompt_file;
use runner_jobs::reserved::NEVER;

use crate::config::Config;
use crate::cycles;
use crate::ui::Failure;

/// Returns the paths that a job's own processes may write, and the paths below them that the
/// processes must not write.
pub fn of_works(root: &Path, works: Works<'_>, config: &Config) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (Works::Program(writes) | Works::Agent(writes)) = works;
    working(root, writes, config)
}

/// Returns whether a job's own processes may commit. Agents may, and so may programs that may write
/// the whole project.
pub fn commits(works: Works<'_>) -> bool {
    match works {
        Works::Agent(_) | Works::Program(None) => true,
        Works::Program(Some(writes)) => writes.iter().any(|path| path == "."),
    }
}

/// Returns the paths in the project that a process with this `writes` setting may write, and the
/// paths below them that it must not write.
pub fn working(
    root: &Path,
    writes: Option<&[String]>,
    config: &Config,
) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let all = [".".to_owned()];
    let write = writes.unwrap_or(&all).iter().map(|path| match path.as_str() {
        "." => root.to_owned(),
        path => root.join(path),
    });
    let mut keep: Vec<PathBuf> = NEVER.iter().map(|name| root.join(name)).collect();
    let protected = config.jobs.values().flat_map(|job| job.spec.kind.protects());
    keep.extend(protected.map(|path| root.join(path)));
    let own = [&config.lifecycle.steps, &config.lifecycle.daydreams];
    keep.extend(own.map(|path| root.join(path)));
    keep.extend(steering(root, config));
    keep.sort();
    keep.dedup();
    (write.collect(), keep)
}

/// Returns the project files named in the configuration that determine what jobs do: agent cycles,
/// and the prompts named by a job or a cycle state. The files need not exist.
pub fn steering(root: &Path, config: &Config) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut prompts = Vec::new();
    for job in config.jobs.values() {
        prompts.extend(job.spec.kind.prompts());
        let Some(cycle) = job.spec.kind.of::<CycleSpec>() else {
            continue;
        };
        found.extend(cycles::file(cycle).and_then(|file| within(root, &file)));
        // A cycle that cannot be read has no prompts, and none of its runs start.
        let states = cycles::cycle_of(root, cycle).map_or_else(|_| Vec::new(), |it| it.states);
        prompts.extend(states.into_iter().filter_map(|state| state.prompt));
    }
    let files = prompts.iter().filter_map(|prompt| prompt_file(prompt));
    found.extend(files.filter_map(|file| within(root, file)));
    found
}

/// Checks that a job does not publish unchecked output from its program or model over a file that
/// determines what jobs do.
///
/// # Errors
/// Returns an error that names the target and the setting to change.
pub fn check_targets(root: &Path, spec: &JobSpec, config: &Config) -> Result<(), Failure> {
    let Some((key, targets)) = spec.kind.unchecked_targets() else {
        return Ok(());
    };
    let kept = steering(root, config);
    let meets = |target: &String| {
        let path = root.join(target);
        kept.iter().any(|kept| path.starts_with(kept) || kept.starts_with(&path))
    };
    match targets.iter().find(|target| meets(target)) {
        None => Ok(()),
        Some(target) => Err(Failure::configuration(format!(
            "job {:?} would write {target:?}, which decides what the jobs of this project do",
            spec.name
        ))
        .hint(format!("runner config set jobs.{}.{key} ANOTHER-FILE", spec.name))),
    }
}

/// Returns the path of a file named in a setting, or `None` if it lies outside the project.
fn within(root: &Path, file: &str) -> Option<PathBuf> {
    let path = root.join(file);
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let path = match path.components().all(plain) {
        // Collecting the components removes `.` and doubled slashes.
        true => path.components().collect(),
        false => fs::canonicalize(path).ok()?,
    };
    path.starts_with(root).then_some(path)
}

/// Returns the protected paths that runner itself writes while jobs run: its staging folder, and
/// the jobs' proposals, journals and other files.
pub fn own(root: &Path, config: &Config) -> Vec<PathBuf> {
    let files = [&config.lifecycle.steps, &config.lifecycle.daydreams];
    let names = [".runner", "dreams", "rem", "_steps.jsonl"].map(String::from);
    let protected = config.jobs.values().flat_map(|job| job.spec.kind.protects());
    names
        .into_iter()
        .chain(files.into_iter().cloned())
        .chain(protected)
        .map(|it| root.join(it))
        .collect()
}

/// Returns the paths that a job may write, directly or through runner, and the paths below them
/// that it must not write.
pub fn of_job(root: &Path, spec: &JobSpec, config: &Config) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let kind = &spec.kind;
    let publishes = |paths: Vec<String>| paths.into_iter().map(|path| published(root, &path));
    match kind.works() {
        Some(works @ Works::Agent(_)) => of_works(root, works, config),
        Some(works @ Works::Program(_)) => {
            let (mut write, keep) = of_works(root, works, config);
            write.extend(publishes(kind.touches()));
            (write, keep)
        }
        None => (publishes(kind.touches()).collect(), Vec::new()),
    }
}

/// Returns the path at which a file is published. If the name contains `{date}`, returns the file's
/// folder, because the date is not known before the night.
fn published(root: &Path, path: &str) -> PathBuf {
    let to = root.join(path);
    match path.contains("{date}") {
        true => to.parent().unwrap_or(root).to_owned(),
        false => to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, Stack, load};

    #[test]
    fn files_that_define_jobs_are_protected() {
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
        assert_eq!(kept(), [true, true, false], "the prompt of a missing cycle is not protected");
        fs::write(root.join("cycles/own.md"), cycle).unwrap();
        assert_eq!(kept(), [true; 3]);
    }
}
