//! Finds a command's project, and checks that it is the same project as in the database.

pub mod identity;
pub mod projection;
pub mod registration;
pub mod trust;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::error_chain::error_chain;
use runner_engine::ids::ProjectId;
use runner_engine::store::{Budget, JobRow, Node, Project, RunRow, Store, why_gone};
use runner_engine::tick::REPORT_JOB;
use runner_engine::zones;
use runner_jobs::JobSpec;
use runner_jobs::report::kind::ReportSpec;
use runner_text::shell_word;

use crate::config::{self, Config};
use crate::env::Env;
use crate::ui::Failure;
use projection::Projection;
use registration::{FoundProject, KnownProject, PathOccupant, Registration, inspect_path, judge};
use trust::Trust;

/// The file that makes a folder a project.
pub const FILE: &str = "runner.toml";

/// A project with its configuration.
#[derive(Clone, Debug)]
pub struct LoadedProject {
    /// The project's canonical root.
    pub root: PathBuf,
    pub id: ProjectId,
    /// Whether the id is this clone's own, and not only the seed in its `runner.toml`.
    pub own: bool,
    /// The project's configuration, with all layers resolved.
    pub config: Config,
    /// The `stat` data of the files from which the configuration was read.
    pub stamp: String,
    /// The differences from the files that the user last accepted.
    pub trust: Trust,
    /// Whether this is a copy of a project, made only to run a fleet's claim.
    pub copy: bool,
}

/// Returns the nearest folder at or above `from` that contains a `runner.toml`.
pub fn find(from: &Path) -> Result<PathBuf, Failure> {
    let from = fs::canonicalize(from)
        .map_err(|error| Failure::data(format!("{}: {}", from.display(), error_chain(&error))))?;
    from.ancestors().find(|folder| folder.join(FILE).is_file()).map(Path::to_owned).ok_or_else(
        || {
            Failure::configuration(format!(
                "{} is not in a project: neither this folder nor its parents contain {FILE}",
                from.display()
            ))
            .hint(identity::init_command(&from))
        },
    )
}

impl LoadedProject {
    /// Loads the project at or above `from`.
    pub fn load(home: &Env, from: &Path) -> Result<Self, Failure> {
        let root = find(from)?;
        Self::at(home, home.store_to_identify()?.as_ref(), &root)
    }

    /// Loads the project for a dry run, which reads a copy of the database, because opening the
    /// file itself would leave SQLite's own files beside it.
    pub fn load_for_dry_run(home: &Env, from: &Path) -> Result<Self, Failure> {
        let root = find(from)?;
        Self::at(home, Some(&home.store_for_dry_run()?), &root)
    }

    /// Loads the project whose root is `root`.
    ///
    /// The project's id is the one recorded in the database for this folder. The id stored in the
    /// folder itself is used only if the database has no record of the folder.
    pub fn at(home: &Env, store: Option<&Store>, root: &Path) -> Result<Self, Failure> {
        let stamp = stamp(home, root);
        let config = config::load(&home.stack(Some(&root.join(FILE))))?;
        identity::git_folder(root)?;
        let known = match store {
            Some(store) => registered(store, root)?,
            None => None,
        };
        let (id, own) = match known {
            Some(known) => {
                let carried = identity::own(root).ok().flatten();
                let own = known.own || carried.as_ref() == Some(&known.id);
                (Some(known.id), own)
            }
            None => match identity::own(root)? {
                Some(id) => (Some(id), true),
                None => (config.project.clone(), false),
            },
        };
        let id = id.ok_or_else(|| {
            Failure::configuration(format!("{} has no [project] id", root.join(FILE).display()))
                .hint("runner init")
        })?;
        let trust = trust::inspect(home, store, (root, &id), &config)?;
        let copy = is_copy(home, root);
        Ok(Self { root: root.to_owned(), id, own, config, stamp, trust, copy })
    }

    /// Returns the job of a run, as currently configured.
    pub fn spec(&self, row: &RunRow) -> Result<JobSpec, Failure> {
        if row.kind == REPORT_JOB {
            return Ok(JobSpec {
                name: REPORT_JOB.to_owned(),
                kind: Box::new(ReportSpec::default()),
                backend: "builtin".to_owned(),
                budget: Budget::default(),
                total: Duration::from_secs(300),
            });
        }
        self.config.job(&row.job_name).map(|job| job.spec.clone())
    }

