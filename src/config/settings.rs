//! Declares the settings, each as a typed field whose doc comment is the help text.
//!
//! The reader, the schema, the check for unknown keys and the reference are derived from these
//! types (`reader.rs`, `reference.rs`). A table with several sets of settings is a [`Both`] and is
//! read once for each set. The settings for backends are declared in `runner_backends`, and those
//! for the lifecycle's files and each job kind in `runner_jobs`. Most defaults are in
//! `config/default.toml`, the first layer. The types and the tables' modules convert and check the
//! values.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use runner_backends::spec::{BackendTable, OwnPath};
use runner_engine::alerts::AlertKind;
use runner_engine::policy::{CatchUpScope, Overlap};
use runner_jobs::curator::job::CuratorJobKind;
use runner_jobs::kinds;
use runner_jobs::lifecycle::Files;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::addresses::{MailAddress, Recipient, SecretName, Url};
use super::trigger::TriggerText;
use super::values::{
    Age, Cap, Dollars, HostPath, Hours, Id, ListenAddress, NetworkValue, OrNone, OrUnlimited,
    RowsAge, Size, Span, Switch, Target, Text, TimeOfDay, Wait, Zone,
};

/// The settings of `A` and those of `B`, in one table.
pub struct Both<A, B>(PhantomData<(A, B)>);

impl<A: JsonSchema, B: JsonSchema> JsonSchema for Both<A, B> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}And{}", A::schema_name(), B::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut both = A::json_schema(generator);
        let more = B::json_schema(generator);
        if let (Some(properties), Some(more)) =
            (both.get_mut("properties").and_then(|it| it.as_object_mut()), more.get("properties"))
        {
            properties.extend(more.as_object().cloned().unwrap_or_default());
        }
        both.insert("additionalProperties".to_owned(), false.into());
        both
    }
}

/// The settings in a project's runner.toml and a user's config.toml. A setting absent from both
/// takes its value from config/default.toml.
#[derive(JsonSchema)]
#[schemars(title = "runner's configuration", deny_unknown_fields)]
#[allow(dead_code, reason = "each table is read separately")]
pub struct Settings {
    /// The identity of the project in this folder.
    project: ProjectTable,
    /// The project's night. All jobs with trigger = "night" are due when it opens, spend from one
    /// budget and appear in one report.
    night: NightTable,
    /// One calendar day of the project.
    day: DayTable,
    /// The settings of `runner daemon`, one per user. This table is read only from the user's file.
    daemon: DaemonTable,
    /// The settings of `runner serve`, one per user. This table is read only from the user's file.
    serve: ServeTable,
    /// How long data is kept. This table is read only from the user's file.
    retention: RetentionTable,
    /// The projects whose files are accepted. This table is read only from the user's file.
    trust: TrustTable,
    /// The fleets that this host may join, by name. This table is read only from the user's file.
    fleet: BTreeMap<String, FleetTable>,
    /// The memory for coding sessions.
    memory: MemoryTable,
    /// The groups of jobs, by name. A group limits how many of its jobs run at the same time.
    groups: BTreeMap<String, GroupTable>,
    /// How jobs are started, delayed and retried. A job may override each of these settings.
    defaults: Both<DefaultsTable, Both<PolicyTable, SandboxTable>>,
    /// The alerts that runner sends, and their messages.
    notify: NotifyTable,
    /// The channels for alerts, by name.
    channels: BTreeMap<String, ChannelTable>,
    /// The jobs to run, by name.
    jobs: BTreeMap<String, Jobs>,
    /// The paths of the lifecycle's files, and whether journal entries are committed.
    lifecycle: Files,
    /// The local curator, which checks and processes notes during the day, one job file after
    /// another.
    curator: CuratorTable,
    /// The backends, by name.
    backends: BTreeMap<String, BackendTable>,
    /// The pools shared by all projects: a subscription, a key or a machine. This table is read
    /// only from the user's file.
    pools: BTreeMap<String, PoolTable>,
    /// Token prices by model, which override runner's own list. This table is read only from the
    /// user's file.
    prices: BTreeMap<String, PriceTable>,
}

/// A job of any kind, with the settings shared by all kinds.
struct Jobs;

