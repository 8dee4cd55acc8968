//! Resolves the layers of the configuration into typed settings.
//!
//! The layers are the embedded `config/default.toml`, the user's file, the project's `.ctxrc` (a
//! file shared with other programs, see `ctxrc.rs`), the project's `runner.toml`, the environment
//! and the command line. A later layer overrides an earlier one key by key, and tables are merged.
//! Each setting is declared once, in `settings.rs` or in the type of a backend or a job kind. All
//! errors are collected, each with its location and, for an unknown name, the nearest known one.
//! This module must never guess the meaning of an invalid value. Only `edit` creates new text, and
//! no code here writes files.

pub mod addresses;
mod budget;
mod ctxrc;
pub mod curator;
mod cycle;
mod dream;
mod edit;
mod finding;
mod fleet;
mod followers;
mod inline;
mod job;
mod listen;
pub mod notify;
mod overrides;
mod paths;
mod policy;
pub mod pools;
pub mod price_file;
mod reader;
mod reference;
mod set;
mod settings;
mod shape;
mod source_location;
mod sources;
mod trigger;
mod user_text;
pub mod values;
mod view;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use jiff::civil::Time;
use runner_backends::spec::{BackendTable, ReadTable, ReplaySettings};
use runner_backends::{BackendKind, BackendSpec};
use runner_engine::ids::ProjectId;
use runner_engine::schedule::{Schedule, Trigger};
use runner_engine::store::{Budget, NewJob, Retention};
use runner_engine::tick::report_job;
use runner_jobs::Kind;
use runner_jobs::lifecycle::Files;
use runner_jobs::prices::Prices;
use serde::de::DeserializeOwned;
use toml::Table;

use crate::ui::Failure;
use reader::Reader;
use settings::{
    DaemonTable, DayTable, MemoryTable, NightTable, ProjectTable, RetentionTable, TrustTable,
};
use sources::{
    ConfigMistake, Layer, Sources, merge, parse, read, read_user, replace_types, syntax_mistakes,
    wrong,
};

pub use ctxrc::FILE as FOREIGN_FILE;
pub use edit::{Edit, SettingChange, edit};
pub use fleet::Fleet;
pub use inline::inline;
pub use job::Job;
pub use listen::Listen;
pub use notify::Notify;
pub use overrides::{OverrideScope, Overrides};
pub use policy::{Network, SandboxSettings};
pub use pools::Pool;
pub use reader::did_you_mean;
pub use reference::schema;
pub use settings::ServeTable;
pub use sources::ConfigFinding;
pub use trigger::TriggerSpec;
pub use user_text::user_text;
pub use view::{ResolvedSetting, ResolvedSettings, SettingOrigin};

/// The name of the table that contains the jobs.
pub const JOBS: &str = "jobs";

const DEFAULT: &str = include_str!("../../config/default.toml");

/// The resolved configuration of one project.
#[derive(Clone, Debug)]
pub struct Config {
    /// The project's id; `None` before `init`.
    pub project: Option<ProjectId>,
    /// The project's night: start, length, zone and budget.
    pub night: Night,
    /// The budget of one civil day.
    pub day: Budget,
    pub backends: BTreeMap<String, BackendSpec>,
    pub jobs: BTreeMap<String, Job>,
    pub notify: Notify,
    pub retention: Retention,
    /// The user's pools by name. Backends spend from them.
    pub pools: BTreeMap<String, Pool>,
    /// The pool of each backend that spends from one, by the backend's name.
    pub pool_of: BTreeMap<String, String>,
    /// Token prices by model. The user's prices override the built-in list.
    pub prices: Prices,
    /// The paths of the lifecycle's files, and whether entries are committed.
    pub lifecycle: Files,
    /// The models listed in the user's `[prices]`.
    pub priced: std::collections::BTreeSet<String>,
    pub curator: curator::Curator,
    /// The fleets that this host may join, by name.
    pub fleets: BTreeMap<String, Fleet>,
    /// The folders in which the files of every project are accepted.
    pub trusted: Vec<PathBuf>,
    /// The contents of the project's own settings files, by file name.
    pub texts: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub struct Night {
    /// The time at which the night opens.
    pub at: Time,
    pub length: SignedDuration,
    /// The IANA time zone for the night's schedule.
    pub zone: String,
    pub budget: Budget,
}

impl Config {
    /// Returns the job with this name, or an error that lists the existing jobs.
    pub fn job(&self, name: &str) -> Result<&Job, Failure> {
        self.jobs.get(name).ok_or_else(|| {
            let near = did_you_mean(name, self.jobs.keys().map(String::as_str));
            let there = runner_text::some_of(self.jobs.keys().map(String::as_str));
            let what = format!("no job {name:?} in this project{near} (the jobs are: {there})");
            Failure::configuration(what).hint("runner config show")
        })
    }

