//! Configuration: layers of TOML resolved to what the program works with.
//!
//! Layers: the embedded `config/default.toml`, the user's file, the project's `runner.toml`. A later
//! layer overrides key by key, tables merge. Unknown keys are errors that name the file and the
//! nearest known key. Must never write a file and never guess a value that was given wrongly.

mod job;
mod units;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use runner_backends::BackendSpec;
use runner_engine::ids::ProjectId;
use runner_engine::ledger::{Budget, NewJob};
use runner_engine::schedule::{Schedule, Trigger};
use runner_engine::tick::{REPORT_JOB, report_job};
use runner_text::nearest::nearest;
use toml::{Table, Value};

use crate::cli::Failure;

pub use job::{Job, When};

const DEFAULT: &str = include_str!("../../config/default.toml");

/// The resolved configuration of one project.
#[derive(Clone, Debug)]
pub struct Config {
    /// The project's id; absent in a folder that `init` has not seen.
    pub project: Option<ProjectId>,
    /// When its night opens, for how long, in which zone, with what budget.
    pub night: Night,
    /// The most that one civil day may spend.
    pub day: Budget,
    /// Who answers, by name.
    pub backends: BTreeMap<String, BackendSpec>,
    /// What is run, by name.
    pub jobs: BTreeMap<String, Job>,
}

/// A project's night.
#[derive(Clone, Debug)]
pub struct Night {
    /// When it opens.
    pub at: Time,
    /// For how long.
    pub length: SignedDuration,
    /// The IANA zone of its times.
    pub zone: String,
    /// The most that it may spend.
    pub budget: Budget,
}

impl Config {
    /// One job by name.
    pub fn job(&self, name: &str) -> Result<&Job, Failure> {
        self.jobs.get(name).ok_or_else(|| {
            let mut failure = Failure::configuration(format!("no job {name:?} in this project"));
            if let Some(near) = nearest(name, self.jobs.keys().map(String::as_str)) {
                failure = failure.mend(format!("runner run {near}"));
            }
            failure
        })
    }

    /// The jobs as the ledger keeps them, the report included.
    pub fn job_rows(&self) -> Result<Vec<NewJob>, Failure> {
        let mut rows: Vec<NewJob> = self
            .jobs
            .iter()
            .map(|(name, job)| NewJob {
                name: name.clone(),
                kind: job.spec.kind.word().to_owned(),
                schedule: self.schedule(job),
                enabled: job.enabled,
            })
            .collect();
        rows.push(report_job());
        Ok(rows)
    }

    fn schedule(&self, job: &Job) -> Schedule {
        let zone = self.night.zone.clone();
        match &job.when {
            When::Night => Schedule {
                trigger: Trigger::Daily(self.night.at),
                zone,
                night: Some(self.night.length),
            },
            When::Clock(trigger) => Schedule {
                trigger: trigger.clone(),
                zone,
                night: None,
            },
        }
    }
}

/// Reads and resolves all layers; a missing file is an empty layer.
pub fn load(user: &Path, project: &Path) -> Result<Config, Failure> {
    let mut merged: Table =
        toml::from_str(DEFAULT).expect("the embedded default parses; a test holds it");
    for path in [user, project] {
        if let Some(layer) = read(path)? {
            merge(&mut merged, layer);
        }
    }
    resolve(merged, &[user.to_owned(), project.to_owned()])
}

fn read(path: &Path) -> Result<Option<Table>, Failure> {
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes)
            .map_err(|_| Failure::configuration(format!("{} is not UTF-8", path.display())))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(Failure::configuration(format!(
                "cannot read {}: {error}",
                path.display()
            )));
        }
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    toml::from_str(text).map(Some).map_err(|error| {
        let place = error.span().map_or_else(String::new, |span| {
            let before = &text[..span.start.min(text.len())];
            let line = before.matches('\n').count() + 1;
            let column = before
                .rsplit('\n')
                .next()
                .map_or(0, |line| line.chars().count())
                + 1;
            format!(":{line}:{column}")
        });
        Failure::configuration(format!("{}{place}: {}", path.display(), error.message()))
    })
}

