//! The settings shared by `[defaults]` and each job: the policy for scheduling and queueing the
//! job, and the sandbox of its children.
//!
//! A setting that a job does not set is taken from `[defaults]`, and one that `[defaults]` does not
//! set either has a built-in default. A missing setting must never weaken the sandbox, which is on
//! by default. `"none"` removes a limit.

use std::collections::BTreeMap;
use std::time::Duration;

use runner_engine::policy::{ConcurrencyGroup, DEFAULT_GROUP, Policy};

use super::reader::Reader;
use super::settings::{DefaultsTable, GroupTable, PolicyTable, SandboxTable};
use super::values::{NetworkValue, Switch, Text, Wait};

/// The number of slots by job group.
pub(super) type Groups = BTreeMap<String, u32>;

/// The settings that apply to every job that does not override them.
#[derive(Clone, Debug)]
pub(super) struct Defaults {
    /// The policy for starting, delaying and retrying jobs.
    pub(super) policy: Policy,
    /// The IANA time zone for job schedules, except those of night jobs.
    pub(super) zone: String,
    /// The sandbox of the jobs' children.
    pub(super) sandbox: SandboxSettings,
    /// Whether runner keeps the machine awake; `None` selects the default for the job's kind and
    /// trigger.
    pub(super) keep_awake: Option<bool>,
}

/// The sandbox settings of a job's children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSettings {
    /// Whether the sandbox is off (`sandbox = "off"`).
    pub off: bool,
    /// The part of the network that children may use. `None` allows all of it to a backend's child,
    /// and nothing to the program of a command job.
    pub network: Option<Network>,
    /// Hidden paths that children may read, either absolute or relative to the home directory
    /// (`~/…`).
    pub reads: Vec<String>,
    /// Maximum size in bytes of a file that a child writes.
    pub max_file: u64,
    /// Maximum size in bytes of a run's folder while children run.
    pub max_folder: u64,
    /// Maximum memory in bytes of a child's process tree; `None` means a fraction of the machine's
    /// memory.
    pub max_memory: Option<u64>,
    /// Maximum number of processes and threads in a child's process tree.
    pub max_processes: u32,
    /// Maximum processor time of a child's process tree; `None` sets no limit.
    pub max_cpu_time: Option<Duration>,
}

/// The part of the network that children may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    Closed,
    Open,
    /// Only these hosts, as `host:port` in lower case.
    Hosts(Vec<String>),
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self {
            off: false,
            network: None,
            reads: Vec::new(),
            max_file: 1_000_000_000,
            max_folder: 4_000_000_000,
            max_memory: None,
            max_processes: 4096,
            max_cpu_time: None,
        }
    }
}

pub(super) fn groups(reader: &mut Reader<'_>) -> Groups {
    let mut groups = Groups::new();
    for name in reader.entries("groups") {
        let group: Option<GroupTable> = reader.read(&["groups", &name]);
        groups.extend(group.map(|group| (name, group.slots)));
    }
    groups
}

/// Reads `[defaults]`; `zone` is the zone of the night.
pub(super) fn defaults(reader: &mut Reader<'_>, zone: &str, groups: &Groups) -> Option<Defaults> {
    const PATH: [&str; 1] = ["defaults"];
    let zone = reader.read::<DefaultsTable>(&PATH)?.zone.map_or_else(|| zone.to_owned(), |it| it.0);
    let mut policy = Policy::default();
    if let Some(slots) = groups.get(DEFAULT_GROUP) {
        policy.group.slots = *slots;
    }
    lay_over(&mut policy, reader, &PATH, groups)?;
    let table = reader.read::<SandboxTable>(&PATH)?;
    let mut sandbox = SandboxSettings::default();
    sandbox.lay_over(&table);
    Some(Defaults { policy, zone, sandbox, keep_awake: table.keep_awake })
}

/// Applies the policy settings of the table at `path`.
pub(super) fn lay_over(
    policy: &mut Policy,
    reader: &mut Reader<'_>,
    path: &[&str],
    groups: &Groups,
) -> Option<()> {
    let table = reader.read::<PolicyTable>(path)?;
    let catch_up = &mut policy.catch_up;
    lay(&mut catch_up.which, table.catch_up);
    lay(&mut catch_up.window, table.catch_up_window.map(|it| it.0));
    lay(&mut catch_up.cap, table.catch_up_cap);
    lay(&mut catch_up.stagger, table.stagger.map(|it| it.0));
    lay(&mut policy.overlap, table.overlap);
    lay(&mut policy.start_within, table.start_within.map(|it| it.0));
    lay(&mut policy.quiet, table.quiet.map(|it| it.0));
    lay(&mut policy.min_interval, table.min_interval.map(|it| it.0));
    lay(&mut policy.min_battery, table.min_battery);
    lay(&mut policy.max_load, table.max_load.map(load_limit));
    lay(&mut policy.priority, table.priority);
    lay(&mut policy.retry.count, table.retries);
    let waits = |waits: Vec<Text<Wait>>| waits.into_iter().map(|wait| wait.0).collect();
    lay(&mut policy.retry.backoff, table.backoff.map(waits));
    if let Some(name) = table.group {
        let key = format!("{}.group", path.join("."));
        if let Some(slots) = groups.get(&name) {
            policy.group = ConcurrencyGroup { name, slots: *slots };
        } else {
            reader.exists(&key, "groups", &name);
        }
    }
    Some(())
}

fn lay<T>(under: &mut T, over: Option<T>) {
    if let Some(over) = over {
        *under = over;
    }
}

fn network(value: &NetworkValue) -> Network {
    match value {
        NetworkValue::All(true) => Network::Open,
        NetworkValue::All(false) => Network::Closed,
        NetworkValue::Hosts(hosts) => Network::Hosts(hosts.iter().map(|it| it.0.clone()).collect()),
    }
}

/// Converts a load limit to thousandths; 0 means no limit.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the schema limits the load to values between 0 and 1000"
)]
fn load_limit(load: f64) -> Option<u32> {
    let thousandths = (load * 1000.0).ceil() as u32;
    (thousandths > 0).then_some(thousandths)
}

impl SandboxSettings {
    /// Applies the settings of a table.
    pub(super) fn lay_over(&mut self, table: &SandboxTable) {
        lay(&mut self.off, table.sandbox.map(|switch| switch == Switch::Off));
        lay(&mut self.network, table.network.as_ref().map(|it| Some(network(it))));
        let reads = table.reads.as_ref();
        lay(&mut self.reads, reads.map(|reads| reads.iter().map(|it| it.0.clone()).collect()));
        lay(&mut self.max_file, table.max_file.map(|size| size.0));
        lay(&mut self.max_folder, table.max_folder.map(|size| size.0));
        lay(&mut self.max_memory, table.max_memory.map(|size| Some(size.0)));
        lay(&mut self.max_processes, table.max_processes);
        let cpu_time = table.max_cpu_time.as_ref();
        lay(&mut self.max_cpu_time, cpu_time.map(|span| Some(span.0.unsigned_abs())));
    }
}