    /// Returns the job named `wanted` or, if `wanted` is `None`, the only job whose settings are of
    /// type `S`. `what` is the kind's name with an article, and `setup` is the command that creates
    /// such a job.
    ///
    /// # Errors
    /// Returns an error if the job named `wanted` does not exist or is of another kind, or if
    /// `wanted` is `None` and the project has no job of this kind or several.
    pub fn job_of_kind<S: Kind>(
        &self,
        wanted: Option<&str>,
        what: &str,
        setup: &str,
    ) -> Result<(&str, &S), Failure> {
        let jobs = self.jobs.iter();
        let jobs: Vec<(&str, &S)> = jobs
            .filter_map(|(name, job)| Some((name.as_str(), job.spec.kind.of::<S>()?)))
            .collect();
        if let Some(wanted) = wanted {
            self.job(wanted)?;
            let found = jobs.into_iter().find(|(name, _)| *name == wanted);
            return found.ok_or_else(|| Failure::usage(format!("{wanted} is not {what} job")));
        }
        let kind = what.rsplit(' ').next().unwrap_or(what);
        match jobs.as_slice() {
            [only] => Ok(*only),
            [] => {
                let what = format!("this project has no job of kind {kind}");
                Err(Failure::configuration(what).hint(setup))
            }
            several => {
                let names: Vec<&str> = several.iter().map(|(name, _)| *name).collect();
                let (count, all) = (names.len(), names.join(", "));
                Err(Failure::usage(format!("this project has {count} {kind} jobs: {all}"))
                    .hint(format!("add --job {}", names[0])))
            }
        }
    }

    /// Returns the jobs, including the report job, in the form that the database stores.
    pub fn job_rows(&self) -> Result<Vec<NewJob>, Failure> {
        let mut rows: Vec<NewJob> = self
            .jobs
            .iter()
            .map(|(name, job)| NewJob {
                name: name.clone(),
                kind: job.spec.kind.name().to_owned(),
                schedule: self.schedule(job),
                policy: job.policy.clone(),
                enabled: job.enabled,
            })
            .collect();
        rows.push(report_job());
        Ok(rows)
    }

    fn schedule(&self, job: &Job) -> Schedule {
        let zone = job.zone.clone();
        match &job.when {
            TriggerSpec::Night => Schedule {
                trigger: Trigger::Daily(self.night.at),
                zone,
                night: Some(self.night.length),
            },
            TriggerSpec::Lifecycle => Schedule { zone, ..Schedule::manual() },
            TriggerSpec::Clock(trigger) => {
                let daily = matches!(trigger, Trigger::Daily(_) | Trigger::Cron(_));
                let joins = daily && job.spec.kind.belongs_to_night();
                let night = joins.then_some(self.night.length);
                Schedule { trigger: trigger.clone(), zone, night }
            }
        }
    }
}

/// The sources of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a> {
    /// The user's file, which may be missing.
    pub user: &'a Path,
    /// The project's file; `None` outside projects.
    pub project: Option<&'a Path>,
    /// The settings outside the files.
    pub overrides: &'a Overrides,
}

