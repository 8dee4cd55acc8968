//! The keys of jobs: what all of them have, and what a dream, a command and a prompt have besides.

use super::Shape::{
    AgeLimit, Artifacts, Duration, Flag, OneOf, Size, Text, Texts, Trigger, Whole, Zone,
};
use super::{MOST, Row, U32};
const KINDS: [&str; runner_jobs::kinds::KINDS.len()] = runner_jobs::kinds::NAMES;

pub(super) const JOB: &[Row] = &[
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
    ("zone", Zone, "The zone of its times; a job of the night has the night's."),
];

pub(super) const AWAKE: &[Row] = &[(
    "keep_awake",
    Flag,
    "Whether the machine is kept from falling asleep while a run of it lasts. Default: true for jobs of the night and for dreams, false for others.",
)];

pub(super) const WATCH: &[Row] = &[(
    "success_within",
    AgeLimit,
    "After how long without a success people are told of it, instead of what [notify] says.",
)];

pub(super) const DREAM: &[Row] = &[
    ("ideas", Text, "Where the ideas are: every *.md below it."),
    ("dreams", Text, "Where proposals, state and decisions are."),
    ("done", Text, "Where archived ideas go; not read."),
    ("specs", Text, "Where promoted ideas go."),
    ("max_ideas", Whole(1, MOST), "Ideas shown in one pass."),
    ("max_idea_bytes", Size, "Longer ideas are recorded and left out."),
    (
        "quiet_minutes",
        Whole(0, U32),
        "An idea changed this recently defers a pass that nobody asked for.",
    ),
    ("canonical", Texts, "Files that neither a pass nor an accept may write."),
    (
        "dirty",
        OneOf(&["tracked", "strict"]),
        "Which uncommitted changes defer a pass: those to tracked files, or whatever git lists.",
    ),
];

pub(super) const COMMAND: &[Row] = &[
    ("program", Text, "A name to look for in PATH, or a path."),
    ("args", Texts, "Its arguments. Never a secret: every user can read them."),
    ("env", Texts, "Names of variables that it may see besides the ordinary ones."),
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

pub(super) const PROMPT: &[Row] = &[
    ("prompt", Text, "The question."),
    ("sources", Texts, "Files of the project that are shown with it."),
    ("to", Text, "The file that gets the answer; {date} is the night's date."),
];
