//! Every setting, declared once: a field with its type, and its meaning as the doc comment.
//!
//! The reader, the schema, the check for unknown keys and the reference are derived from these types
//! (`reader.rs`, `reference.rs`). A table that holds two sets of settings is [`Both`], and is read
//! twice. The settings of a backend are declared in `runner_backends`, those of the lifecycle's files
//! and of each kind of job in `runner_jobs`. Defaults stand in `config/default.toml`, the lowest layer.
//! Must never convert or judge a value: that is for its type, and for the module of its table.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use runner_backends::{BackendSpec, Patience};
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
    Age, Cap, Dollars, Hours, Id, OrNone, OrUnlimited, RowsAge, Size, Span, Switch, Target, Text,
    TimeOfDay, Wait, Zone,
};
use runner_backends::registry::OwnPath;

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

/// runner.toml of a project, or config.toml of a user; a setting that neither has is as in config/default.toml.
#[derive(JsonSchema)]
#[schemars(title = "runner's configuration", deny_unknown_fields)]
#[allow(dead_code, reason = "each table is read by itself")]
pub struct Settings {
    /// The identity of the project in this folder.
    project: ProjectTable,
    /// The project's night: everything with trigger = "night" is due when it opens, is paid from one
    /// budget and ends in one report.
    night: NightTable,
    /// One civil day of the project.
    day: DayTable,
    /// The settings of `runner daemon`, one a user: only the user's file is asked for this table.
    daemon: DaemonTable,
    /// How long things are kept, one a user: only the user's file is asked for this table.
    retention: RetentionTable,
    /// The projects whose files count as accepted. Only the user's file is asked for this table.
    trust: TrustTable,
    /// The groups of jobs by name, which limit how many of their jobs run at once.
    groups: BTreeMap<String, GroupTable>,
    /// How jobs are started, held back and tried again. A job may have each of these keys itself.
    defaults: Both<DefaultsTable, Both<PolicyTable, SandboxTable>>,
    /// The events that people are notified of without asking.
    notify: NotifyTable,
    /// The ways in which people are notified, by name.
    channels: BTreeMap<String, ChannelTable>,
    /// The jobs to run, by name.
    jobs: BTreeMap<String, Jobs>,
    /// The places of the lifecycle's files, and whether entries are committed.
    lifecycle: Files,
    /// The local curator: a model that tidies notes by day, from a queue of files.
    curator: CuratorTable,
    /// The backends that answer, by name.
    backends: BTreeMap<String, Both<BackendSpec, Patience>>,
    /// The pools that are spent from, over all projects: a subscription, a key, this machine. Only the
    /// user's file is asked for this table.
    pools: BTreeMap<String, PoolTable>,
    /// The prices of tokens by model, over runner's own list. Only the user's file is asked for this
    /// table.
    prices: BTreeMap<String, PriceTable>,
}

/// Any job: its common settings, and those of all kinds.
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
    /// The id that ties this folder to its history; `runner init` gives it.
    pub id: Option<Text<Id>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NightTable {
    /// When the night opens, in its zone.
    pub at: Text<TimeOfDay>,
    /// How long after that it closes at the latest; then the report is written in any case.
    pub length: Text<Span>,
    /// The zone of the night's times: an IANA name, or "system" for the host's own.
    pub zone: Text<Zone>,
    /// The most that one night may spend over all its jobs. A unit that is "unlimited" is not bounded.
    #[serde(default)]
    pub budget: CapsTable,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DayTable {
    /// The most that one civil day may spend in this project.
    #[serde(default)]
    pub budget: CapsTable,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "the daemon reads its table in `src/daemon/settings.rs`")]
