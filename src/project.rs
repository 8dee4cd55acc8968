//! Finding the project that a command is about, and making sure that it is the one we know.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::ids::ProjectId;
use runner_engine::ledger::{Budget, Ledger, Project, RunRow};
use runner_engine::tick::REPORT_JOB;
use runner_jobs::{JobSpec, KindSpec};

use crate::cli::Failure;
use crate::config::{self, Config};
use crate::home::Home;

/// The file that makes a folder a project.
pub const FILE: &str = "runner.toml";

/// A project with its configuration.
#[derive(Clone, Debug)]
pub struct Here {
    /// Its canonical root.
    pub root: PathBuf,
    /// Its id.
    pub id: ProjectId,
    /// Its configuration, all layers resolved.
    pub config: Config,
    /// The stat of the files that it was read from.
    pub stamp: String,
}

/// The nearest folder at or above `from` that holds a `runner.toml`.
pub fn find(from: &Path) -> Result<PathBuf, Failure> {
    let from = fs::canonicalize(from)
        .map_err(|error| Failure::data(format!("{}: {error}", from.display())))?;
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
        let id = config.project.clone().ok_or_else(|| {
            Failure::configuration(format!("{} has no [project] id", root.join(FILE).display()))
                .mend("runner init")
        })?;
        Ok(Self {
            root: root.to_owned(),
            id,
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
    pub fn register(&self, ledger: &mut Ledger, now: Timestamp) -> Result<(), Failure> {
        let data = fs::metadata(&self.root)
            .map_err(|error| Failure::environment(format!("{}: {error}", self.root.display())))?;
        let known = ledger.project(&self.id)?;
        if let Some(known) = &known
            && known.path != self.root
            && known.path.join(FILE).is_file()
        {
            return Err(Failure::configuration(format!(
                "{} carries the id of {}: one of them is a copy",
                self.root.display(),
                known.path.display()
            ))
            .mend("remove the line `id = …` from the copy's runner.toml, then run `runner init` there"));
        }
        let stale = known.as_ref().is_none_or(|known| {
            known.path != self.root || known.device != data.dev() || known.inode != data.ino()
        });
        if stale {
            ledger.register(
                &Project {
                    id: self.id.clone(),
                    path: self.root.clone(),
                    device: data.dev(),
                    inode: data.ino(),
                    config_stamp: String::new(),
                },
                now,
            )?;
        }
        if known.is_none_or(|known| known.config_stamp != self.stamp) {
            ledger.project_jobs(&self.id, &self.stamp, &self.config.job_rows()?, now)?;
        }
        Ok(())
    }
}

/// The stat of all files that a project's configuration is read from: equal stamps mean that
/// nothing need be read again.
pub fn stamp(home: &Home, root: &Path) -> String {
    let one = |path: &Path| match fs::metadata(path) {
        Ok(data) => format!(
            "{}.{}.{}.{}",
            data.ino(),
            data.size(),
            data.mtime(),
            data.mtime_nsec()
        ),
        Err(_) => "-".to_owned(),
    };
    format!(
        "{} {} {} {} {}",
        env!("CARGO_PKG_VERSION"),
        TimeZone::system().iana_name().unwrap_or("-"),
        one(&home.user_config),
        one(&root.join(config::FOREIGN_FILE)),
        one(&root.join(FILE))
    )
}