    /// Updates the database from the project's files.
    ///
    /// # Errors
    /// Returns an error and changes nothing if the folder is not the project recorded in the
    /// database under this id.
    pub fn register(&self, store: &mut Store, now: Timestamp) -> Result<(), Failure> {
        let (standing, known) = self.standing(store)?;
        let owned = self.own && known.as_ref().is_some_and(|known| !known.own);
        let node = node(&self.root)?;
        // The stored identity may lack the folder's creation time, so the identity is stored again.
        let unborn = standing == Registration::Known
            && known.as_ref().is_some_and(|known| known.node != node);
        if matches!(standing, Registration::New | Registration::Replaced)
            || owned
            || unborn
            || is_displaced(known.as_ref())
        {
            if standing == Registration::Replaced {
                tracing::info!(path = %self.root.display(), "another folder, the same project");
            }
            store.register(
                &Project {
                    id: self.id.clone(),
                    path: self.root.clone(),
                    node,
                    config_stamp: String::new(),
                    own: self.own,
                },
                now,
            )?;
        }
        let stamp = match self.trust.holds() {
            true => self.stamp.clone(),
            false => untrusted(&self.stamp),
        };
        let stored = store.projections(Some(&self.id))?.remove(&self.id);
        let current = Projection::of(self).text();
        // The projection also depends on the files named in the settings.
        let outdated = self.trust.holds() && stored.as_ref() != Some(&current);
        if outdated || known.is_none_or(|known| known.config_stamp != stamp) {
            let kept = stored.filter(|_| !self.trust.holds());
            let projection = kept.unwrap_or(current);
            let jobs = self.accepted_rows(store)?;
            store.project_jobs(&self.id, &stamp, &projection, &jobs, now)?;
        }
        Ok(())
    }
}

/// Returns the folder for the copies of projects in which a fleet's claims run. It is outside the
/// state folder, because a run's child processes cannot read the state folder.
pub fn copies(home: &Env) -> PathBuf {
    home.state.with_file_name("runner-fleet")
}

/// Reports whether `root` is a copy of a project for a fleet's claim. The fleet that the user
/// joined decides what runs there.
fn is_copy(home: &Env, root: &Path) -> bool {
    fs::canonicalize(copies(home)).is_ok_and(|copies| root.starts_with(copies))
}

fn is_displaced(known: Option<&Project>) -> bool {
    known.is_some_and(|known| known.displaced_from().is_some())
}

/// Returns the identity of the folder at `root`.
pub fn node(root: &Path) -> Result<Node, Failure> {
    fs::metadata(root).map(|data| Node::of(&data)).map_err(|error| Failure::unreadable(root, error))
}

/// Returns the project recorded in the database for the folder `root`: at this path, or at another
/// path of the same folder, such as another mount.
pub fn registered(store: &Store, root: &Path) -> Result<Option<Project>, Failure> {
    let here = node(root)?;
    if let Some(known) = store.project_at(root)?
        && known.node.is(&here)
    {
        return Ok(Some(known));
    }
    let same = |known: &Project| {
        known.node.is(&here) && node(&known.path).is_ok_and(|there| there.is(&here))
    };
    Ok(store.projects()?.into_iter().find(same))
}

/// Compares a folder that carries an id with the database's record of that id.
pub fn standing_of(
    store: &Store,
    root: &Path,
    id: &ProjectId,
    own: bool,
) -> Result<(Registration, Option<Project>), Failure> {
    let known = store.project(id)?;
    let found = FoundProject {
        path: root.to_owned(),
        node: node(root)?,
        own,
        other_here: store.project_at(root)?.map(|other| other.id).filter(|other| other != id),
    };
    let remembered = known.as_ref().map(|known| {
        let displaced = known.displaced_from();
        // While the project is displaced, the database has another project at this path.
        let recorded = displaced.is_none().then_some(&known.node);
        let path = displaced.unwrap_or_else(|| known.path.clone());
        KnownProject {
            seen: match path == root {
                // The folder at that path is `root` itself.
                true => PathOccupant::Nothing,
                false => inspect_path(&path, id, recorded, carried),
            },
            node: known.node,
            own: known.own.then(|| id.clone()),
            path,
        }
    });
    Ok((judge(remembered.as_ref(), Some(&found)), known))
}

/// Determines the state of a project in the database from the folder at its path.
pub fn standing_of_row(known: &Project) -> Registration {
    if known.displaced_from().is_some() {
        return Registration::Overtaken;
    }
    judge(
        Some(&KnownProject {
            seen: inspect_path(&known.path, &known.id, Some(&known.node), carried),
            path: known.path.clone(),
            node: known.node,
            own: known.own.then(|| known.id.clone()),
        }),
        None,
    )
}

