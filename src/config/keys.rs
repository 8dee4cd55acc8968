//! Every key there is: its shape and what it means. The schema is made from this table, `get` and
//! `set` name unknown keys by it, and tests hold it to the reader and to `config/default.toml`: a key
//! that one of them forgets fails a test.
//!
//! It must never be what reads a value: the reader judges, this describes.

mod curator;
mod policy;
mod shape;
mod spending;

use super::job::KINDS;
use super::notify::CHANNELS;
use policy::{POLICY, WALLS};
use runner_backends::registry::KINDS as BACKENDS;
pub(super) use shape::Shape;
use spending::{BUDGET, CAPS, POOL, PRICE, WINDOW};

/// The keys that only jobs of this kind have.
pub(super) fn own_of(kind: &str) -> impl Iterator<Item = &'static str> {
    let rows = match kind {
        "dream" => DREAM,
        "command" => COMMAND,
        "rem" => REM,
        "daydream" => DAYDREAM,
        "lifecycle" => CYCLE,
        "wake" | "audit" | "plan" => WORK,
        "overnight" => OVERNIGHT,
        "curator" => curator::JOB,
        _ => PROMPT,
    };
    rows.iter().map(|(name, ..)| *name)
}

/// What a job of this kind may say under `key`.
pub(super) fn of_job(kind: &str, key: &str) -> Option<Shape> {
    let path = format!("jobs.*.{key}");
    let fits = |it: &Key| it.path == path && (it.kinds.is_empty() || it.kinds.contains(&kind));
    all().into_iter().find(fits).map(|it| it.shape)
}

/// One key.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// Its whole name; `*` is any name.
    pub(super) path: String,
    /// What its value looks like.
    pub(super) shape: Shape,
    /// What it means.
    pub(super) about: &'static str,
    /// The kinds of jobs that have it; empty for all, and for what is no job's.
    pub(super) kinds: &'static [&'static str],
}

use Shape::{
    Age, AgeLimit, Artifacts, Duration, Flag, Id, Number, OneOf, Size, Text, Texts, Time, Trigger,
    Wait, Whole, Zone,
};

type Row = (&'static str, Shape, &'static str);

/// The most that TOML can say.
const MOST: i64 = i64::MAX;
const U32: i64 = u32::MAX as i64;

const PLAIN: &[Row] = &[
    (
        "project.id",
        Id,
        "Ties this folder to its history; `runner init` gives it.",
    ),
    ("night.at", Time, "When the night opens, in its zone."),
    (
        "night.length",
        Duration,
        "When it closes at the latest; then the report is written in any case.",
    ),
    (
        "night.zone",
        Zone,
        "The zone of the night's times: an IANA name, or \"system\" for the host's own.",
    ),
    (
        "daemon.drain",
        Wait,
        "How long live runs may go on when the daemon is told to end. Only the user's file is asked for it.",
    ),
    (
        "retention.rows",
        Age,
        "How long the ledger keeps what is over; as long a key of `--key` is known and a decision on a proposal can be taken back. 8 days at the least.",
    ),
    (
        "retention.logs",
        Age,
        "How long the folders of runs are kept, with their logs.",
    ),
    (
        "retention.reports",
        AgeLimit,
        "How long the reports of nights are kept; \"none\": for ever.",
    ),
    (
        "retention.backups",
        Whole(1, 1000),
        "How many of the ledger's daily backups are kept.",
    ),
    (
        "groups.*.slots",
        Whole(1, U32),
        "How many jobs of the group run at once, of all projects.",
    ),
    (
        "defaults.zone",
        Zone,
        "The zone of a job's times; without it that of the night.",
    ),
];

const NOTIFY: &[Row] = &[
    (
        "on",
        Texts,
        "What is told of: \"failure\", \"breaker\", \"missed\", \"stale\".",
    ),
    (
        "recovery",
        Flag,
        "Whether it is told when a trouble is over.",
    ),
    (
        "repeat",
        Duration,
        "How long at least between two messages of the same open alert.",
    ),
    (
        "success_within",
        AgeLimit,
        "After how long without a success a job with a clock is stale; \"none\": never.",
    ),
    ("subject", Text, "The template of a message's subject."),
    ("body", Text, "The template of a message's text."),
    (
        "heartbeat",
        Text,
        "What is told of each good tick: an https:// address, env:NAME, or a file. Only the user's file is asked for it.",
    ),
];

