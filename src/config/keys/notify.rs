//! The keys that decide which events people are notified of, and how.

use super::Row;
use super::Shape::{AgeLimit, Duration, Flag, OneOf, Text, Texts};
use crate::config::notify::CHANNELS;

pub(super) const NOTIFY: &[Row] = &[
    ("on", Texts, "What is told of: \"failure\", \"breaker\", \"missed\", \"stale\"."),
    ("recovery", Flag, "Whether it is told when a trouble is over."),
    ("repeat", Duration, "How long at least between two messages of the same open alert."),
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

pub(super) const CHANNEL: &[Row] = &[
    ("type", OneOf(&CHANNELS), "How it tells people."),
    ("url", Text, "Where a webhook posts to: https://, http:// to this machine, or env:NAME."),
    (
        "secret",
        Text,
        "The name of the variable with the key that a webhook is signed with, or keyring:NAME.",
    ),
    ("secret_file", Text, "The file with that key, which only its owner may read: / or ~/ first."),
    ("recipient", Text, "The mail address that is written to."),
    ("sender", Text, "The mail address that it is from."),
    ("program", Text, "A name to look for in PATH, or a path. Default of a mail: sendmail."),
    (
        "args",
        Texts,
        "Its arguments. Never a secret: every user can read them. Default of a mail: [\"-i\", \"-t\"].",
    ),
    ("env", Texts, "Names of variables that the program may see besides the ordinary ones."),
    (
        "sandbox",
        OneOf(&["on", "off"]),
        "Whether the program starts inside the sandbox, with the network open.",
    ),
];