/// Returns the id of the folder at `root`, if the id can be read without loading the whole
/// configuration.
pub fn id_at(root: &Path) -> Option<ProjectId> {
    carried(root).map(|(id, _)| id)
}

/// Returns the id of the folder at `root`, and whether the id is the folder's own. Returns `None`
/// if the folder has no id or cannot be read.
pub fn carried(root: &Path) -> Option<(ProjectId, bool)> {
    if let Some(own) = identity::own(root).ok()? {
        return Some((own, true));
    }
    let (_, table) = config::file(&root.join(FILE)).ok()??;
    let seed = table.get("project")?.get("id")?.as_str()?.parse().ok()?;
    Some((seed, false))
}

/// Describes how the id in a registered folder differs from the folder's id in the database, and
/// how to repair the difference. The database's id always takes precedence. Returns `None` if the
/// ids agree, or if the registered folder is no longer at the project's path.
pub fn contradiction(known: &Project) -> Option<(String, String)> {
    let root = &known.path;
    if !node(root).is_ok_and(|here| here.is(&known.node)) {
        return None;
    }
    let folder = identity::git_folder(root).ok()?;
    let own = folder.as_ref().map_or(Ok(None), |folder| identity::own_in(root, folder));
    let what = match own {
        Ok(Some(id)) if id == known.id => return None,
        Ok(Some(id)) => format!("contains the id of another project, {id}"),
        Ok(None) if known.own => "is missing".to_owned(),
        Err(failure) => format!("cannot be used ({})", failure.parts().0),
        // The project is identified only by its seed.
        Ok(None) => {
            let seed = carried(root).map(|(seed, _)| seed);
            if seed.as_ref() == Some(&known.id) {
                return None;
            }
            let file = root.join(FILE).display().to_string();
            let names = seed.map_or_else(
                || "contains no project id".to_owned(),
                |seed| format!("contains the id of another project, {seed}"),
            );
            return Some((
                format!("{file} {names}; the project continues as {}", known.id),
                format!("set `id = \"{}\"` in the section [project] of {file}", known.id),
            ));
        }
    };
    let file = folder.map_or_else(|| identity::FILE.into(), |it| it.join(identity::FILE));
    Some((
        format!("{} {what}; the project continues as {}", file.display(), known.id),
        format!("runner init {}", shell_word(root.display())),
    ))
}

/// A project as recorded in the database, for commands that must work even while the project's
/// files are broken, such as `status` and `pause`.
#[derive(Debug)]
pub struct KeptProject {
    pub row: Project,
    /// The current error in the project's files or location.
    pub trouble: Option<Failure>,
}

/// Returns the project at or above `from` as recorded in the database.
///
/// # Errors
/// Returns an error if there is no project, or if the project has never been registered. If an
/// unregistered project's files contain a mistake, the error reports the mistake instead.
pub fn kept(home: &Env, store: &Store, from: &Path) -> Result<KeptProject, Failure> {
    let root = match find(from) {
        Ok(root) => root,
        Err(failure) => {
            let from = fs::canonicalize(from).unwrap_or_else(|_| from.to_owned());
            for folder in from.ancestors() {
                if let Some(row) = store.project_at(folder)? {
                    let trouble = why_gone(&row.config_stamp).map_or(failure, |why| {
                        Failure::configuration(why.to_owned()).hint("runner projects")
                    });
                    return Ok(KeptProject { row, trouble: Some(trouble) });
                }
            }
            return Err(failure);
        }
    };
    if let Some(row) = store.project_at(&root)? {
        let fresh = row.config_stamp == stamp(home, &root);
        let trouble = match fresh {
            true => None,
            false => {
                let here = LoadedProject::at(home, Some(store), &root);
                here.and_then(|here| here.check(store).and_then(|()| here.trusted())).err()
            }
        };
        return Ok(KeptProject { row, trouble });
    }
    let here = LoadedProject::at(home, Some(store), &root)?;
    let (standing, known) = standing_of(store, &root, &here.id, here.own)?;
    match (standing, known) {
        (Registration::Alias { .. }, Some(row)) => Ok(KeptProject { row, trouble: None }),
        (standing, _) => Err(match standing.trouble(&root, &here.id) {
            Some((what, hint)) => Failure::configuration(what).hint(hint),
            None => Failure::configuration(format!("{} has never run", root.display()))
                .hint("runner init, or runner night"),
        }),
    }
}

