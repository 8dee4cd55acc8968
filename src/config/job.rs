//! Reads the tables of jobs.
//!
//! This module must never accept a setting that no code reads.

use jiff::SignedDuration;
use runner_engine::policy::{FleetJob, Policy};
use runner_engine::store::Budget;
use runner_jobs::kind::ProjectSettings;
use runner_jobs::kinds;
use runner_jobs::lifecycle::Files;
use runner_jobs::{JobSpec, Kind};
use toml::Value;

use super::curator::Curator;
use super::finding::Fix;
use super::policy::{self, Defaults, Groups, SandboxSettings};
use super::reader::Reader;
use super::settings::{JobTable, SandboxTable};
use super::trigger::TriggerSpec;
use super::{Night, reference};

/// The name of the setting for an overnight job's output folder.
pub(super) const OUTPUT: &str = "output_dir";

/// A configured job.
#[derive(Clone, Debug)]
pub struct Job {
    pub spec: JobSpec,
    /// The trigger that makes the job due.
    pub when: TriggerSpec,
    /// Whether schedules and nights may start the job.
    pub enabled: bool,
    /// The policy for starting, delaying and retrying the job.
    pub policy: Policy,
    /// The sandbox of the job's children.
    pub sandbox: SandboxSettings,
    /// Whether runner keeps the machine awake during a run.
    pub keep_awake: bool,
    /// The IANA time zone for the job's schedule.
    pub zone: String,
    /// The combined budget of all runs of the job in one civil day.
    pub day: Budget,
    /// How long the job may go without a success before an alert is sent. `None` if `[notify]`
    /// decides; `Some(None)` if no alert is sent.
    pub success_within: Option<Option<SignedDuration>>,
}

/// The settings outside a job's table that the job depends on.
pub(super) struct JobContext<'a> {
    /// The paths of the lifecycle's files.
    pub(super) lifecycle: &'a Files,
    pub(super) curator: &'a Curator,
    pub(super) night: &'a Night,
    pub(super) groups: &'a Groups,
    /// The defaults for the settings that the job does not set.
    pub(super) defaults: &'a Defaults,
}

/// Reads a job. Returns `None` if an essential part of it, such as its kind, is invalid.
pub(super) fn job(name: &str, around: &JobContext<'_>, reader: &mut Reader<'_>) -> Option<Job> {
    let path = ["jobs", name];
    let key = |key: &str| format!("jobs.{name}.{key}");
    let table = reader.read::<JobTable>(&path)?;
    let when = table.trigger.map_or(TriggerSpec::Night, |trigger| trigger.0);
    let zone = match (&when, table.zone) {
        (TriggerSpec::Night, own) => {
            if own.is_some() && reader.is_good(&key("trigger")) {
                let why = "a night job uses the zone of the night ([night] zone); only a job with \
                           another trigger can have its own zone";
                reader.wrong(&key("zone"), why);
            }
            around.night.zone.clone()
        }
        (_, own) => own.map_or_else(|| around.defaults.zone.clone(), |zone| zone.0),
    };
    let own_retries = reader.table(&path)?.contains_key("retries");
    let mut policy = around.defaults.policy.clone();
    policy::lay_over(&mut policy, reader, &path, around.groups)?;
    let confined = reader.read::<SandboxTable>(&path)?;
    let mut sandbox = around.defaults.sandbox.clone();
    sandbox.lay_over(&confined);
    let mut kind = kind(&table.kind, &path, around, reader)?;
    if let (Some(retries), false) = (kind.default_retries(), own_retries) {
        policy.retry.count = retries;
    }
    let mut budget = Budget::from(table.budget);
    budget.ideas = budget.ideas.or_else(|| kind.default_ideas());
    let total = table.timeout.map_or_else(|| kind.default_timeout(), |span| span.0).unsigned_abs();
    budget.seconds = budget.seconds.or(Some(total.as_secs()));
    let keep_awake = confined
        .keep_awake
        .or(around.defaults.keep_awake)
        .unwrap_or_else(|| kind.is_unattended() || matches!(when, TriggerSpec::Night));
    kind.set_keep_awake(keep_awake);
    policy.fleet = table.fleet.map(|name| FleetJob { name, tags: table.fleet_tags });
    if policy.fleet.is_some() && kind.works().is_some() {
        let why = "a job whose program changes the work tree itself cannot be shared: only files that \
                   runner publishes are sent between hosts";
        reader.wrong(&key("fleet"), why);
    }
    let backend = table.backend.unwrap_or_else(|| "builtin".to_owned());
    reader.exists(&key("backend"), "backends", &backend);
    for runner in kind.panel() {
        if !reader.exists(&key("runners"), "backends", runner) {
            break;
        }
    }
    Some(Job {
        spec: JobSpec { name: name.to_owned(), kind, backend, budget, total },
        when,
        enabled: table.enabled.unwrap_or(true),
        policy,
        sandbox,
        keep_awake,
        zone,
        day: table.day_budget.into(),
        success_within: table.success_within.map(|limit| limit.0),
    })
}

/// Reads the settings of a job's kind. If the kind refuses one, reads them again without it.
fn kind(
    name: &str,
    path: &[&str],
    around: &JobContext<'_>,
    reader: &mut Reader<'_>,
) -> Option<Box<dyn Kind>> {
    let row = kinds::find(name)?;
    loop {
        let mut kind = reader.read_with(path, |table| {
            let own = |(key, _): &(String, Value)| reference::is_own(name, key);
            (row.read)(Value::Table(table.into_iter().filter(own).collect()))
        })?;
        kind.adopt(&ProjectSettings { lifecycle: around.lifecycle, curator: &around.curator.spec });
        let Err((own, why)) = kind.check() else { return Some(kind) };
        let key = [path, &[own]].concat();
        match own {
            OUTPUT => reader.forbidden(&key.join("."), why, Fix::OutputFolder),
            _ => reader.wrong(&key.join("."), why),
        }
        let key: Vec<String> = key.into_iter().map(str::to_owned).collect();
        if !reader.set_aside(&key) {
            return None;
        }
    }
}