const CHANNEL: &[Row] = &[
    ("type", OneOf(&CHANNELS), "How it tells people."),
    (
        "url",
        Text,
        "Where a webhook posts to: https://, http:// to this machine, or env:NAME.",
    ),
    (
        "secret",
        Text,
        "The name of the variable with the key that a webhook is signed with.",
    ),
    (
        "secret_file",
        Text,
        "The file with that key, which only its owner may read: / or ~/ first.",
    ),
    ("recipient", Text, "The mail address that is written to."),
    ("sender", Text, "The mail address that it is from."),
    (
        "program",
        Text,
        "A name to look for in PATH, or a path. Default of a mail: sendmail.",
    ),
    (
        "args",
        Texts,
        "Its arguments. Never a secret: every user can read them. Default of a mail: [\"-i\", \"-t\"].",
    ),
    (
        "env",
        Texts,
        "Names of variables that the program may see besides the ordinary ones.",
    ),
    (
        "sandbox",
        OneOf(&["on", "off"]),
        "Whether the program starts behind walls, with the network open.",
    ),
];

const BACKEND: &[Row] = &[
    (
        "type",
        OneOf(&BACKENDS),
        "What it is: \"builtin\" answers by rule, \"command\" runs a program, \"claude\" and \"codex\" those agents, \"anthropic\", \"openai\" and \"ollama\" ask a model's API.",
    ),
    (
        "model",
        Text,
        "The model that an agent is told to use; of a command a name for reports.",
    ),
    (
        "program",
        Text,
        "The program: a name to look for in PATH, or a path. Agents have their own name by default.",
    ),
    (
        "args",
        Texts,
        "The program's arguments. Never a secret: every user can read them.",
    ),
    (
        "env",
        Texts,
        "Names of variables that the program may see besides the ordinary ones.",
    ),
    (
        "artifact",
        Text,
        "The file in its run folder that has the answer; without it, standard output.",
    ),
    (
        "quiet",
        Flag,
        "Whether it says nothing before its answer, so that silence is no sign of trouble.",
    ),
    (
        "first_byte",
        Duration,
        "How long it may take until it says anything; without it 2 minutes.",
    ),
    (
        "idle",
        Duration,
        "How long it may be silent between two signs of life; without it 5 minutes.",
    ),
    (
        "grace",
        Duration,
        "How long it may take to end, after its answer or when it is asked to; without it 10 seconds.",
    ),
    (
        "output_cap",
        Size,
        "How much it may say on each of its outputs; without it 64MB.",
    ),
    (
        "env_file",
        Text,
        "A file of further variables, NAME=VALUE, that only its owner may read: / or ~/ first.",
    ),
    (
        "state",
        Text,
        "An agent's own folder with its login (CLAUDE_CONFIG_DIR, CODEX_HOME): / or ~/ first.",
    ),
    (
        "sessions",
        Flag,
        "Whether an agent keeps its own records of what was asked.",
    ),
    (
        "tools",
        Texts,
        "Tools that an agent may use; none unless they are named.",
    ),
    (
        "max_turns",
        Whole(1, U32),
        "Turns of one request of claude. Default: 1 without tools, 20 with.",
    ),
    (
        "fallback_model",
        Text,
        "The model that claude uses while its first one is overloaded.",
    ),
    (
        "slots",
        Whole(1, U32),
        "How many requests of the same login are under way at once. Default: 1 for agents, no limit for APIs.",
    ),
    (
        "fallback",
        Texts,
        "Which [backends.NAME] are asked in this order when it is not there, may not or has no room now.",
    ),
    (
        "pool",
        Text,
        "Which [pools.NAME] of the user's own file it spends from.",
    ),
    (
        "base_url",
        Text,
        "The address of a model's API; without it that of its maker, and of Ollama on this host.",
    ),
    (
        "api",
        OneOf(&["chat", "responses"]),
        "Which API of openai: Chat Completions, which others have too, or Responses. Default: \"chat\".",
    ),
    (
        "key",
        Text,
        "The name of the variable that has an API's key, never the key. Default: the usual one where base_url is not set, else none.",
    ),
    (
        "structured",
        OneOf(&["schema", "tool", "prompt"]),
        "How an API's answer is held to its schema: by the \"schema\" itself, by a \"tool\" (anthropic's default), or only by words in the \"prompt\".",
    ),
    (
        "max_output_tokens",
        Whole(1, U32),
        "The longest answer of an API, in tokens, where that is less than a job asks for.",
    ),
    (
        "connect",
        Duration,
        "How long it may take to reach an API; without it 10 seconds.",
    ),
    (
        "ca_file",
        Text,
        "Certificates that an API is trusted with besides the host's own, as PEM: / or ~/ first.",
    ),
    (
        "num_ctx",
        Whole(1, U32),
        "The window of an ollama model in tokens. Default: 4096 to 32768, as the question needs.",
    ),
    (
        "keep_alive",
        Wait,
        "How long an ollama model stays loaded after its answer; without it as Ollama does.",
    ),
];