impl LoadedProject {
    /// Checks that this is the project recorded in the database under its id. Changes nothing.
    pub fn check(&self, store: &Store) -> Result<(), Failure> {
        self.standing(store).map(|_| ())
    }

    fn standing(&self, store: &Store) -> Result<(Registration, Option<Project>), Failure> {
        let (standing, known) = standing_of(store, &self.root, &self.id, self.own)?;
        match standing.trouble(&self.root, &self.id) {
            Some((what, hint)) => Err(Failure::configuration(what).hint(hint)),
            None => Ok((standing, known)),
        }
    }
}

/// Returns the config stamp of a project with files that the user has not accepted. This stamp
/// differs from the files' own, so that every overview of the project reports the files.
pub fn untrusted(stamp: &str) -> String {
    format!("untrusted {stamp}")
}

/// Returns the `stat` data of all files that a project's configuration is read from. Equal stamps
/// mean that no file needs to be read again.
pub fn stamp(home: &Env, root: &Path) -> String {
    StampBase::of(home).of_project(root)
}

/// The prefix shared by the stamps of all projects, computed once.
pub struct StampBase {
    common: String,
}

impl StampBase {
    pub fn of(home: &Env) -> Self {
        Self {
            common: format!(
                "{} {} {}",
                env!("CARGO_PKG_VERSION"),
                zones::system().iana_name().unwrap_or("-"),
                stat(&home.user_config),
            ),
        }
    }

    /// Returns the stamp of the project at `root`. It covers the two files that may set its jobs,
    /// and the git folder, which distinguishes this clone from another one.
    pub fn of_project(&self, root: &Path) -> String {
        format!(
            "{} {} {} {}",
            self.common,
            foreign_stat(&root.join(config::FOREIGN_FILE)),
            stat(&root.join(FILE)),
            git(root),
        )
    }
}

/// Returns a file's `stat` data, or `-` if the file is missing. The data includes the permissions
/// and the owner, so that a file that becomes unreadable changes the stamp.
fn stat(path: &Path) -> String {
    fs::metadata(path).map_or_else(|_| "-".to_owned(), |data| described(&data))
}

/// Returns the `stat` data of another program's file. An active run's placeholder is treated as a
/// missing file, so the stamp does not change when a run starts or ends.
fn foreign_stat(path: &Path) -> String {
    match fs::metadata(path) {
        Ok(data) if !(data.is_dir() && config::is_placeholder(path)) => described(&data),
        _ => "-".to_owned(),
    }
}

fn described(data: &fs::Metadata) -> String {
    format!(
        "{}.{}.{}.{}.{:o}.{}.{}",
        data.ino(),
        data.size(),
        data.mtime(),
        data.mtime_nsec(),
        data.mode(),
        data.uid(),
        data.gid(),
    )
}

/// Returns the identity of the git folder, without its content, which changes with every commit.
fn git(root: &Path) -> String {
    let path = root.join(".git");
    match fs::metadata(&path) {
        Ok(data) if data.is_dir() => format!("{}.{:o}", data.ino(), data.mode()),
        // A worktree's git folder may disappear with its repository, even though the `.git` file
        // remains.
        Ok(_) => identity::git_dir(root)
            .and_then(|folder| fs::metadata(folder).ok())
            .map_or_else(|| "-".to_owned(), |data| format!("{}", data.ino())),
        Err(_) => "-".to_owned(),
    }
}

/// Returns a project's job as recorded in the database, even if the job is no longer in the
/// configuration.
pub fn job_of(store: &Store, project: &ProjectId, name: &str) -> Result<JobRow, Failure> {
    let jobs = store.jobs(project)?;
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    let near = config::did_you_mean(name, names.iter().copied());
    let there = runner_text::some_of(names.into_iter());
    let unknown = Failure::configuration(format!(
        "no job {name:?} in this project{near} (the jobs are: {there})"
    ))
    .hint("runner config show");
    jobs.into_iter().find(|job| job.name == name).ok_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_do_not_change_the_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(config::FOREIGN_FILE);
        let stamp = || StampBase { common: String::new() }.of_project(folder.path());
        let without = stamp();
        fs::create_dir(&path).unwrap();
        assert_eq!(stamp(), without);
        fs::write(path.join("file"), "").unwrap();
        assert_ne!(stamp(), without);
        fs::remove_dir_all(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert_ne!(stamp(), without);
    }
}
