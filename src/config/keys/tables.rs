//! The descriptions of the tables that hold keys.

/// The path and the description of each table.
pub(in crate::config) const TABLES: &[(&str, &str)] = &[
    ("project", "Which project this folder is."),
    ("lifecycle", "Where the lifecycle's files are, and whether entries are committed."),
    (
        "night",
        "Everything with trigger = \"night\" is due when it opens, is paid from one budget and ends in one report.",
    ),
    (
        "night.budget",
        "The most that one night may spend over all its jobs. A unit that is \"unlimited\" is not bounded.",
    ),
    ("day", "One civil day of the project."),
    ("day.budget", "The most that one civil day may spend in this project."),
    ("daemon", "`runner daemon`, one a user: only the user's file is asked for this table."),
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
    ("curator", "The local curator: a model that tidies notes by day, from a queue of files."),
    (
        "pools",
        "What is spent from, over all projects: a subscription, a key, this machine. Only the user's file is asked for this table.",
    ),
    ("pools.*.day", "The most of one civil day, over all projects."),
    ("pools.*.week", "The most of one week from Monday on, over all projects."),
    (
        "pools.*.window",
        "The most of one window, which opens with the first run in it, over all projects.",
    ),
    (
        "prices",
        "What a token costs, by model, over runner's own list. Only the user's file is asked for this table.",
    ),
    ("jobs.*.day_budget", "The most that all runs of the job in one civil day may spend."),
    (
        "jobs.*.budget",
        "The most that one run may spend; what it leaves out is 10 calls, 1,000,000 tokens and 1 dollar.",
    ),
];