/// Reads the `dream:` section of another program's YAML file, with that program's key names.
/// Returns `None` if the file does not exist.
pub fn foreign_section(path: &Path) -> Result<Option<Vec<(String, toml::Value)>>, Failure> {
    let Some(text) = read(path)? else { return Ok(None) };
    let layer = Layer { name: "project", path: path.to_owned(), text: text.into() };
    Ok(Some(ctxrc::foreign(&layer)?))
}

/// Reads one file and returns its contents and its unresolved table, or `None` if the file does not
/// exist.
pub fn file(path: &Path) -> Result<Option<(String, Table)>, Failure> {
    let Some(text) = read(path)? else { return Ok(None) };
    let layer = Layer { name: "project", path: path.to_owned(), text: text.into() };
    let table = parse(&layer)?;
    Ok(Some((layer.text.into_owned(), table)))
}

/// Reads and resolves all layers; a missing file is an empty layer.
pub fn load(stack: &Stack<'_>) -> Result<Config, Failure> {
    layers(stack)
        .and_then(|(merged, sources)| {
            let config = resolve(&merged, &sources).map_err(first)?;
            let texts = project_texts(&sources);
            Ok(anchored(Config { texts, ..config }, stack))
        })
        .map_err(|first| match mistakes(stack).len() {
            0 | 1 => first,
            all => first.hint(format!(
                "runner config check   (it shows this mistake and {} more)",
                all - 1
            )),
        })
}

/// Returns the contents of the project's own files, by file name.
fn project_texts(sources: &Sources) -> BTreeMap<String, String> {
    let own = sources.layers.iter().filter(|layer| [ctxrc::NAME, "project"].contains(&layer.name));
    let named = own.filter_map(|layer| {
        let name = layer.path.file_name()?.to_str()?.to_owned();
        Some((name, layer.text.clone().into_owned()))
    });
    named.collect()
}

/// Resolves the relative paths of recordings against the project's folder, so that they do not
/// depend on the working directory.
fn anchored(mut config: Config, stack: &Stack<'_>) -> Config {
    if let Some(root) = stack.project.and_then(Path::parent) {
        let backends = config.backends.values_mut();
        for backend in backends {
            if let BackendKind::Replay(ReplaySettings { recording }) = &mut backend.kind
                && !recording.starts_with("~")
            {
                *recording = root.join(&recording);
            }
        }
    }
    config
}

/// Loads the configuration with some keys of one job changed on the command line: `--set
/// key=value`, with dotted keys such as `budget.calls`. A value is parsed as TOML or, failing that,
/// treated as a string.
///
/// # Errors
/// Returns an error if a file is invalid or the job does not exist, and a usage error that names
/// the `--set` if its setting is invalid or cannot be changed for a single run.
pub fn load_with(
    stack: &Stack<'_>,
    job: &str,
    settings: &[(String, String)],
) -> Result<Config, Failure> {
    let (mut merged, mut sources) = layers(stack)?;
    let plain = resolve(&merged, &sources).map_err(first)?;
    let texts = project_texts(&sources);
    if settings.is_empty() {
        return Ok(anchored(Config { texts, ..plain }, stack));
    }
    plain.job(job)?;
    set::lay_over(&mut merged, &mut sources, job, settings)?;
    let config = resolve(&merged, &sources).map_err(first)?;
    Ok(anchored(Config { texts, ..config }, stack))
}

fn layers(stack: &Stack<'_>) -> Result<(Table, Sources), Failure> {
    let sources = texts(stack)?;
    let (mut merged, mut sources) = merged(sources)?;
    stack.overrides.lay_over(&mut merged, &mut sources)?;
    Ok((merged, sources))
}

fn texts(stack: &Stack<'_>) -> Result<Sources, ConfigMistake> {
    let mut sources = Sources {
        layers: vec![Layer {
            name: "default",
            path: "config/default.toml".into(),
            text: DEFAULT.into(),
        }],
        given: Vec::new(),
    };
    let beside = stack.project.and_then(Path::parent);
    let foreign = beside.map(|folder| folder.join(ctxrc::FILE));
    for (name, path) in
        [("user", Some(stack.user)), (ctxrc::NAME, foreign.as_deref()), ("project", stack.project)]
    {
        let Some(path) = path else { continue };
        if name == ctxrc::NAME && is_placeholder(path) {
            continue;
        }
        let text = match name {
            "user" => read_user(path),
            _ => read(path),
        };
        if let Some(text) = text? {
            sources.layers.push(Layer { name, path: path.to_owned(), text: text.into() });
        }
    }
    Ok(sources)
}