/// Lays `over` over `under`: tables merge, anything else replaces.
fn merge(under: &mut Table, over: Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

fn resolve(mut merged: Table, files: &[PathBuf]) -> Result<Config, Failure> {
    let mut top = Section::of("", &mut merged, files);
    let project = match top.table("project")? {
        Some(mut table) => {
            let mut section = Section::of("project", &mut table, files);
            let id = section.text("id")?;
            section.finish()?;
            id.map(|id| {
                id.parse()
                    .map_err(|error| top.wrong("project.id", &format!("{error}")))
            })
            .transpose()?
        }
        None => None,
    };
    let night = night(top.table("night")?.unwrap_or_default(), files)?;
    let mut day = top.table("day")?.unwrap_or_default();
    let mut section = Section::of("day", &mut day, files);
    let day = job::budget(&mut section)?;
    section.finish()?;
    let mut backends = BTreeMap::new();
    for (name, value) in top.table("backends")?.unwrap_or_default() {
        let Value::Table(mut table) = value else {
            return Err(top.wrong(&format!("backends.{name}"), "it must be a table"));
        };
        let path = format!("backends.{name}");
        let mut section = Section::of(&path, &mut table, files);
        let spec = job::backend(&name, &mut section)?;
        section.finish()?;
        backends.insert(name, spec);
    }
    let mut jobs = BTreeMap::new();
    for (name, value) in top.table("jobs")?.unwrap_or_default() {
        let path = format!("jobs.{name}");
        let Value::Table(table) = value else {
            return Err(top.wrong(&path, "it must be a table"));
        };
        if name == REPORT_JOB || !good_name(&name) {
            return Err(top.wrong(
                &path,
                "a job's name has letters, digits, - and _, and is not \"report\"",
            ));
        }
        let job = job::job(&name, table, files)?;
        if !backends.contains_key(&job.spec.backend) {
            let mut why = format!("there is no [backends.{}]", job.spec.backend);
            if let Some(near) = nearest(&job.spec.backend, backends.keys().map(String::as_str)) {
                why.push_str(&format!("; did you mean {near:?}?"));
            }
            return Err(top.wrong(&format!("{path}.backend"), &why));
        }
        jobs.insert(name, job);
    }
    // The daemon reads its own table, in `src/daemon/setting.rs`.
    top.table("daemon")?;
    top.finish()?;
    Ok(Config {
        project,
        night,
        day,
        backends,
        jobs,
    })
}

fn good_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn night(mut table: Table, files: &[PathBuf]) -> Result<Night, Failure> {
    let mut section = Section::of("night", &mut table, files);
    let at = section.text("at")?.unwrap_or_else(|| "02:30".to_owned());
    let at = units::time(&at).map_err(|why| section.wrong("night.at", &why))?;
    let length = section.text("length")?.unwrap_or_else(|| "8h".to_owned());
    let length = units::duration(&length).map_err(|why| section.wrong("night.length", &why))?;
    let zone = section.text("zone")?.unwrap_or_else(|| "system".to_owned());
    let zone = if zone == "system" {
        TimeZone::system().iana_name().unwrap_or("UTC").to_owned()
    } else {
        TimeZone::get(&zone).map_err(|_| {
            section.wrong(
                "night.zone",
                &format!("unknown time zone {zone:?} (like Europe/Berlin)"),
            )
        })?;
        zone
    };
    let budget = job::budget(&mut section)?;
    section.finish()?;
    Ok(Night {
        at,
        length,
        zone,
        budget,
    })
}

/// One table while it is read: what is taken is known, what is left is a mistake.
pub(crate) struct Section<'a> {
    path: &'a str,
    table: &'a mut Table,
    files: &'a [PathBuf],
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    fn of(path: &'a str, table: &'a mut Table, files: &'a [PathBuf]) -> Self {
        Self {
            path,
            table,
            files,
            known: Vec::new(),
        }
    }

    /// A key as text.
    pub(crate) fn text(&mut self, key: &'static str) -> Result<Option<String>, Failure> {
        self.take(key, "text in quotes", |value| {
            value.as_str().map(str::to_owned)
        })
    }

    /// A key as yes or no.
    pub(crate) fn flag(&mut self, key: &'static str) -> Result<Option<bool>, Failure> {
        self.take(key, "true or false", Value::as_bool)
    }

    /// A key as a whole number of at least 0.
    pub(crate) fn count(&mut self, key: &'static str) -> Result<Option<u64>, Failure> {
        self.take(key, "a whole number", |value| {
            value.as_integer().and_then(|n| u64::try_from(n).ok())
        })
    }

    /// A key as an amount of money.
    pub(crate) fn number(&mut self, key: &'static str) -> Result<Option<f64>, Failure> {
        self.take(key, "a number of at least 0", |value| {
            #[allow(
                clippy::cast_precision_loss,
                reason = "money in dollars is far below 2^52"
            )]
            let number = value
                .as_float()
                .or_else(|| value.as_integer().map(|n| n as f64));
            number.filter(|n| n.is_finite() && *n >= 0.0)
        })
    }

    /// A key as a list of texts.
    pub(crate) fn texts(&mut self, key: &'static str) -> Result<Option<Vec<String>>, Failure> {
        self.take(key, "a list of texts", |value| {
            value
                .as_array()?
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect()
        })
    }

    /// A key as a table.
    pub(crate) fn table(&mut self, key: &'static str) -> Result<Option<Table>, Failure> {
        self.take(key, "a table", |value| value.as_table().cloned())
    }

    /// A key as it stands.
    pub(crate) fn value(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.table.remove(key)
    }

    fn take<T>(
        &mut self,
        key: &'static str,
        shape: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match read(&value) {
            Some(read) => Ok(Some(read)),
            None => Err(self.wrong(
                &self.full(key),
                &format!("it must be {shape}, it is {value}"),
            )),
        }
    }

    /// What nobody took.
    pub(crate) fn rest(&mut self) -> Table {
        std::mem::take(self.table)
    }

    /// An error about a key.
    pub(crate) fn wrong(&self, key: &str, why: &str) -> Failure {
        wrong(self.files, key, why)
    }

    fn full(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Refuses what nobody took.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let Some(unknown) = self.table.keys().next() else {
            return Ok(());
        };
        let mut why = "there is no such setting".to_owned();
        if let Some(near) = nearest(unknown, self.known.iter().copied()) {
            why.push_str(&format!("; did you mean {near:?}?"));
        }
        Err(wrong(self.files, &self.full(unknown), &why))
    }
}