pub struct DaemonTable {
    /// How long live runs may go on when the daemon is asked to end. Only the user's file is asked for
    /// it.
    drain: Text<Wait>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetentionTable {
    /// How long the database keeps what is over; as long a key of `--key` is known and a decision on a
    /// proposal can be taken back. 8 days at the least.
    pub rows: Text<RowsAge>,
    /// How long the folders of runs are kept, with their logs.
    pub logs: Text<Age>,
    /// How long the reports of nights are kept; "none": for ever.
    pub reports: Text<OrNone<Age>>,
    /// How many of the database's daily backups are kept.
    #[schemars(range(min = 1, max = 1000))]
    pub backups: u32,
    /// How long it is kept what a run read, asked and made, so that `runner replay` can go through it
    /// again; "none": nothing is recorded.
    pub recordings: Text<OrNone<Age>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustTable {
    /// Folders in which the files of every project count as accepted, without `runner trust`. Name only
    /// folders whose repositories nobody else changes.
    pub paths: Vec<Text<OwnPath>>,
}

/// The most of each unit that a table allows.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CapsTable {
    /// Model calls.
    pub calls: Option<Cap<u64>>,
    /// Tokens, asked and answered.
    pub tokens: Option<Cap<u64>>,
    /// Dollars.
    pub money: Option<Cap<Dollars>>,
    /// Time of runs.
    pub time: Option<Text<OrUnlimited<Span>>>,
    /// Ideas shown to a model.
    pub ideas: Option<Cap<u64>>,
}

/// The most of each unit that one run may spend.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetTable {
    /// Model calls.
    pub calls: Option<u64>,
    /// Tokens, asked and answered.
    pub tokens: Option<u64>,
    /// Dollars.
    pub money: Option<Dollars>,
    /// Time of runs.
    pub time: Option<Text<Span>>,
    /// Ideas shown to a model.
    pub ideas: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupTable {
    /// How many jobs of the group run at once, of all projects.
    #[schemars(range(min = 1))]
    pub slots: u32,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub struct DefaultsTable {
    /// The zone of a job's times; without it that of the night.
    pub zone: Option<Text<Zone>>,
}

/// How a job is started, held back and tried again: settings that the database keeps.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PolicyTable {
    /// Which of the scheduled times that passed while nothing ran are run.
    pub catch_up: Option<CatchUpScope>,
    /// The greatest lateness of a scheduled time that is caught up; older ones are missed.
    pub catch_up_window: Option<Text<Span>>,
    /// The most scheduled times that "all" runs.
    #[schemars(range(min = 1))]
    pub catch_up_cap: Option<u32>,
    /// The time over which late ones are spread; "0s" starts them at once.
    pub stagger: Option<Text<Wait>>,
    /// The treatment of a scheduled time while the job still runs.
    pub overlap: Option<Overlap>,
    /// How long after it was due a run may begin; what has not begun by then is skipped.
    pub start_within: Option<Text<OrNone<Span>>>,
    /// Hours in which it is not started but waits; may span midnight.
    pub quiet: Option<Text<OrNone<Hours>>>,
    /// The least time since it last began; due sooner, it is skipped.
    pub min_interval: Option<Text<OrNone<Span>>>,
    /// The charge in percent below which it waits while on battery.
    #[schemars(range(min = 0, max = 100))]
    pub min_battery: Option<u8>,
    /// The load of a minute per core above which it waits; 0: never.
    #[schemars(range(min = 0, max = 1000))]
    pub max_load: Option<f64>,
    /// The group whose slots it shares.
    pub group: Option<String>,
    /// Its rank among those that wait: higher goes first.
    pub priority: Option<i32>,
    /// How often it is tried again after a temporary failure.
    pub retries: Option<u32>,
    /// The longest wait before each further attempt; it is drawn from nothing up to that.
    #[schemars(length(min = 1))]
    pub backoff: Option<Vec<Text<Wait>>>,
}

/// How a job's children are confined, and whether the machine stays awake.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SandboxTable {
    /// Whether children start inside the sandbox; every report states when they do not.
    pub sandbox: Option<Switch>,
    /// Whether children may use the network. Default: true for a backend's, false for a command's.
    pub network: Option<bool>,
    /// The largest file that a child can write.
    pub max_file: Option<Size>,
    /// The most that may lie in a run's own folder; a child that goes beyond is ended.
    pub max_folder: Option<Size>,
    /// Whether the machine is kept from falling asleep while a run of it lasts. Default: true for jobs
    /// of the night and for dreams, false for others.
    pub keep_awake: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub struct JobTable {
    /// The kind of job.
    #[schemars(extend("enum" = kinds::NAMES))]
    pub kind: String,
    /// The event that makes it due: "night", "manual", "every 15m", "daily 02:30", "cron 30 2 * * *",
    /// "after JOB", "after JOB ends", "lifecycle".
    pub trigger: Option<Text<TriggerText>>,
    /// Whether clocks and nights may start it.
    pub enabled: Option<bool>,
    /// The `[backends.NAME]` that answers.
    pub backend: Option<String>,
    /// How long one run may take in all. Default: 30m for a dream, 1h for a command, 10m for a prompt,
    /// 5m for rem and daydream, 12m for an agent that works, 8h for a night over the corpus.
    pub timeout: Option<Text<Span>>,
    /// The zone of its times; a job of the night has the night's.
    pub zone: Option<Text<Zone>>,
    /// The most that one run may spend; what it leaves out is 10 calls, 1,000,000 tokens and 1 dollar.
    #[serde(default)]
    pub budget: BudgetTable,
    /// The most that all runs of the job in one civil day may spend.
    #[serde(default)]
    pub day_budget: CapsTable,
    /// How long without a success until people are notified, instead of the time in `[notify]`.
    pub success_within: Option<Text<OrNone<Age>>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotifyTable {
    /// The events that people are notified of.
    pub on: Vec<AlertKind>,
    /// Whether people are notified when a trouble is over.
    pub recovery: bool,
    /// How long at least between two messages of the same open alert.
    pub repeat: Text<Span>,
    /// How long at least between two messages to one channel; what becomes due meanwhile is sent
    /// together. "0s": no limit.
    pub window: Text<Wait>,
    /// Hours in which no message is sent, in the zone of the night; may span midnight.
    pub quiet: Option<Text<OrNone<Hours>>>,
    /// How long without a success until a job with a clock is stale; "none": never.
    pub success_within: Text<OrNone<Age>>,
    /// The template of a message's subject.
    pub subject: Option<String>,
    /// The template of a message's text.
    pub body: Option<String>,
    /// The receiver of a signal after each good tick: an https:// address, env:NAME, or a file. Only the
    /// user's file is asked for it.
    pub heartbeat: Option<Text<Recipient>>,
}

/// How a channel notifies people.
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
    /// How it notifies people.
    #[serde(rename = "type")]
    pub kind: ChannelType,
    /// The address that a webhook posts to: https://, http:// to this machine, or env:NAME.
    pub url: Option<Text<Url>>,
    /// The name of the variable with the key that a webhook is signed with, or keyring:NAME.
    pub secret: Option<Text<SecretName>>,
    /// The file with that key, which only its owner may read.
    pub secret_file: Option<Text<OwnPath>>,
    /// The mail address that is written to.
    pub recipient: Option<Text<MailAddress>>,
    /// The mail address that it is from.
    pub sender: Option<Text<MailAddress>>,
    /// A name to look for in PATH, or a path. Default of a mail: sendmail.
    pub program: Option<String>,
    /// Its arguments. Never a secret: every user can read them. Default of a mail: ["-i", "-t"].
    pub args: Option<Vec<String>>,
    /// Names of variables that the program may see besides the ordinary ones.
    #[serde(default)]
    pub env: Vec<String>,
    /// Whether the program starts inside the sandbox, with the network open.
    pub sandbox: Option<Switch>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolTable {
    /// The zone of its days and weeks.
    pub zone: Option<Text<Zone>>,
    /// Whether what is billed beyond the subscription is wanted; else such an answer is stopped.
    #[serde(default)]
    pub overage: bool,
    /// Whether the pool has no limit. It must be stated, so that it is never so by accident.
    #[serde(default)]
    pub unlimited: bool,
    /// The most of one civil day, over all projects.
    pub day: Option<CapsTable>,
    /// The most of one week from Monday on, over all projects.
    pub week: Option<CapsTable>,
    /// The most of one window, which opens with the first run in it, over all projects.
    pub window: Option<WindowTable>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowTable {
    /// How long a window lasts from its first use. Default: 5h.
    pub length: Option<Text<Span>>,
    /// Model calls.
    pub calls: Option<Cap<u64>>,
    /// Tokens, asked and answered.
    pub tokens: Option<Cap<u64>>,
    /// Dollars.
    pub money: Option<Cap<Dollars>>,
    /// Time of runs.
    pub time: Option<Text<OrUnlimited<Span>>>,
    /// Ideas shown to a model.
    pub ideas: Option<Cap<u64>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    /// Dollars for a token read.
    #[schemars(range(min = 0, max = 1))]
    pub input_cost_per_token: Option<f64>,
    /// Dollars for a token written.
    #[schemars(range(min = 0, max = 1))]
    pub output_cost_per_token: Option<f64>,
    /// Dollars for a token read out of a cache; without it as any token read.
    #[schemars(range(min = 0, max = 1))]
    pub cache_read_input_token_cost: Option<f64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CuratorTable {
    /// The program that the model runs in: "ollama", or the name of one of `[backends]`.
    pub engine: String,
    /// The model that `curator setup` configures and `curator status` looks for.
    pub model: String,
    /// The address where the engine listens: http://, a host and a port.
    pub endpoint: String,
    /// The folder with its queue, below the project. Any program may drop a job file there.
    #[serde(deserialize_with = "runner_text::values::read_folder")]
    pub worker_dir: String,
    /// The folder with the notes: below the project, or an absolute path. They are only read.
    pub vault_dir: String,
    /// The most job files that are begun in any 60 minutes.
    #[schemars(range(min = 1))]
    pub hourly_cap: u32,
    /// The kinds that are handled.
    pub kinds: Vec<CuratorJobKind>,
    /// The folder that drafts of ideas go to.
    pub ideas: Text<Target>,
    /// The folder that learnings go to.
    pub learnings: Text<Target>,
    /// How long `curator compact` keeps what is done, failed and found; "none": for ever.
    pub keep: Text<OrNone<Age>>,
}