/// Returns whether a path is an empty folder, which an active run's sandbox puts in place of a
/// missing file.
pub fn is_placeholder(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn merged(sources: Sources) -> Result<(Table, Sources), ConfigMistake> {
    let mut merged = Table::new();
    for layer in &sources.layers {
        let table = match layer.name {
            "default" => reference::default().clone(),
            _ => parse(layer)?,
        };
        if layer.name == "project"
            && let Some((key, why)) = users_own(&table)
        {
            let why = format!(
                "{why}, so it must be in your own config.toml (runner config set --user {key} ...)"
            );
            return Err(wrong(&sources, &key, &why));
        }
        let table = dream::under_our_names(table);
        replace_types(&mut merged, &table);
        merge(&mut merged, table);
    }
    dream::complete(&mut merged);
    Ok((merged, sources))
}

/// Returns the first setting in a project's file that is allowed only in the user's file, with the
/// reason, or `None` if there is no such setting.
fn users_own(table: &Table) -> Option<(String, &'static str)> {
    table.iter().find_map(|(key, value)| {
        let inner = value.as_table().into_iter().flat_map(Table::keys);
        let paths = inner.map(|inner| vec![key.as_str(), inner]).chain([vec![key.as_str()]]);
        paths.into_iter().find_map(|path| Some((path.join("."), reference::users_only(&path)?)))
    })
}

/// Resolves the merged layers, or returns all errors in them.
fn resolve(merged: &Table, sources: &Sources) -> Result<Config, Vec<ConfigMistake>> {
    let mut reader = Reader::new(merged);
    let config = read_all(&mut reader);
    reader.finish(config, sources)
}

/// Reads all tables. The result is valid only if the reader found no error.
fn read_all(reader: &mut Reader<'_>) -> Option<Config> {
    let project = reader.read::<ProjectTable>(&["project"]).and_then(|table| table.id);
    let table = reader.read::<NightTable>(&["night"])?;
    let night = Night {
        at: table.at.0,
        length: table.length.0,
        zone: table.zone.0,
        budget: table.budget.into(),
    };
    let day = reader.read::<DayTable>(&["day"])?.budget.into();
    let pools = pools::pools(reader);
    let fleets = fleet::fleets(reader);
    let priced = reader.entries("prices").into_iter().collect();
    let prices = pools::prices(reader);
    let backends = backends(reader);
    let groups = policy::groups(reader);
    let defaults = policy::defaults(reader, &night.zone, &groups)?;
    let lifecycle: Files = reader.read(&["lifecycle"])?;
    let curator = curator::read(reader)?;
    let around = job::JobContext {
        curator: &curator,
        lifecycle: &lifecycle,
        night: &night,
        groups: &groups,
        defaults: &defaults,
    };
    let mut jobs = BTreeMap::new();
    for name in reader.entries("jobs") {
        jobs.extend(job::job(&name, &around, reader).map(|job| (name, job)));
    }
    let dreams = cycle::dreams_after(&jobs, &around, reader);
    jobs.extend(dreams);
    let daydreams = cycle::daydreams_after(&jobs, &backends, &around, reader);
    jobs.extend(daydreams);
    // The daemon reads its own table in `src/daemon/settings.rs`. Errors in that table are also
    // reported here.
    reader.read::<DaemonTable>(&["daemon"])?;
    reader.read::<ServeTable>(&["serve"])?;
    let table = reader.read::<RetentionTable>(&["retention"])?;
    let retention = Retention {
        rows: table.rows.0,
        logs: table.logs.0,
        reports: table.reports.0,
        backups: table.backups,
        recordings: table.recordings.0,
    };
    let trusted = reader.read::<TrustTable>(&["trust"])?.paths;
    let trusted = trusted.into_iter().map(|path| path.0).collect();
    // The hooks read their table in `src/hooks/`. Errors in that table are also reported here.
    reader.read::<MemoryTable>(&["memory"])?;
    let notify = notify::read(reader)?;
    followers::check_after(&jobs, reader);
    cycle::check(&jobs, reader);
    paths::check(&jobs, &curator, &lifecycle, reader);
    let of_pool = |(name, spec): (&String, &BackendSpec)| Some((name.clone(), spec.pool.clone()?));
    Some(Config {
        project: project.map(|id| id.0),
        pool_of: backends.iter().filter_map(of_pool).collect(),
        night,
        day,
        backends,
        jobs,
        notify,
        retention,
        pools,
        prices,
        lifecycle,
        priced,
        curator,
        fleets,
        trusted,
        texts: BTreeMap::new(),
    })
}

fn backends(reader: &mut Reader<'_>) -> BTreeMap<String, BackendSpec> {
    let mut backends = BTreeMap::new();
    for name in reader.entries("backends") {
        let path = ["backends", &name];
        let Some(BackendTable { kind, fallback, pool }) = reader.read(&path) else { continue };
        // Reports use this backend even if the user has not accepted the project's settings.
        if name == "builtin" && kind != "builtin" {
            reader
                .wrong("backends.builtin.type", "the backend \"builtin\" must be of type builtin");
        }
        let mut table = ConfiguredTable { reader, path: &path };
        let Some(kind) = BackendKind::read(&kind, &mut table) else { continue };
        if let Some(pool) = &pool {
            pools::check_known(reader, &format!("backends.{name}.pool"), pool);
        }
        let known = reader.names("backends").into_iter();
        if let Some(why) = runner_backends::chain::mistake(&name, &fallback, known) {
            reader.wrong(&format!("backends.{name}.fallback"), why);
        }
        backends.insert(name.clone(), BackendSpec { name, kind, fallback, pool });
    }
    backends
}

/// A table of the configuration that is read several times.
struct ConfiguredTable<'r, 'a> {
    reader: &'r mut Reader<'a>,
    path: &'r [&'r str],
}