/// An error about a key, naming the last file that mentions it.
pub(crate) fn wrong(files: &[PathBuf], key: &str, why: &str) -> Failure {
    let last = key.rsplit('.').next().unwrap_or(key);
    let place = files.iter().rev().find_map(|path| {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().position(|line| {
            let line = line.trim_start();
            line.strip_prefix(last)
                .is_some_and(|rest| rest.trim_start().starts_with('='))
                || (line.starts_with('[') && line.trim_end().ends_with(&format!("{last}]")))
        })?;
        Some(format!("{}:{}", path.display(), line + 1))
    });
    let place = place.unwrap_or_else(|| "the configuration".to_owned());
    Failure::configuration(format!("{place}: {key}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<Config, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runner.toml");
        fs::write(&path, text).unwrap();
        load(&folder.path().join("none.toml"), &path)
    }

    #[test]
    fn the_embedded_default_is_whole_and_good() {
        let config = with("").unwrap();
        assert_eq!(config.jobs.keys().collect::<Vec<_>>(), ["dream"]);
        assert_eq!(config.night.budget.calls, Some(50));
        assert_eq!(config.night.budget.micros, Some(5_000_000));
        assert_eq!(config.jobs["dream"].spec.total.as_secs(), 30 * 60);
    }

    #[test]
    fn a_project_overrides_key_by_key() {
        let config = with("[night]\nat = \"23:15\"\n[jobs.dream]\nmax_ideas = 7\n").unwrap();
        assert_eq!(config.night.at.to_string(), "23:15:00");
        let runner_jobs::KindSpec::Dream(dream) = &config.jobs["dream"].spec.kind else {
            panic!("not a dream")
        };
        assert_eq!(dream.max_ideas, 7);
        assert_eq!(dream.quiet_minutes, 5);
    }

    #[test]
    fn mistakes_name_the_file_the_line_and_the_nearest_key() {
        let cases = [
            (
                "[night]\nlenght = \"8h\"\n",
                ":2",
                "did you mean \"length\"",
            ),
            (
                "[jobs.dream]\nbackend = \"bultin\"\n",
                ":2",
                "did you mean \"builtin\"",
            ),
            (
                "[jobs.dream]\n\nmax_idea = 3\n",
                ":3",
                "did you mean \"max_ideas\"",
            ),
            (
                "[jobs.dream]\ncanonical = 3\n",
                ":2",
                "jobs.dream.canonical",
            ),
            ("[jobs.dream]\ntimeout = \"soon\"\n", ":2", "timeout"),
            ("[jobs.dream]\nkind = \"dreem\"\n", ":2", "dream"),
            ("[night]\nzone = \"Mars/Olympus\"\n", ":2", "time zone"),
            ("[jobs.report]\nkind = \"prompt\"\n", ":1", "not \"report\""),
            ("[night\n", ":1", "runner.toml"),
            (
                "[jobs.a]\nkind = \"command\"\nprogram = \"x\"\nartifacts = [{ from = \"a\", to = \".Git/config\" }]\n",
                ":4",
                "no job places anything in .git",
            ),
            (
                "[jobs.a]\nkind = \"prompt\"\nprompt = \"x\"\nto = \"../x.md\"\n",
                ":4",
                "..",
            ),
            (
                "[jobs.a]\nkind = \"prompt\"\nprompt = \"x\"\nto = \"n/{dat}.md\"\n",
                ":4",
                "placeholder",
            ),
            ("night = 3\n", ":1", "table"),
        ];
        for (text, line, hint) in cases {
            let error = with(text).unwrap_err().to_string();
            assert!(
                error.contains("runner.toml") && error.contains(line) && error.contains(hint),
                "{text}: {error}"
            );
        }
    }
}
