//! Compares the files that control a project's jobs with those that the user last accepted.
//!
//! A project's files may come from other people: `git pull` changes them, and an agent may change
//! them too. A change takes effect only after the user has accepted it with `runner trust`, or has
//! made it with a runner command. Until then, each job affected by the change keeps its old
//! schedule, and its runs are deferred. This module must never accept a file by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use runner_engine::digest::Digest;
use runner_engine::files::{DOCUMENT, read_in};
use runner_engine::ids::ProjectId;
use runner_engine::process::MARKER_VARIABLE;
use runner_engine::schedule::Schedule;
use runner_engine::store::{NewJob, Store, TrustRecord};
use runner_jobs::JobSpec;
use runner_jobs::lifecycle::cycle::CycleSpec;
use runner_jobs::lifecycle::prompts::prompt_file;
use runner_jobs::lifecycle::rem::RemSpec;
use serde_json::{Map, Value, json};

use super::{FILE, LoadedProject, is_copy};
use crate::config::{Config, JOBS, Job};
use crate::cycles;
use crate::env::{self, Env};
use crate::ui::Failure;

/// The state of a project's files compared with those that the user last accepted.
#[derive(Clone, Debug)]
pub struct Trust {
    /// Whether the database records that the user has accepted the project's files.
    known: bool,
    /// The files that differ, by path relative to the project.
    pub changes: Vec<FileChange>,
    /// The names of the jobs affected by the differences, including removed jobs.
    pub jobs: BTreeSet<String>,
    /// Whether settings outside the jobs' tables differ.
    outside_jobs: bool,
    /// The current files, with the contents that were compared.
    pub now: TrustRecord,
    /// The `stat` data of the instruction files, taken before they were read, by path relative to
    /// the project. A file that does not exist also has an entry.
    pub instructions: BTreeMap<String, String>,
}

/// A file that differs from the version that the user last accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The path relative to the project.
    pub path: String,
    /// The accepted contents, with secrets redacted. `None` for a new file.
    pub old: Option<String>,
    /// The current contents. `None` for a removed file.
    pub new: Option<String>,
}

impl Trust {
    /// Returns the state of files that are considered accepted.
    fn accepted(now: TrustRecord, instructions: BTreeMap<String, String>) -> Self {
        let (changes, jobs) = (Vec::new(), BTreeSet::new());
        Self { known: true, changes, jobs, outside_jobs: false, now, instructions }
    }

    /// Compares the project's current files with the last accepted ones.
    fn of(
        now: TrustRecord,
        instructions: BTreeMap<String, String>,
        accepted: Option<TrustRecord>,
    ) -> Self {
        let known = accepted.is_some();
        let accepted = accepted.unwrap_or_else(|| TrustRecord {
            at: now.at,
            files: BTreeMap::new(),
            jobs: BTreeMap::new(),
            common: Digest::of(b""),
            texts: BTreeMap::new(),
        });
        let different_files = different(&now.files, &accepted.files);
        // Settings from the user, or from another build of runner, do not need to be accepted.
        if known && different_files.is_empty() {
            return Self::accepted(now, instructions);
        }
        let change = |path: String| FileChange {
            old: accepted.texts.get(&path).cloned(),
            new: now.texts.get(&path).cloned(),
            path,
        };
        Self {
            known,
            changes: different_files.into_iter().map(change).collect(),
            jobs: different(&now.jobs, &accepted.jobs),
            outside_jobs: now.common != accepted.common,
            now,
            instructions,
        }
    }

    /// Reports whether all settings are in effect.
    pub fn holds(&self) -> bool {
        self.jobs.is_empty() && !self.outside_jobs
    }

    /// Returns the reason why some settings are not in effect, or `None` if all are.
    pub fn reason(&self) -> Option<String> {
        if self.holds() {
            return None;
        }
        Some(match (self.known, self.changes.as_slice()) {
            (false, _) => "the project's settings have not been accepted yet".to_owned(),
            (true, [only]) => {
                format!("the change to {} has not been accepted yet", only.path)
            }
            (true, all) => {
                let paths = runner_text::some_of(all.iter().map(|it| it.path.as_str()));
                format!("the changes to {paths} have not been accepted yet")
            }
        })
    }
}

