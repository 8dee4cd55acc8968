//! Configuration: layers of TOML resolved to what the program works with.
//!
//! Layers: the embedded `config/default.toml`, the user's file, the project's `.ctxrc`, which is not
//! ours (`foreign.rs`), its `runner.toml`, the environment, the command line. A later layer overrides key by key, tables merge. Unknown keys are
//! errors that name the place and the nearest known key. Must never guess a value that was given
//! wrongly; only `edit` makes new text, and nothing here writes it.

mod backend;
mod check;
mod ctxrc;
pub mod curator;
mod cycle;
mod dream;
mod edit;
mod followers;
mod job;
mod keys;
mod lifecycle;
pub mod notify;
mod overrides;
mod paths;
mod policy;
pub mod pools;
pub mod price_file;
mod retention;
mod sandbox;
mod schema;
mod section;
mod set;
mod source_location;
mod sources;
mod trigger;
pub mod units;
mod view;

use std::collections::BTreeMap;
use std::path::Path;

use jiff::SignedDuration;
use jiff::civil::Time;
use runner_backends::BackendSpec;
use runner_engine::ids::ProjectId;
use runner_engine::schedule::{Schedule, Trigger};
use runner_engine::store::{Budget, NewJob, Retention};
use runner_engine::tick::{REPORT_JOB, report_job};
use runner_jobs::lifecycle::Files;
use runner_jobs::prices::Prices;
use runner_text::nearest::nearest;
use toml::{Table, Value};

use crate::cli::Failure;
use section::Section;
use sources::{ConfigMistake, Layer, Sources, merge, parse, read, read_user, wrong};

pub use check::mistakes;
pub use ctxrc::FILE as FOREIGN_FILE;
pub use edit::{Edit, edit, edit_text};
pub use job::Job;
pub use notify::Notify;
pub use overrides::{OverrideScope, Overrides};
pub use pools::Pool;
pub use sandbox::SandboxSettings;
pub use schema::schema;
pub use trigger::TriggerSpec;
pub use view::{View, ViewEntry, inline};

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
    pub backends: BTreeMap<String, BackendSpec>,
    pub jobs: BTreeMap<String, Job>,
    /// Whom to tell of what.
    pub notify: Notify,
    /// How long things are kept.
    pub retention: Retention,
    /// The user's pools, by name, that backends spend from.
    pub pools: BTreeMap<String, Pool>,
    /// The pool that a backend spends from, by the backend's name, where it names one.
    pub pool_of: BTreeMap<String, String>,
    /// The prices of tokens by model. The user's prices override the built-in list.
    pub prices: Prices,
    /// Where the lifecycle's files are, and whether entries are committed.
    pub lifecycle: Files,
    /// The models that the user's `[prices]` names.
    pub priced: std::collections::BTreeSet<String>,
    /// The local curator.
    pub curator: curator::Curator,
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
    /// Returns the job with this name, or an error that lists the existing jobs.
    pub fn job(&self, name: &str) -> Result<&Job, Failure> {
        self.jobs.get(name).ok_or_else(|| {
            let near = nearest(name, self.jobs.keys().map(String::as_str))
                .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            let there = runner_text::some_of(self.jobs.keys().map(String::as_str));
            Failure::configuration(format!(
                "no job {name:?} in this project{near} (there is: {there})"
            ))
            .hint("runner config show")
        })
    }

    /// Returns the jobs as the database keeps them, the report included.
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
            TriggerSpec::Clock(trigger) => Schedule { trigger: trigger.clone(), zone, night: None },
        }
    }
}

/// Where a configuration is read.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a> {
    /// The user's file; it need not exist.
    pub user: &'a Path,
    /// The project's file; none outside of projects.
    pub project: Option<&'a Path>,
    /// The settings outside of the files.
    pub overrides: &'a Overrides,
}

/// Reads one file and returns its text and its unresolved table, or `None` if the file does not
/// exist.
pub fn file(path: &Path) -> Result<Option<(String, Table)>, Failure> {
    let Some(text) = read(path)? else {
        return Ok(None);
    };
    let layer = Layer { name: "project", path: path.to_owned(), text: text.into() };
    let table = parse(&layer)?;
    Ok(Some((layer.text.into_owned(), table)))
}

/// Reads and resolves all layers; a missing file is an empty layer.
pub fn load(stack: &Stack<'_>) -> Result<Config, Failure> {
    layers(stack)
        .and_then(|(mut merged, sources)| Ok(anchored(resolve(&mut merged, &sources)?, stack)))
        .map_err(|first| match check::mistakes(stack).len() {
            0 | 1 => first,
            all => first.hint(format!(
                "runner config check   (it shows this mistake and {} more)",
                all - 1
            )),
        })
}