impl JsonSchema for Jobs {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Job".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        <Both<JobTable, Both<PolicyTable, SandboxTable>>>::json_schema(generator)
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectTable {
    /// The id that connects this folder to its history. `runner init` sets it.
    pub id: Option<Text<Id>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NightTable {
    /// The time at which the night opens, in its zone.
    pub at: Text<TimeOfDay>,
    /// The maximum length of the night. Once it has elapsed, the report is written even if a run is
    /// unfinished.
    pub length: Text<Span>,
    /// The time zone for the night's schedule: an IANA name, or "system" for the host's zone.
    pub zone: Text<Zone>,
    /// The combined limits for all jobs in one night. A unit that is "unlimited" has no limit here.
    #[serde(default)]
    pub budget: CapsTable,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DayTable {
    /// The combined limits for all runs in this project on one calendar day.
    #[serde(default)]
    pub budget: CapsTable,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "the daemon reads its table in `src/daemon/settings.rs`")]
pub struct DaemonTable {
    /// How long runs may continue after the daemon is asked to stop. Read only from the user's
    /// file.
    drain: Text<Wait>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServeTable {
    /// Whether the daemon serves the API and, if `listen` is an address, the pages. Read only from
    /// the user's file.
    pub enabled: bool,
    /// The IP address and the port of the pages, or "none". Read only from the user's file.
    pub listen: Text<OrNone<ListenAddress>>,
    /// Additional host names, with or without a port, under which the pages may be requested.
    /// Required if other machines can reach the address. Read only from the user's file.
    pub allowed_hosts: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetentionTable {
    /// How long the database keeps finished records and the keys of `--key`, and how long a
    /// decision on a proposal can be undone. At least 8 days.
    pub rows: Text<RowsAge>,
    /// How long run folders and logs are kept.
    pub logs: Text<Age>,
    /// How long night reports are kept; "none" keeps them forever.
    pub reports: Text<OrNone<Age>>,
    /// The number of daily database backups to keep.
    #[schemars(range(min = 1, max = 1000))]
    pub backups: u32,
    /// How long run recordings are kept for `runner replay`; "none" records nothing.
    pub recordings: Text<OrNone<Age>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustTable {
    /// Folders in which the files of every project are accepted without `runner trust`. List only
    /// folders whose repositories nobody else changes.
    pub paths: Vec<Text<OwnPath>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FleetTable {
    /// The address of the fleet's PostgreSQL database, such as
    /// "postgresql://runner@db.example/fleet", or env:NAME. An address with a password must be in
    /// an environment variable.
    pub url: String,
    /// The tags of this host. A job runs only on hosts with all of its `fleet_tags`.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The number of fleet runs that this host executes at the same time. Default: 1. With 0, it
    /// only offers its own jobs and publishes their results.
    pub slots: Option<u32>,
    /// How long a claim lasts unless its host renews it. Default: 2m.
    pub lease: Option<Text<Span>>,
    /// How long a host may go unseen, or the database unresponsive, before an alert is sent.
    /// Default: 1h.
    pub silent_after: Option<Text<Span>>,
    /// The combined limits of all hosts for one calendar day in UTC.
    #[serde(default)]
    pub day: CapsTable,
    /// The remotes from which hosts may fetch commits, such as `https://git.example/me/` or
    /// `git@git.example:`. An address ending in "/" or ":" allows all addresses below it. A pushed
    /// commit comes from such a remote; any other commit comes from the fleet's database.
    #[serde(default)]
    pub remotes: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryTable {
    /// Whether relevant notes are added to a prompt automatically. The hooks read this setting
    /// directly from runner.toml and config.toml.
    #[allow(dead_code, reason = "only the hooks read this setting")]
    pub auto_recall: bool,
}

/// Limits in each unit, which may be "unlimited".
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CapsTable {
    /// The number of model calls.
    pub calls: Option<Cap<u64>>,
    /// The number of input and output tokens.
    pub tokens: Option<Cap<u64>>,
    /// An amount in dollars.
    pub money: Option<Cap<Dollars>>,
    /// The total duration of runs.
    pub time: Option<Text<OrUnlimited<Span>>>,
    /// The number of ideas shown to a model.
    pub ideas: Option<Cap<u64>>,
}

/// The limits of one run in each unit.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetTable {
    /// The number of model calls.
    pub calls: Option<u64>,
    /// The number of input and output tokens.
    pub tokens: Option<u64>,
    /// An amount in dollars.
    pub money: Option<Dollars>,
    /// The total duration of runs.
    pub time: Option<Text<Span>>,
    /// The number of ideas shown to a model.
    pub ideas: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupTable {
    /// The maximum number of the group's jobs that run at the same time, across all projects.
    #[schemars(range(min = 1))]
    pub slots: u32,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub struct DefaultsTable {
    /// The time zone for a job's schedule. Default: the night's zone.
    pub zone: Option<Text<Zone>>,
}

/// How a job is started, delayed and retried. The database stores these settings.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PolicyTable {
    /// Which late scheduled times are still run.
    pub catch_up: Option<CatchUpScope>,
    /// How late a scheduled time may be and still be run. Earlier scheduled times are missed.
    pub catch_up_window: Option<Text<Span>>,
    /// The maximum number of late scheduled times to run with "all".
    #[schemars(range(min = 1))]
    pub catch_up_cap: Option<u32>,
    /// The time over which late starts are spread; "0s" starts them immediately.
    pub stagger: Option<Text<Wait>>,
    /// How a scheduled time is handled while the job is still running.
    pub overlap: Option<Overlap>,
    /// The maximum start delay. A run that has not started this long after it was due is skipped.
    pub start_within: Option<Text<OrNone<Span>>>,
    /// The hours during which the job waits and does not start. They may span midnight.
    pub quiet: Option<Text<OrNone<Hours>>>,
    /// The minimum time between two starts. A run that is due sooner is skipped.
    pub min_interval: Option<Text<OrNone<Span>>>,
    /// The battery charge in percent below which the job waits while the machine runs on battery.
    #[schemars(range(min = 0, max = 100))]
    pub min_battery: Option<u8>,
    /// The one-minute load per core above which the job waits; with 0 it never waits.
    #[schemars(range(min = 0, max = 1000))]
    pub max_load: Option<f64>,
    /// The group whose slots the job uses.
    pub group: Option<String>,
    /// The job's priority. Waiting jobs with a higher priority start first.
    pub priority: Option<i32>,
    /// The maximum number of retries after a temporary failure.
    pub retries: Option<u32>,
    /// The maximum wait before each retry. The actual wait is random, from zero up to this maximum.
    #[schemars(length(min = 1))]
    pub backoff: Option<Vec<Text<Wait>>>,
}

/// The sandbox of a job's child processes, and whether the machine is kept awake.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SandboxTable {
    /// Whether child processes run in the sandbox. Reports show when they do not.
    pub sandbox: Option<Switch>,
    /// Whether child processes may use the network, or a list of the hosts that they may reach
    /// through runner's proxy, which requires bubblewrap. Default: true for backends, false for
    /// commands.
    pub network: Option<NetworkValue>,
    /// Paths that child processes may read even though runner hides them by default, such as
    /// "~/.aws/config".
    pub reads: Option<Vec<Text<HostPath>>>,
    /// The maximum size of a file that a child process writes.
    pub max_file: Option<Size>,
    /// The maximum size of a run's folder. A child process that exceeds it is stopped.
    pub max_folder: Option<Size>,
    /// The maximum total memory for a child process and all processes that it starts. Default:
    /// three quarters of the machine's memory.
    pub max_memory: Option<Size>,
    /// The maximum number of processes and threads of a child process.
    #[schemars(range(min = 1, max = 4_000_000))]
    pub max_processes: Option<u32>,
    /// The maximum total processor time for a child process and all processes that it starts.
    /// Default: no limit.
    pub max_cpu_time: Option<Text<Span>>,
    /// Whether the machine is kept awake during a run. Default: false for jobs of kind command,
    /// prompt, curator or sessions that are not night jobs, otherwise true.
    pub keep_awake: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub struct JobTable {
    /// The kind of job.
    #[schemars(extend("enum" = kinds::NAMES))]
    pub kind: String,
    /// The event that makes the job due: "night", "manual", "every 15m", "daily 02:30",
    /// "cron 30 2 * * *", "after JOB", "after JOB ends" or "lifecycle".
    pub trigger: Option<Text<TriggerText>>,
    /// Whether schedules and nights may start the job.
    pub enabled: Option<bool>,
    /// The `[backends.NAME]` that answers the job's requests.
    pub backend: Option<String>,
    /// The maximum duration of one run. Default: 30m for a dream, 1h for a command, 10m for a
    /// prompt, 5m for rem and daydream, 12m for an agent's work, 8h for an overnight run.
    pub timeout: Option<Text<Span>>,
    /// The time zone for the job's schedule. Night jobs always use the night's zone.
    pub zone: Option<Text<Zone>>,
    /// The limits of one run. Default: 10 calls, 1,000,000 tokens and 1 dollar.
    #[serde(default)]
    pub budget: BudgetTable,
    /// The combined limits for all runs of the job on one calendar day.
    #[serde(default)]
    pub day_budget: CapsTable,
    /// How long the job may go without a success before it is stale. Overrides the time in
    /// `[notify]`.
    pub success_within: Option<Text<OrNone<Age>>>,
    /// The `[fleet.NAME]` whose hosts share the job. This host must have joined it.
    pub fleet: Option<String>,
    /// Tags that a host of the fleet needs to run the job.
    #[serde(default)]
    pub fleet_tags: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotifyTable {
    /// The kinds of alerts that runner sends.
    pub on: Vec<AlertKind>,
    /// Whether runner also sends a message once a problem is over.
    pub recovery: bool,
    /// The minimum time between two messages about the same open alert.
    pub repeat: Text<Span>,
    /// The minimum time between two messages to the same channel. Alerts that become due in the
    /// meantime are sent together. "0s" sets no limit.
    pub window: Text<Wait>,
    /// The hours during which no messages are sent, in the night's zone. They may span midnight.
    pub quiet: Option<Text<OrNone<Hours>>>,
    /// How long a scheduled job may go without a success before it is stale; "none" disables this
    /// alert.
    pub success_within: Text<OrNone<Age>>,
    /// The template for a message's subject.
    pub subject: Option<String>,
    /// The template for a message's body.
    pub body: Option<String>,
    /// The recipient of a signal after each successful tick: an https:// address, env:NAME or a
    /// file. Read only from the user's file.
    pub heartbeat: Option<Text<Recipient>>,
}

/// How a channel delivers messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelType {
    Desktop,
    Webhook,
    Command,
    Email,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChannelTable {
    /// How the channel delivers messages.
    #[serde(rename = "type")]
    pub kind: ChannelType,
    /// The address to which a webhook posts: https://, http:// to this host, or env:NAME.
    pub url: Option<Text<Url>>,
    /// The name of the environment variable that contains the key for signing a webhook's messages,
    /// or keyring:NAME.
    pub secret: Option<Text<SecretName>>,
    /// The file that contains the key for signing a webhook's messages. Only its owner may read it.
    pub secret_file: Option<Text<OwnPath>>,
    /// The recipient's email address.
    pub recipient: Option<Text<MailAddress>>,
    /// The sender's email address.
    pub sender: Option<Text<MailAddress>>,
    /// The program: a name to look up in PATH, or a path. Default for email: sendmail.
    pub program: Option<String>,
    /// The program's arguments. They must never contain a secret, because every user can read them.
    /// Default for email: ["-i", "-t"].
    pub args: Option<Vec<String>>,
    /// The names of environment variables to pass to the program in addition to the default ones.
    #[serde(default)]
    pub env: Vec<String>,
    /// Whether the program runs in the sandbox, with access to the network.
    pub sandbox: Option<Switch>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolTable {
    /// The time zone for the pool's days and weeks.
    pub zone: Option<Text<Zone>>,
    /// Whether answers that incur charges beyond the subscription are allowed. If not, such an
    /// answer is stopped.
    #[serde(default)]
    pub overage: bool,
    /// The fraction of a subscription's window that jobs leave for your own use, such as 0.25. When
    /// a provider reports that less than this fraction is left, jobs wait until the window is
    /// reset.
    #[serde(default)]
    #[schemars(range(min = 0, max = 0.99))]
    pub leave: f64,
    /// Whether the pool has no limit. A pool without limits must have this setting.
    #[serde(default)]
    pub unlimited: bool,
    /// The combined limits for all projects on one calendar day.
    pub day: Option<CapsTable>,
    /// The combined limits for all projects in one week, starting on Monday.
    pub week: Option<CapsTable>,
    /// The combined limits for all projects in one window. A window opens with its first run.
    pub window: Option<WindowTable>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowTable {
    /// The length of a window, from its first run. Default: 5h.
    pub length: Option<Text<Span>>,
    /// The number of model calls.
    pub calls: Option<Cap<u64>>,
    /// The number of input and output tokens.
    pub tokens: Option<Cap<u64>>,
    /// An amount in dollars.
    pub money: Option<Cap<Dollars>>,
    /// The total duration of runs.
    pub time: Option<Text<OrUnlimited<Span>>>,
    /// The number of ideas shown to a model.
    pub ideas: Option<Cap<u64>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    /// The price of an input token in dollars.
    #[schemars(range(min = 0, max = 1))]
    pub input_cost_per_token: Option<f64>,
    /// The price of an output token in dollars.
    #[schemars(range(min = 0, max = 1))]
    pub output_cost_per_token: Option<f64>,
    /// The price of a cached input token in dollars. Default: the price of an input token.
    #[schemars(range(min = 0, max = 1))]
    pub cache_read_input_token_cost: Option<f64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CuratorTable {
    /// The program that runs the model: "ollama", or the name of an entry in `[backends]`.
    pub engine: String,
    /// The model that `curator setup` configures and `curator status` looks for.
    pub model: String,
    /// The address at which the engine listens: http://, a host and a port.
    pub endpoint: String,
    /// The curator's folder in the project, which contains the queue. Any program may add a job
    /// file to the queue.
    #[serde(deserialize_with = "runner_text::values::read_folder")]
    pub worker_dir: String,
    /// The folder with the notes: a path in the project, or an absolute path. The notes are only
    /// read.
    pub vault_dir: String,
    /// The maximum number of job files that are started within any 60 minutes.
    #[schemars(range(min = 1))]
    pub hourly_cap: u32,
    /// The kinds of job files that the curator processes.
    pub kinds: Vec<CuratorJobKind>,
    /// The folder for idea drafts.
    pub ideas: Text<Target>,
    /// The folder for learnings.
    pub learnings: Text<Target>,
    /// How long `curator compact` keeps finished and failed job files and findings; "none" keeps
    /// them forever.
    pub keep: Text<OrNone<Age>>,
}