impl ReadTable for ConfiguredTable<'_, '_> {
    fn read<T: DeserializeOwned>(&mut self) -> Option<T> {
        self.reader.read(self.path)
    }
}

/// Returns the errors in a configuration. If a file cannot be read or parsed, only such errors are
/// returned.
pub fn mistakes(stack: &Stack<'_>) -> Vec<ConfigFinding> {
    match texts(stack) {
        Ok(sources) => check_texts(sources, stack.overrides),
        Err(mistake) => vec![mistake.into()],
    }
}

/// Returns the errors in configuration files that have already been read and in the overrides.
fn check_texts(sources: Sources, overrides: &Overrides) -> Vec<ConfigFinding> {
    let syntax = sources.layers.iter().flat_map(syntax_mistakes).take(shape::MOST);
    let syntax: Vec<ConfigFinding> = syntax.map(Into::into).collect();
    if !syntax.is_empty() {
        return syntax;
    }
    let (mut table, mut sources) = match merged(sources) {
        Ok(read) => read,
        Err(mistake) => return vec![mistake.into()],
    };
    let mut found = resolve(&table, &sources);
    if found.is_ok() {
        // Settings outside the files are checked only if the files are valid.
        if let Err(failure) = overrides.lay_over(&mut table, &mut sources) {
            return vec![failure.into()];
        }
        found = resolve(&table, &sources);
    }
    found.err().unwrap_or_default().into_iter().map(Into::into).collect()
}

fn first(mistakes: Vec<ConfigMistake>) -> Failure {
    let first = mistakes.into_iter().next();
    first.expect("a refused configuration has at least one mistake").into()
}

#[cfg(test)]
mod ctxrc_tests;
#[cfg(test)]
mod edit_tests;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzz/properties/config.rs"]
pub mod fuzzed;
#[cfg(test)]
mod fuzzed_tests;
#[cfg(test)]
mod keys_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;
