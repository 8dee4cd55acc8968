//! Finding the project that a command is about, and making sure that it is the one we know.

pub mod identity;
pub mod projection;
pub mod standing;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::causes::why;
use runner_engine::ids::ProjectId;
use runner_engine::ledger::{Budget, JobRow, Ledger, Project, RunRow, why_gone};
use runner_engine::tick::REPORT_JOB;
use runner_jobs::{JobSpec, KindSpec};
use runner_text::nearest::nearest;

use crate::cli::Failure;
use crate::config::{self, Config};
use crate::home::Home;
use projection::Projection;
use standing::{Found, Known, Seen, Standing, judge, look};

/// The file that makes a folder a project.
pub const FILE: &str = "runner.toml";

/// A project with its configuration.
#[derive(Clone, Debug)]
pub struct Here {
    /// Its canonical root.
    pub root: PathBuf,
    /// Its id.
    pub id: ProjectId,
    /// The id is this clone's own, not only what its `runner.toml` was born with.
    pub own: bool,
    /// Its configuration, all layers resolved.
    pub config: Config,
    /// The stat of the files that it was read from.
    pub stamp: String,
}

/// The nearest folder at or above `from` that holds a `runner.toml`.
pub fn find(from: &Path) -> Result<PathBuf, Failure> {
    let from = fs::canonicalize(from)
        .map_err(|error| Failure::data(format!("{}: {}", from.display(), why(&error))))?;
    from.ancestors()
        .find(|folder| folder.join(FILE).is_file())
        .map(Path::to_owned)
        .ok_or_else(|| {
            Failure::configuration(format!(
                "{} is in no project: there is no {FILE} here or above",
                from.display()
            ))
            .mend("runner init")
        })
}

impl Here {
    /// The project at or above `from`.
    pub fn load(home: &Home, from: &Path) -> Result<Self, Failure> {
        Self::at(home, &find(from)?)
    }

    /// The project whose root is `root`.
    pub fn at(home: &Home, root: &Path) -> Result<Self, Failure> {
        let stamp = stamp(home, root);
        let config = config::load(&home.stack(Some(&root.join(FILE))))?;
        let own = identity::own(root)?;
        let is_own = own.is_some();
        let id = own.or_else(|| config.project.clone()).ok_or_else(|| {
            Failure::configuration(format!("{} has no [project] id", root.join(FILE).display()))
                .mend("runner init")
        })?;
        Ok(Self {
            root: root.to_owned(),
            id,
            own: is_own,
            config,
            stamp,
        })
    }

    /// The job that a run is of, as the configuration describes it now.
    pub fn spec(&self, row: &RunRow) -> Result<JobSpec, Failure> {
        if row.kind == REPORT_JOB {
            return Ok(JobSpec {
                name: REPORT_JOB.to_owned(),
                kind: KindSpec::Report,
                backend: "builtin".to_owned(),
                budget: Budget::default(),
                total: Duration::from_secs(300),
            });
        }
        self.config.job(&row.job_name).map(|job| job.spec.clone())
    }

    /// Brings the ledger to what the project's files say.
    ///
    /// # Errors
    /// The folder is not the project that the ledger knows by its id; nothing is changed then.
    pub fn register(&self, ledger: &mut Ledger, now: Timestamp) -> Result<(), Failure> {
        let (standing, known) = standing_of(ledger, &self.root, &self.id, self.own)?;
        if let Some((what, mend)) = standing.trouble(&self.root, &self.id) {
            return Err(Failure::configuration(what).mend(mend));
        }
        let owned = self.own && known.as_ref().is_some_and(|known| !known.own);
        if matches!(standing, Standing::New | Standing::Replaced)
            || owned
            || is_displaced(known.as_ref())
        {
            let data = metadata(&self.root)?;
            if standing == Standing::Replaced {
                tracing::info!(path = %self.root.display(), "another folder, the same project");
            }
            ledger.register(
                &Project {
                    id: self.id.clone(),
                    path: self.root.clone(),
                    device: data.dev(),
                    inode: data.ino(),
                    config_stamp: String::new(),
                    own: self.own,
                },
                now,
            )?;
        }
        if known.is_none_or(|known| known.config_stamp != self.stamp) {
            let projection = Projection::of(&self.config).text();
            let jobs = self.config.job_rows()?;
            ledger.project_jobs(&self.id, &self.stamp, &projection, &jobs, now)?;
        }
        Ok(())
    }
}

