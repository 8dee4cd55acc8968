//! The keys of the tables that have only a few.

use super::Shape::{Age, AgeLimit, Duration, Id, Time, Wait, Whole, Zone};
use super::{Row, U32};

pub(super) const PLAIN: &[Row] = &[
    ("project.id", Id, "Ties this folder to its history; `runner init` gives it."),
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
        "How long the database keeps what is over; as long a key of `--key` is known and a decision on a proposal can be taken back. 8 days at the least.",
    ),
    ("retention.logs", Age, "How long the folders of runs are kept, with their logs."),
    ("retention.reports", AgeLimit, "How long the reports of nights are kept; \"none\": for ever."),
    ("retention.backups", Whole(1, 1000), "How many of the database's daily backups are kept."),
    (
        "retention.recordings",
        AgeLimit,
        "How long it is kept what a run read, asked and made, so that `runner replay` can go through it again; \"none\": nothing is recorded.",
    ),
    ("groups.*.slots", Whole(1, U32), "How many jobs of the group run at once, of all projects."),
    ("defaults.zone", Zone, "The zone of a job's times; without it that of the night."),
];