/// Returns the keys whose digests differ, or that appear in only one of the maps.
fn different(
    now: &BTreeMap<String, Digest>,
    before: &BTreeMap<String, Digest>,
) -> BTreeSet<String> {
    let keys = now.keys().chain(before.keys());
    keys.filter(|key| now.get(*key) != before.get(*key)).cloned().collect()
}

/// Compares the project's files with those that the user last accepted. The files of a project
/// below one of the user's `[trust] paths`, and those of a copy for a fleet's claim, are considered
/// accepted. This does not apply in a process started by a run, because the run itself may have
/// added the folder to the setting.
pub(super) fn inspect(
    home: &Env,
    store: Option<&Store>,
    (root, id): (&Path, &ProjectId),
    config: &Config,
) -> Result<Trust, Failure> {
    let folders = config.trusted.iter().map(|path| home.expanded(path));
    let folders: Vec<PathBuf> = folders.collect::<Result<_, _>>()?;
    let (now, instructions) = current(root, config, home.wall()?);
    // The home host offers only files that the user has accepted there.
    let copied = is_copy(home, root);
    if !in_run() && (copied || folders.iter().any(|folder| is_below(root, folder))) {
        return Ok(Trust { known: false, ..Trust::accepted(now, instructions) });
    }
    let accepted = match store {
        Some(store) => store.trust(id)?,
        None => None,
    };
    Ok(Trust::of(now, instructions, accepted))
}

/// Reports whether a run started this process.
pub fn in_run() -> bool {
    env::setting(MARKER_VARIABLE).is_some()
}

fn is_below(root: &Path, folder: &Path) -> bool {
    fs::canonicalize(folder).is_ok_and(|folder| root.starts_with(folder))
}

/// Returns the current state of the files that control the project's jobs. A job is affected by its
/// own table, by everything outside the job tables, and by its instruction files. A job that uses
/// settings of other jobs is affected by the tables and files of all jobs.
///
/// Also returns the `stat` data of the instruction files.
fn current(
    root: &Path,
    config: &Config,
    at: jiff::Timestamp,
) -> (TrustRecord, BTreeMap<String, String>) {
    let mut texts: BTreeMap<String, String> = config.texts.clone();
    let mut common = Map::new();
    let mut tables = Map::new();
    for (path, text) in &config.texts {
        let mut table = parsed(text);
        if path == FILE
            && let Some(Value::Object(jobs)) = table.remove(JOBS)
        {
            tables = jobs;
        }
        common.insert(path.clone(), Value::Object(table));
    }
    let common = digest(&Value::Object(common));
    let mut files = BTreeMap::new();
    let mut stats = BTreeMap::new();
    for (name, job) in &config.jobs {
        let paths = instructions(root, &job.spec);
        for path in &paths {
            // If the file changes after this point, the project's overview reads it again.
            stats.insert(path.clone(), super::stat(&root.join(path)));
            let bytes = read_in(root, path, DOCUMENT).ok();
            let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            texts.extend(text.map(|text| (path.clone(), text)));
        }
        files.insert(name, paths);
    }
    let of_job = |name: &str, job: &Job| {
        let kind = &job.spec.kind;
        let implied = kind.of::<RemSpec>().is_some() && !tables.contains_key(name);
        let all = implied || kind.of::<CycleSpec>().is_some();
        let table = match all {
            true => Value::Object(tables.clone()),
            false => tables.get(name).cloned().unwrap_or_default(),
        };
        let paths = files.iter().filter(|(of, _)| all || of.as_str() == name);
        let instructions: BTreeMap<&String, Option<&String>> =
            paths.flat_map(|(_, paths)| paths).map(|path| (path, texts.get(path))).collect();
        digest(&json!([common.to_string(), table, instructions]))
    };
    let jobs = config.jobs.iter().map(|(name, job)| (name.clone(), of_job(name, job))).collect();
    let digests = texts.iter().map(|(path, text)| (path.clone(), Digest::of(text.as_bytes())));
    (TrustRecord { at, files: digests.collect(), jobs, common, texts }, stats)
}

/// Returns the digest of a value. The keys of its tables are sorted.
fn digest(value: &Value) -> Digest {
    Digest::of(value.to_string().as_bytes())
}

/// Returns a settings file's contents as JSON. The configuration was read from the same contents,
/// so contents that are not TOML must be a `.ctxrc` in another syntax.
fn parsed(text: &str) -> Map<String, Value> {
    let table = toml::from_str::<toml::Table>(text).ok();
    match table.and_then(|table| serde_json::to_value(table).ok()) {
        Some(Value::Object(table)) => table,
        _ => Map::from_iter([("text".to_owned(), text.into())]),
    }
}