fn is_displaced(known: Option<&Project>) -> bool {
    known.is_some_and(|known| known.displaced_from().is_some())
}

fn metadata(root: &Path) -> Result<fs::Metadata, Failure> {
    fs::metadata(root).map_err(|error| Failure::environment(format!("{}: {error}", root.display())))
}

/// How a folder that carries an id stands to what the ledger knows of that id.
pub fn standing_of(
    ledger: &Ledger,
    root: &Path,
    id: &ProjectId,
    own: bool,
) -> Result<(Standing, Option<Project>), Failure> {
    let data = metadata(root)?;
    let known = ledger.project(id)?;
    let found = Found {
        path: root.to_owned(),
        node: (data.dev(), data.ino()),
        own,
        other_here: ledger
            .project_at(root)?
            .map(|other| other.id)
            .filter(|other| other != id),
    };
    let remembered = known.as_ref().map(|known| {
        let path = known.displaced_from().unwrap_or_else(|| known.path.clone());
        Known {
            seen: match path == root {
                // What is there is what we stand in.
                true => Seen::Nothing,
                false => look(&path, id, carried),
            },
            node: (known.device, known.inode),
            own: known.own.then(|| id.clone()),
            path,
        }
    });
    Ok((judge(remembered.as_ref(), Some(&found)), known))
}

/// How a project of the ledger stands, from what is at its path.
pub fn standing_of_row(known: &Project) -> Standing {
    if known.displaced_from().is_some() {
        return Standing::Overtaken;
    }
    judge(
        Some(&Known {
            seen: look(&known.path, &known.id, carried),
            path: known.path.clone(),
            node: (known.device, known.inode),
            own: known.own.then(|| known.id.clone()),
        }),
        None,
    )
}

/// The id of the folder at `root`, as far as it can be told without its whole configuration.
pub fn id_at(root: &Path) -> Option<ProjectId> {
    carried(root).map(|(id, _)| id)
}

/// The same, and whether it is the folder's own.
pub fn carried(root: &Path) -> Option<(ProjectId, bool)> {
    if let Some(own) = identity::own(root).ok()? {
        return Some((own, true));
    }
    let (_, table) = config::file(&root.join(FILE)).ok()??;
    let seed = table.get("project")?.get("id")?.as_str()?.parse().ok()?;
    Some((seed, false))
}

/// A project as the ledger keeps it: what looking and holding back need while its files are broken.
#[derive(Debug)]
pub struct Kept {
    /// Its row.
    pub row: Project,
    /// What is wrong with its files or its place now.
    pub trouble: Option<Failure>,
}

