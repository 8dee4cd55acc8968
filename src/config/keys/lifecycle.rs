//! The keys of an agent's lifecycle, and of the jobs that are its steps.

use super::Shape::{Flag, OneOf, Text, Texts, Whole};
use super::{Row, U32};

pub(super) const LIFECYCLE: &[Row] = &[
    ("steps", Text, "The record of what tools agents used; its name begins with an underscore."),
    ("daydreams", Text, "The daydreams."),
    ("commit", Flag, "Whether an entry is committed once it is published."),
    ("push", Flag, "Whether that commit is pushed."),
];

pub(super) const REM: &[Row] = &[
    ("agent", Text, "Whose journal: rem/AGENT/. Without it the default agent's: rem/."),
    ("board", Text, "What its verdicts move, in org or markdown. Default: plan.org."),
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

pub(super) const DAYDREAM: &[Row] = &[
    ("agent", Text, "Whose tools and dreams it follows."),
    (
        "interval_minutes",
        Whole(0, U32),
        "How long after the last one the next may come. Default: 12.",
    ),
];

pub(super) const CYCLE: &[Row] = &[
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
    ("board", Text, "The board, in org or markdown. Default: plan.org."),
    (
        "writes",
        Texts,
        "What of the project its agents may write; \".\" is all but what only runner, git and agents write. Default: [\".\"].",
    ),
];

pub(super) const WORK: &[Row] = &[
    (
        "agent",
        Text,
        "Which agent: it has its own position and journal. Without it the one without a name.",
    ),
    ("board", Text, "The board, in org or markdown. Default: plan.org."),
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