/// Returns the project's instruction files for a job: its prompt, its cycle, and the cycle's
/// prompts.
fn instructions(root: &Path, job: &JobSpec) -> BTreeSet<String> {
    let mut prompts = job.kind.prompts();
    let mut files = BTreeSet::new();
    if let Some(cycle) = job.kind.of::<CycleSpec>() {
        // A file named by a variable is the user's own.
        files.extend(cycle.cycle.clone());
        // A run with an invalid cycle fails and reports it.
        if let Ok(spec) = cycles::cycle_of(root, cycle) {
            prompts.extend(spec.states.into_iter().filter_map(|state| state.prompt));
        }
    }
    files.extend(prompts.iter().filter_map(|prompt| prompt_file(prompt)).map(str::to_owned));
    files
}

impl LoadedProject {
    /// Returns the reason why the runs of a job are deferred, or `None` if the job may run.
    pub fn untrusted(&self, job: &str) -> Option<String> {
        let reason = self.trust.reason()?;
        self.trust.jobs.contains(job).then(|| format!("{reason} (runner trust)"))
    }

    /// Checks that the user has accepted all settings that affect a job. The job may no longer
    /// exist.
    ///
    /// # Errors
    /// Returns the reason, with the command that shows the changes.
    pub fn check_trusted(&self, job: &str) -> Result<(), Failure> {
        match self.trust.reason() {
            Some(reason) if self.trust.jobs.contains(job) => {
                Err(Failure::configuration(format!("job {job:?}: {reason}")).hint("runner trust"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the project if all of its settings are in effect.
    ///
    /// # Errors
    /// Returns the reason, with the command that shows the changes.
    pub fn trusted(self) -> Result<Self, Failure> {
        match self.trust.reason() {
            None => Ok(self),
            Some(reason) => {
                let what = format!("{}: {reason}", self.root.display());
                Err(Failure::configuration(what).hint("runner trust"))
            }
        }
    }

    /// Returns the project if the user has accepted its settings outside the job tables, such as
    /// backends and channels.
    ///
    /// # Errors
    /// Returns the reason, with the command that shows the changes.
    pub fn trusted_outside_jobs(self) -> Result<Self, Failure> {
        match self.trust.outside_jobs {
            false => Ok(self),
            true => self.trusted(),
        }
    }

    /// Records that the user accepts the files that were compared.
    pub fn accept(&mut self, store: &mut Store) -> Result<(), Failure> {
        store.set_trust(&self.id, &self.trust.now)?;
        let (now, instructions) = (self.trust.now.clone(), self.trust.instructions.clone());
        self.trust = Trust::accepted(now, instructions);
        Ok(())
    }

    /// Returns the job rows that the database must contain. A job that has not been accepted keeps
    /// its old schedule, or has none if it is new.
    pub(super) fn accepted_rows(&self, store: &Store) -> Result<Vec<NewJob>, Failure> {
        let mut rows = self.config.job_rows()?;
        if self.copy {
            for row in &mut rows {
                (row.schedule, row.policy.fleet) = (Schedule::manual(), None);
            }
        }
        if self.trust.holds() {
            return Ok(rows);
        }
        let mut known: BTreeMap<String, NewJob> = (store.jobs(&self.id)?.into_iter())
            .map(|job| {
                let (name, kind) = (job.name.clone(), job.kind);
                let (schedule, policy, enabled) = (job.schedule, job.policy, job.enabled);
                (job.name, NewJob { name, kind, schedule, policy, enabled })
            })
            .collect();
        for row in rows.iter_mut().filter(|row| self.trust.jobs.contains(&row.name)) {
            match known.remove(&row.name) {
                Some(old) => *row = old,
                None => row.schedule = Schedule::manual(),
            }
        }
        let there: BTreeSet<String> = rows.iter().map(|row| row.name.clone()).collect();
        let removed = known.into_values();
        rows.extend(
            removed.filter(|job| self.trust.jobs.contains(&job.name) && !there.contains(&job.name)),
        );
        Ok(rows)
    }
}

/// A project before a runner command changes its `runner.toml` on the user's behalf, or `None` if
/// its files were not all accepted.
pub struct ProjectBeforeChange(Option<LoadedProject>);

impl ProjectBeforeChange {
    /// Loads the project at `root`, before the change.
    pub fn load(home: &Env, root: &Path) -> Self {
        // A project whose settings cannot be read is not accepted, but the user can repair it.
        let project = reload(home, root).ok();
        Self(project.filter(|it| it.trust.known && it.trust.holds() && !in_run()))
    }

    /// Accepts the file's new contents, `written`, if all settings were accepted before, no other
    /// known file has changed, and no run started this process.
    pub fn accept(self, home: &Env, written: &str) -> Result<(), Failure> {
        let Some(before) = self.0 else { return Ok(()) };
        let Ok(mut after) = reload(home, &before.root) else { return Ok(()) };
        let others = |record: &TrustRecord| {
            let mut files = record.files.clone();
            files.remove(FILE);
            files
        };
        let text = after.config.texts.get(FILE).map(String::as_str);
        // Another process may have changed a file since `before` was loaded.
        let known = others(&before.trust.now);
        let unchanged =
            |(path, digest): (&String, &Digest)| known.get(path).is_none_or(|it| it == digest);
        if text == Some(written.trim_start_matches('\u{feff}'))
            && others(&after.trust.now).iter().all(unchanged)
        {
            after.accept(&mut home.store()?)?;
        }
        Ok(())
    }
}

fn reload(home: &Env, root: &Path) -> Result<LoadedProject, Failure> {
    LoadedProject::at(home, home.store_to_identify()?.as_ref(), root)
}

/// Calls `change`, which changes a project's `runner.toml` on the user's behalf and returns its
/// result with the file's new contents. Accepts the new contents as [`ProjectBeforeChange`] does.
pub fn accepted_change<T>(
    home: &Env,
    root: &Path,
    change: impl FnOnce() -> Result<(T, String), Failure>,
) -> Result<T, Failure> {
    let before = ProjectBeforeChange::load(home, root);
    let (done, written) = change()?;
    before.accept(home, &written)?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(files: &[(&str, &str)], jobs: &[(&str, &str)]) -> TrustRecord {
        let digests = |list: &[(&str, &str)]| {
            let digest =
                |(name, text): &(&str, &str)| ((*name).to_owned(), Digest::of(text.as_bytes()));
            list.iter().map(digest).collect()
        };
        let texts = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        TrustRecord {
            at: jiff::Timestamp::UNIX_EPOCH,
            files: digests(files),
            jobs: digests(jobs),
            common: Digest::of(b""),
            texts: texts.collect(),
        }
    }

    #[test]
    fn changes_affect_jobs_whose_digests_differ() {
        let before = record(&[("runner.toml", "a"), ("gone", "x")], &[("one", "1"), ("two", "2")]);
        let now = record(&[("runner.toml", "b"), ("new", "y")], &[("one", "1"), ("two", "3")]);
        let trust = Trust::of(now, BTreeMap::new(), Some(before.clone()));
        let change = |path: &str, old: Option<&str>, new: Option<&str>| FileChange {
            path: path.to_owned(),
            old: old.map(str::to_owned),
            new: new.map(str::to_owned),
        };
        let expected = [
            change("gone", Some("x"), None),
            change("new", None, Some("y")),
            change("runner.toml", Some("a"), Some("b")),
        ];
        assert_eq!(trust.changes, expected);
        assert_eq!(trust.jobs, BTreeSet::from(["two".to_owned()]));
        assert!(trust.reason().unwrap().contains("gone"), "{trust:?}");
        let same = Trust::of(before.clone(), BTreeMap::new(), Some(before.clone()));
        assert!(same.holds());
        let removed = record(&[("runner.toml", "b")], &[("one", "1")]);
        assert!(Trust::of(removed, BTreeMap::new(), Some(before)).jobs.contains("two"));
    }

    #[test]
    fn a_comment_affects_no_job() {
        let before = record(&[("runner.toml", "a")], &[("one", "1")]);
        let now = record(&[("runner.toml", "a # comment")], &[("one", "1")]);
        let trust = Trust::of(now, BTreeMap::new(), Some(before));
        assert!(trust.holds() && trust.reason().is_none());
        assert_eq!(trust.changes.len(), 1);
    }

    #[test]
    fn unaccepted_files_have_no_effect() {
        let now = record(&[("runner.toml", "a")], &[("one", "1")]);
        let trust = Trust::of(now, BTreeMap::new(), None);
        assert!(!trust.holds() && !trust.known);
    }
}