/// The project at or above `from` as the ledger knows it.
///
/// # Errors
/// There is none there, or it has never been registered; a mistake in its files is told then.
pub fn kept(home: &Home, ledger: &Ledger, from: &Path) -> Result<Kept, Failure> {
    let root = match find(from) {
        Ok(root) => root,
        Err(failure) => {
            let from = fs::canonicalize(from).unwrap_or_else(|_| from.to_owned());
            for folder in from.ancestors() {
                if let Some(row) = ledger.project_at(folder)? {
                    let trouble = why_gone(&row.config_stamp).map_or(failure, |why| {
                        Failure::configuration(why.to_owned()).mend("runner projects")
                    });
                    return Ok(Kept {
                        row,
                        trouble: Some(trouble),
                    });
                }
            }
            return Err(failure);
        }
    };
    if let Some(row) = ledger.project_at(&root)? {
        let fresh = row.config_stamp == stamp(home, &root);
        let trouble = match fresh {
            true => None,
            false => Here::at(home, &root)
                .and_then(|here| here.check(ledger))
                .err(),
        };
        return Ok(Kept { row, trouble });
    }
    let here = Here::at(home, &root)?;
    let (standing, known) = standing_of(ledger, &root, &here.id, here.own)?;
    match (standing, known) {
        (Standing::Alias { .. }, Some(row)) => Ok(Kept { row, trouble: None }),
        (standing, _) => Err(match standing.trouble(&root, &here.id) {
            Some((what, mend)) => Failure::configuration(what).mend(mend),
            None => Failure::configuration(format!("{} has not run here yet", root.display()))
                .mend("runner init, or runner night"),
        }),
    }
}

impl Here {
    /// Whether it is the project that the ledger knows by its id; changes nothing.
    pub fn check(&self, ledger: &Ledger) -> Result<(), Failure> {
        let (standing, _) = standing_of(ledger, &self.root, &self.id, self.own)?;
        match standing.trouble(&self.root, &self.id) {
            Some((what, mend)) => Err(Failure::configuration(what).mend(mend)),
            None => Ok(()),
        }
    }
}

/// The stat of all files that a project's configuration is read from: equal stamps mean that
/// nothing need be read again.
pub fn stamp(home: &Home, root: &Path) -> String {
    Stamps::of(home).of_project(root)
}

/// What the stamps of all projects begin with, looked up once.
pub struct Stamps {
    common: String,
}

impl Stamps {
    /// As things are now.
    pub fn of(home: &Home) -> Self {
        Self {
            common: format!(
                "{} {} {}",
                env!("CARGO_PKG_VERSION"),
                TimeZone::system().iana_name().unwrap_or("-"),
                stat(&home.user_config),
            ),
        }
    }

    /// Of the project at `root`: a look at each of the two files that may set its jobs, and at what
    /// tells this clone from another one.
    pub fn of_project(&self, root: &Path) -> String {
        format!(
            "{} {} {} {}",
            self.common,
            stat(&root.join(config::FOREIGN_FILE)),
            stat(&root.join(FILE)),
            git(root),
        )
    }
}

/// Who may read it counts too: a file that nobody may read any more is no longer what was read.
fn stat(path: &Path) -> String {
    match fs::metadata(path) {
        Ok(data) => format!(
            "{}.{}.{}.{}.{:o}.{}.{}",
            data.ino(),
            data.size(),
            data.mtime(),
            data.mtime_nsec(),
            data.mode(),
            data.uid(),
            data.gid(),
        ),
        Err(_) => "-".to_owned(),
    }
}

/// Of a git folder only which one it is: what is in it changes with every commit.
fn git(root: &Path) -> String {
    let path = root.join(".git");
    match fs::metadata(&path) {
        Ok(data) if data.is_dir() => format!("{}.{:o}", data.ino(), data.mode()),
        // A worktree's may go with the repository that it is of, and the file that names it stays.
        Ok(_) => identity::git_dir(root)
            .and_then(|folder| fs::metadata(folder).ok())
            .map_or_else(|| "-".to_owned(), |data| format!("{}", data.ino())),
        Err(_) => "-".to_owned(),
    }
}

/// A job of a project as the ledger has it, also one that its configuration no longer names.
pub fn job_of(ledger: &Ledger, project: &ProjectId, name: &str) -> Result<JobRow, Failure> {
    let jobs = ledger.jobs(project)?;
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    let near = nearest(name, names.iter().copied())
        .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
    let there = crate::cli::show::some_of(names.into_iter());
    let unknown = Failure::configuration(format!(
        "no job {name:?} in this project{near} (there is: {there})"
    ))
    .mend("runner config show");
    jobs.into_iter().find(|job| job.name == name).ok_or(unknown)
}