const JOB: &[Row] = &[
    ("kind", OneOf(&KINDS), "What it is."),
    (
        "trigger",
        Trigger,
        "What makes it due: \"night\", \"manual\", \"every 15m\", \"daily 02:30\", \"cron 30 2 * * *\", \"after JOB\", \"after JOB ends\", \"lifecycle\".",
    ),
    ("enabled", Flag, "Whether clocks and nights may start it."),
    ("backend", Text, "Which [backends.NAME] answers."),
    (
        "timeout",
        Duration,
        "How long one run may take in all. Default: 30m for a dream, 1h for a command, 10m for a prompt, 5m for rem and daydream, 12m for an agent that works, 8h for a night over the corpus.",
    ),
    (
        "zone",
        Zone,
        "The zone of its times; a job of the night has the night's.",
    ),
];

const AWAKE: &[Row] = &[(
    "keep_awake",
    Flag,
    "Whether the machine is kept from falling asleep while a run of it lasts. Default: true for jobs of the night and for dreams, false for others.",
)];

const WATCH: &[Row] = &[(
    "success_within",
    AgeLimit,
    "After how long without a success people are told of it, instead of what [notify] says.",
)];

const DREAM: &[Row] = &[
    ("ideas", Text, "Where the ideas are: every *.md below it."),
    ("dreams", Text, "Where proposals, state and decisions are."),
    ("done", Text, "Where archived ideas go; not read."),
    ("specs", Text, "Where promoted ideas go."),
    ("max_ideas", Whole(1, MOST), "Ideas shown in one pass."),
    (
        "max_idea_bytes",
        Size,
        "Longer ideas are recorded and left out.",
    ),
    (
        "quiet_minutes",
        Whole(0, U32),
        "An idea changed this recently defers a pass that nobody asked for.",
    ),
    (
        "canonical",
        Texts,
        "Files that neither a pass nor an accept may write.",
    ),
    (
        "dirty",
        OneOf(&["tracked", "strict"]),
        "Which uncommitted changes defer a pass: those to tracked files, or whatever git lists.",
    ),
];

const COMMAND: &[Row] = &[
    ("program", Text, "A name to look for in PATH, or a path."),
    (
        "args",
        Texts,
        "Its arguments. Never a secret: every user can read them.",
    ),
    (
        "env",
        Texts,
        "Names of variables that it may see besides the ordinary ones.",
    ),
    (
        "artifacts",
        Artifacts,
        "The files it must leave: from below RUNNER_OUT, to below the project.",
    ),
    (
        "writes",
        Texts,
        "What of the project it may write itself; \".\" is all but what only runner, git and agents write. Default: [\".\"].",
    ),
];

const PROMPT: &[Row] = &[
    ("prompt", Text, "The question."),
    (
        "sources",
        Texts,
        "Files of the project that are shown with it.",
    ),
    (
        "to",
        Text,
        "The file that gets the answer; {date} is the night's date.",
    ),
];

const LIFECYCLE: &[Row] = &[
    (
        "steps",
        Text,
        "The record of what tools agents used; its name begins with an underscore.",
    ),
    ("daydreams", Text, "The daydreams."),
    (
        "commit",
        Flag,
        "Whether an entry is committed once it is placed.",
    ),
    ("push", Flag, "Whether that commit is pushed."),
];