/// Recordings named below the project are found from everywhere.
fn anchored(mut config: Config, stack: &Stack<'_>) -> Config {
    if let Some(root) = stack.project.and_then(Path::parent) {
        let backends = config.backends.values_mut();
        for path in backends.filter_map(|backend| backend.recording.as_mut()) {
            if !path.starts_with("~") {
                *path = root.join(&path);
            }
        }
    }
    config
}

/// Loads the configuration with some keys of one job changed by the command line: `--set
/// key=value`, with dotted keys such as `budget.calls`. A value is read as TOML, or else taken as
/// text.
///
/// # Errors
/// An error in a file names the file. An error in a setting is a usage error that names its
/// `--set`, as is a setting that cannot be changed for a single run.
pub fn load_with(
    stack: &Stack<'_>,
    job: &str,
    settings: &[(String, String)],
) -> Result<Config, Failure> {
    let (mut merged, mut sources) = layers(stack)?;
    let plain = resolve(&mut merged.clone(), &sources)?;
    if settings.is_empty() {
        return Ok(plain);
    }
    plain.job(job)?;
    set::lay_over(&mut merged, &mut sources, job, settings)?;
    Ok(anchored(resolve(&mut merged, &sources)?, stack))
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
        if name == ctxrc::NAME && is_empty_folder(path) {
            // The sandbox of a running job holds the place of a file that is not there.
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

fn is_empty_folder(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn merged(sources: Sources) -> Result<(Table, Sources), ConfigMistake> {
    let mut merged = Table::new();
    for layer in &sources.layers {
        let table = parse(layer)?;
        if layer.name == "project" && table.contains_key("retention") {
            let why = "there is one database a user: this table belongs into the user's own config.toml \
                       (runner config set --user retention.rows ...)";
            return Err(wrong(&sources, "retention", why));
        }
        if layer.name == "project" && table.contains_key("daemon") {
            let why = "there is one daemon a user: this table belongs into the user's own config.toml \
                       (runner config set --user daemon.drain ...)";
            return Err(wrong(&sources, "daemon", why));
        }
        if layer.name == "project"
            && let Some(Value::Table(notify)) = table.get("notify")
            && notify.contains_key("heartbeat")
        {
            let why = "a tick is of all projects: this key belongs into the user's own config.toml \
                       (runner config set --user notify.heartbeat ...)";
            return Err(wrong(&sources, "notify.heartbeat", why));
        }
        for name in ["pools", "prices"] {
            if layer.name == "project" && table.contains_key(name) {
                let why = "all projects of a user share it: this table belongs into the user's own \
                           config.toml";
                return Err(wrong(&sources, name, why));
            }
        }
        merge(&mut merged, dream::under_our_names(table));
    }
    dream::complete(&mut merged);
    Ok((merged, sources))
}

fn resolve(merged: &mut Table, sources: &Sources) -> Result<Config, ConfigMistake> {
    let mut top = Section::of("", merged, sources);
    let project = match top.table("project")? {
        Some(mut table) => {
            let mut section = Section::of("project", &mut table, sources);
            let id = section.text("id")?;
            section.finish()?;
            id.map(|id| id.parse().map_err(|error| top.wrong("project.id", &format!("{error}"))))
                .transpose()?
        }
        None => None,
    };
    let night = night(top.table("night")?.unwrap_or_default(), sources)?;
    let mut day = top.table("day")?.unwrap_or_default();
    let mut section = Section::of("day", &mut day, sources);
    let day = job::budget(&mut section)?;
    section.finish()?;
    let pools = pools::pools(top.table("pools")?.unwrap_or_default(), sources)?;
    let prices = top.table("prices")?.unwrap_or_default();
    let priced = prices.keys().cloned().collect();
    let prices = pools::prices(prices, sources)?;
    let mut pool_of = BTreeMap::new();
    let mut backends = BTreeMap::new();
    for (name, value) in top.table("backends")?.unwrap_or_default() {
        let Value::Table(mut table) = value else {
            return Err(top.wrong(&format!("backends.{name}"), "it must be a table"));
        };
        let path = format!("backends.{name}");
        let mut section = Section::of(&path, &mut table, sources);
        let pool = section.parsed("pool", |pool| pools::known(pool, &pools))?;
        let spec = backend::backend(&name, &mut section)?;
        pool_of.extend(pool.map(|pool| (name.clone(), pool)));
        section.finish()?;
        backends.insert(name, spec);
    }
    for (name, spec) in &backends {
        let known = backends.keys().map(String::as_str);
        if let Some(why) = runner_backends::chain::mistake(name, &spec.fallback, known) {
            return Err(top.wrong(&format!("backends.{name}.fallback"), &why));
        }
    }
    let groups = policy::groups(top.table("groups")?.unwrap_or_default(), sources)?;
    let defaults = top.table("defaults")?.unwrap_or_default();
    let defaults = policy::defaults(defaults, &night.zone, &groups, sources)?;
    let lifecycle = lifecycle::read(top.table("lifecycle")?.unwrap_or_default(), sources)?;
    let curator = curator::read(top.table("curator")?.unwrap_or_default(), sources)?;
    let around = job::JobContext {
        curator: &curator,
        lifecycle: &lifecycle,
        night: &night,
        groups: &groups,
        defaults: &defaults,
        sources,
    };
    let mut jobs = BTreeMap::new();
    for (name, value) in top.table("jobs")?.unwrap_or_default() {
        let path = format!("jobs.{name}");
        let Value::Table(table) = value else {
            return Err(top.wrong(&path, "it must be a table"));
        };
        if name == REPORT_JOB || !good_name(&name) {
            return Err(top
                .wrong(&path, "a job's name has letters, digits, - and _, and is not \"report\""));
        }
        let job = job::job(&name, table, &around)?;
        if !backends.contains_key(&job.spec.backend) {
            let mut why = format!("there is no [backends.{}]", job.spec.backend);
            if let Some(near) = nearest(&job.spec.backend, backends.keys().map(String::as_str)) {
                why.push_str(&format!("; did you mean {near:?}?"));
            }
            return Err(top.wrong(&format!("{path}.backend"), &why));
        }
        if let Some(runner) = (job.spec.kind.panel().iter()).find(|it| !backends.contains_key(*it))
        {
            let mut why = format!("there is no [backends.{runner}]");
            if let Some(near) = nearest(runner, backends.keys().map(String::as_str)) {
                why.push_str(&format!("; did you mean {near:?}?"));
            }
            return Err(top.wrong(&format!("{path}.runners"), &why));
        }
        jobs.insert(name, job);
    }
    jobs.extend(cycle::dreams_after(&jobs, &around)?);
    // The daemon reads its own table in `src/daemon/settings.rs`. Its mistakes are also reported
    // here.
    let mut daemon = top.table("daemon")?.unwrap_or_default();
    let mut section = Section::of("daemon", &mut daemon, sources);
    section.parsed("drain", units::wait)?;
    section.finish()?;
    let mut retention = top.table("retention")?.unwrap_or_default();
    let mut section = Section::of("retention", &mut retention, sources);
    let retention = retention::read(&mut section)?;
    section.finish()?;
    let notify = top.table("notify")?.unwrap_or_default();
    let channels = top.table("channels")?.unwrap_or_default();
    let notify = notify::read(notify, channels, sources)?;
    top.finish()?;
    followers::check_after(&jobs, sources)?;
    cycle::check(&jobs, sources)?;
    paths::check(&jobs, &curator, &lifecycle, sources)?;
    Ok(Config {
        project,
        night,
        day,
        backends,
        jobs,
        notify,
        retention,
        pools,
        pool_of,
        prices,
        lifecycle,
        priced,
        curator,
    })
}

fn good_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn night(mut table: Table, sources: &Sources) -> Result<Night, ConfigMistake> {
    let mut section = Section::of("night", &mut table, sources);
    let missing = |key: &str| wrong(sources, &format!("night.{key}"), "it is not set");
    let at = section.parsed("at", units::time)?;
    let length = section.parsed("length", units::duration)?;
    let zone = section.parsed("zone", units::zone)?;
    let budget = job::budget(&mut section)?;
    section.finish()?;
    Ok(Night {
        at: at.ok_or_else(|| missing("at"))?,
        length: length.ok_or_else(|| missing("length"))?,
        zone: zone.ok_or_else(|| missing("zone"))?,
        budget,
    })
}

#[cfg(test)]
mod ctxrc_tests;
#[cfg(test)]
mod edit_tests;
#[cfg(any(test, fuzzing))]
pub mod fuzzed;
#[cfg(test)]
mod fuzzed_tests;
#[cfg(test)]
mod keys_tests;
#[cfg(test)]
mod tests;
