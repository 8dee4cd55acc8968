//! The keys that say how a job is started, held back, tried again and walled in: those that
//! `[defaults]` may say for all of them.

use super::Shape::{Duration, Flag, Hours, Limit, Number, OneOf, Size, Text, Wait, Waits, Whole};
use super::{Row, U32};

pub(super) const POLICY: &[Row] = &[
    (
        "catch_up",
        OneOf(&["none", "last", "all"]),
        "Which of the scheduled times that passed while nothing ran are run.",
    ),
    (
        "catch_up_window",
        Duration,
        "Only scheduled times no later than this are caught up; older ones are missed.",
    ),
    ("catch_up_cap", Whole(1, U32), "The most scheduled times that \"all\" runs."),
    ("stagger", Wait, "Late ones are spread over this long; \"0s\" starts them at once."),
    (
        "overlap",
        OneOf(&["skip", "queue", "replace"]),
        "What becomes of a moment while the job still runs.",
    ),
    ("start_within", Limit, "What has not begun so long after it was due is skipped."),
    ("quiet", Hours, "Hours in which it is not started but waits; may span midnight."),
    ("min_interval", Limit, "Due sooner than this after it last began, it is skipped."),
    ("min_battery", Whole(0, 100), "On battery below this many percent it waits."),
    ("max_load", Number(1000), "Above this load of a minute per core it waits; 0: never."),
    ("group", Text, "Whose slots it shares."),
    (
        "priority",
        Whole(i32::MIN as i64, i32::MAX as i64),
        "Higher goes first among those that wait.",
    ),
    ("retries", Whole(0, U32), "How often it is tried again after a failure that may mend itself."),
    (
        "backoff",
        Waits,
        "The longest wait before each further attempt; it is drawn from nothing up to that.",
    ),
];

pub(super) const SANDBOX: &[Row] = &[
    (
        "sandbox",
        OneOf(&["on", "off"]),
        "Whether children start inside the sandbox; every report says when they do not.",
    ),
    (
        "network",
        Flag,
        "Whether children may use the network. Default: true for a backend's, false for a command's.",
    ),
    ("max_file", Size, "The largest file that a child can write."),
    (
        "max_folder",
        Size,
        "The most that may lie in a run's own folder; a child that goes beyond is ended.",
    ),
];