const REM: &[Row] = &[
    (
        "agent",
        Text,
        "Whose journal: rem/AGENT/. Without it the default agent's: rem/.",
    ),
    (
        "board",
        Text,
        "What its verdicts move, in org or markdown. Default: plan.org.",
    ),
    (
        "after_audit",
        Flag,
        "Only when an audit: commit is newer than the newest entry. Default: true.",
    ),
    (
        "interval_minutes",
        Whole(0, U32),
        "How long after the last dream that succeeded the next may come. Default: 50.",
    ),
    (
        "answer",
        OneOf(&["data", "org"]),
        "Whether the model answers with JSON whose schema has the board's headings, or with org text. Default: \"data\".",
    ),
];

const DAYDREAM: &[Row] = &[
    ("agent", Text, "Whose tools and dreams it follows."),
    (
        "interval_minutes",
        Whole(0, U32),
        "How long after the last one the next may come. Default: 12.",
    ),
];

const CYCLE: &[Row] = &[
    (
        "agent",
        Text,
        "Which agent: it has its own position and journal. Without it the one without a name.",
    ),
    (
        "cycle",
        Text,
        "The file that declares the cycle, in org or markdown; without it the built-in one.",
    ),
    (
        "board",
        Text,
        "The board, in org or markdown. Default: plan.org.",
    ),
    (
        "writes",
        Texts,
        "What of the project its agents may write; \".\" is all but what only runner, git and agents write. Default: [\".\"].",
    ),
];

const WORK: &[Row] = &[
    (
        "agent",
        Text,
        "Which agent: it has its own position and journal. Without it the one without a name.",
    ),
    (
        "board",
        Text,
        "The board, in org or markdown. Default: plan.org.",
    ),
    (
        "prompt",
        Text,
        "What its agent is told: a file of the project, or the words; without it the built-in ones.",
    ),
    (
        "writes",
        Texts,
        "What of the project its agent may write; \".\" is all but what only runner, git and agents write. Default: [\".\"].",
    ),
];

const OVERNIGHT: &[Row] = &[
    ("goal", Text, "What the night is for."),
    (
        "output_dir",
        Text,
        "Where its artifacts go, below the project; the night before is kept in `runs` beside it.",
    ),
    (
        "runners",
        Texts,
        "Which [backends.NAME] are asked for a bounded report.",
    ),
    (
        "council_timeout",
        Duration,
        "How long all of them together may take.",
    ),
    (
        "creative_lane",
        Flag,
        "Whether they may propose what nobody asked for.",
    ),
    (
        "queue",
        Text,
        "A markdown list of what comes first in the morning, below the project.",
    ),
    (
        "max_iterations",
        Whole(0, MOST),
        "The most iterations; 0: as many as the time allows.",
    ),
    (
        "plateau_epsilon",
        Number(1),
        "A change of fitness below this is as good as none.",
    ),
    (
        "plateau_window",
        Whole(2, 1000),
        "So many of those in a row are a plateau.",
    ),
    (
        "warn_only",
        Flag,
        "Whether rescues are spent where a strict night would halt.",
    ),
    (
        "checkpoint_max_mb",
        Whole(1, MOST),
        "The most that a checkpoint of the corpus may take, in megabytes.",
    ),
    (
        "morning_command",
        Text,
        "How to begin with a packet: {prompt}, {title}, {packet} and {id} are put in.",
    ),
];

/// What the tables are.
pub(super) const TABLES: &[(&str, &str)] = &[
    ("project", "Which project this folder is."),
    (
        "lifecycle",
        "Where the lifecycle's files are, and whether entries are committed.",
    ),
    (
        "night",
        "Everything with trigger = \"night\" is due when it opens, is paid from one budget and ends in one report.",
    ),
    (
        "night.budget",
        "The most that one night may spend over all its jobs. A unit that is \"unlimited\" is not bounded.",
    ),
    ("day", "One civil day of the project."),
    (
        "day.budget",
        "The most that one civil day may spend in this project.",
    ),
    (
        "daemon",
        "`runner daemon`, one a user: only the user's file is asked for this table.",
    ),
    (
        "retention",
        "How long things are kept, one a user: only the user's file is asked for this table.",
    ),
    ("backends", "Who answers, by name."),
    ("notify", "Of what people are told without asking."),
    ("channels", "How people are told, by name."),
    ("groups", "How many jobs of a group run at once, by name."),
    (
        "defaults",
        "How jobs are started, held back and tried again. A job may have each of these keys itself.",
    ),
    ("jobs", "What is run, by name."),
    (
        "curator",
        "The local curator: a model that tidies notes by day, from a queue of files.",
    ),
    (
        "pools",
        "What is spent from, over all projects: a subscription, a key, this machine. Only the user's file is asked for this table.",
    ),
    (
        "pools.*.day",
        "The most of one civil day, over all projects.",
    ),
    (
        "pools.*.week",
        "The most of one week from Monday on, over all projects.",
    ),
    (
        "pools.*.window",
        "The most of one window, which opens with the first run in it, over all projects.",
    ),
    (
        "prices",
        "What a token costs, by model, over runner's own list. Only the user's file is asked for this table.",
    ),
    (
        "jobs.*.day_budget",
        "The most that all runs of the job in one civil day may spend.",
    ),
    (
        "jobs.*.budget",
        "The most that one run may spend; what it leaves out is 10 calls, 1,000,000 tokens and 1 dollar.",
    ),
];

