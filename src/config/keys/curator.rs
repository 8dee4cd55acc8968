//! The keys of the local curator, and of a job that runs it.

use super::Shape::{AgeLimit, Text, Texts, Whole};
use super::{Row, U32};

pub(super) const TABLE: &[Row] = &[
    ("engine", Text, "What the model runs in: \"ollama\", or the name of one of [backends]."),
    ("model", Text, "The model that `curator setup` configures and `curator status` looks for."),
    ("endpoint", Text, "Where the engine listens: http://, a host and a port."),
    (
        "worker_dir",
        Text,
        "The folder with its queue, below the project. Any program may drop a job file there.",
    ),
    (
        "vault_dir",
        Text,
        "Where the notes are: below the project, or an absolute path. They are only read.",
    ),
    ("hourly_cap", Whole(1, U32), "The most job files that are begun in any 60 minutes."),
    (
        "kinds",
        Texts,
        "The kinds that are handled, of \"lint-wiki\", \"dream-seed\", \"ingest-claude-session\".",
    ),
    ("ideas", Text, "Where drafts of ideas go."),
    ("learnings", Text, "Where learnings go."),
    (
        "keep",
        AgeLimit,
        "How long `curator compact` keeps what is done, failed and found; \"none\": for ever.",
    ),
];

pub(super) const JOB: &[Row] = &[
    ("batch", Whole(1, U32), "The most job files of one run. Default: 5."),
    ("event", Text, "Not the queue but this event is handled; `curator events escalate` sets it."),
];