/// Whether a job's key is a matter of how it is started: the ledger keeps those.
pub(super) fn is_policy(key: &str) -> bool {
    POLICY.iter().any(|(name, ..)| *name == key)
}

/// Whether a job has what `[defaults]` says where it says nothing itself.
pub(super) fn is_shared(key: &str) -> bool {
    is_policy(key)
        || [WALLS, AWAKE]
            .concat()
            .iter()
            .any(|(name, ..)| *name == key)
}

/// All keys.
pub(super) fn all() -> Vec<Key> {
    let mut all = Vec::new();
    let mut add = |table: &str, rows: &[Row], kinds: &'static [&'static str]| {
        for (name, shape, about) in rows {
            let path = if table.is_empty() {
                (*name).to_owned()
            } else {
                format!("{table}.{name}")
            };
            all.push(Key {
                path,
                shape: *shape,
                about,
                kinds,
            });
        }
    };
    add("", PLAIN, &[]);
    add("night.budget", CAPS, &[]);
    add("day.budget", CAPS, &[]);
    add("backends.*", BACKEND, &[]);
    add("defaults", POLICY, &[]);
    add("jobs.*", JOB, &[]);
    add("jobs.*.budget", BUDGET, &[]);
    add("jobs.*.day_budget", CAPS, &[]);
    add("pools.*", POOL, &[]);
    add("pools.*.day", CAPS, &[]);
    add("pools.*.week", CAPS, &[]);
    add("pools.*.window", WINDOW, &[]);
    add("pools.*.window", CAPS, &[]);
    add("prices.*", PRICE, &[]);
    add("jobs.*", POLICY, &[]);
    add("defaults", WALLS, &[]);
    add("jobs.*", WALLS, &[]);
    add("defaults", AWAKE, &[]);
    add("jobs.*", AWAKE, &[]);
    add("jobs.*", DREAM, &["dream"]);
    add("jobs.*", COMMAND, &["command"]);
    add("jobs.*", PROMPT, &["prompt"]);
    add("notify", NOTIFY, &[]);
    add("channels.*", CHANNEL, &[]);
    add("jobs.*", WATCH, &[]);
    add("lifecycle", LIFECYCLE, &[]);
    add("jobs.*", REM, &["rem"]);
    add("jobs.*", DAYDREAM, &["daydream"]);
    add("jobs.*", CYCLE, &["lifecycle"]);
    add("jobs.*", WORK, &["wake", "audit", "plan"]);
    add("jobs.*", OVERNIGHT, &["overnight"]);
    add("curator", curator::TABLE, &[]);
    add("jobs.*", curator::JOB, &["curator"]);
    all
}

/// The known key that `path` names, or the whole name of the nearest one.
pub(super) fn known(path: &[String]) -> Result<(), Option<String>> {
    let wanted = path.join(".");
    let mut near = Vec::new();
    for key in all() {
        let parts: Vec<&str> = key.path.split('.').collect();
        // Names stand for themselves; a table is as good as a key.
        let named: Vec<&str> = parts
            .iter()
            .enumerate()
            .map(|(at, part)| match *part {
                "*" => path.get(at).map_or("NAME", String::as_str),
                part => part,
            })
            .collect();
        for length in 1..=named.len() {
            if named[..length]
                .iter()
                .copied()
                .eq(path.iter().map(String::as_str))
            {
                return Ok(());
            }
        }
        near.push(named.join("."));
    }
    Err(runner_text::nearest::nearest(&wanted, near.iter().map(String::as_str)).map(str::to_owned))
}
