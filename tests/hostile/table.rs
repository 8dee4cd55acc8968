//! The required outcome of each behaviour, in each of the three dialects.
//!
//! Each row has one word per dialect, in the order command, claude, codex: the outcome, or the
//! class of a failure. A command may answer with any text, so an invalid stream is not an error in
//! that dialect.

/// The deadline that a behaviour should reach; all others are long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// None: the agent ends by itself.
    Itself,
    /// The first-byte deadline.
    FirstByte,
    /// The idle deadline.
    Idle,
    /// The run's total deadline.
    Total,
}

use Ends::{FirstByte, Idle, Itself, Total};

/// The name, the expected outcomes for command, claude and codex, and the deadline.
pub type Row = (&'static str, [&'static str; 3], Ends);

const OK: &str = "succeeded";
const BAD: &str = "malformed";

pub const ROWS: &[Row] = &[
    ("good", [OK, OK, OK], Itself),
    ("reads-all", [OK, OK, OK], Itself),
    ("silent-start", ["silent", "silent", "silent"], FirstByte),
    ("hang-after-result", ["silent", OK, OK], Idle),
    ("drip", ["timed-out", "timed-out", "timed-out"], Total),
    ("stall", ["silent", "silent", "silent"], Idle),
    ("utf8-cut", [BAD, BAD, BAD], Itself),
    ("half-line", [OK, BAD, BAD], Itself),
    ("flood", [BAD, BAD, BAD], Itself),
    ("long-line", [BAD, BAD, BAD], Itself),
    ("flood-stderr", [BAD, BAD, BAD], Itself),
    ("holds-pipe", [OK, OK, OK], Itself),
    ("apart", [OK, OK, OK], Itself),
    ("daemon", [OK, OK, OK], Itself),
    ("ignores-term", ["silent", "silent", "silent"], Idle),
    ("relay", [OK, OK, OK], Itself),
    ("many-children", [OK, OK, OK], Itself),
    ("empty", [BAD, BAD, BAD], Itself),
    ("empty-answer", [BAD, BAD, BAD], Itself),
    ("error-with-0", [BAD, "auth", "auth"], Itself),
    ("sigint-0", [BAD, BAD, BAD], Itself),
    ("term-0", ["silent", "silent", "silent"], Idle),
    ("crash", ["crash", "crash", "crash"], Itself),
    ("killed", ["crash", "crash", "crash"], Itself),
    ("stops", ["silent", "silent", "silent"], Idle),
    ("exit-3", ["crash", "crash", "crash"], Itself),
    ("artifact-cut", [BAD, OK, OK], Itself),
    ("artifact-link", [BAD, OK, OK], Itself),
    ("artifact-hard-link", [BAD, OK, OK], Itself),
    ("artifact-folder", [BAD, OK, OK], Itself),
    ("artifact-pipe", [BAD, OK, OK], Itself),
    ("artifact-growing", [BAD, OK, OK], Itself),
    ("artifact-huge", ["crash", OK, OK], Itself),
    ("writes-outside", [OK, OK, OK], Itself),
    ("links-outside", [OK, OK, OK], Itself),
    ("secret", [OK, OK, OK], Itself),
    ("secret-in-pieces", [OK, OK, OK], Itself),
    ("secret-in-error", ["crash", "crash", "crash"], Itself),
    ("usage-huge-before", ["timed-out", "timed-out", "timed-out"], Total),
    ("usage-huge", [OK, OK, OK], Itself),
    ("usage-negative", [OK, OK, OK], Itself),
    ("usage-words", [OK, OK, OK], Itself),
    ("usage-fraction", [OK, OK, OK], Itself),
    ("usage-dear", [OK, OK, OK], Itself),
    ("window-nearly-used", [OK, OK, OK], Itself),
    ("usage-none", [OK, OK, OK], Itself),
    ("over-budget", ["timed-out", "over-budget", "timed-out"], Total),
    ("wrong-version", ["crash", "crash", "crash"], Itself),
    ("asks", ["silent", "silent", "silent"], Idle),
    ("auth", ["crash", "auth", "auth"], Itself),
    ("limited", ["crash", "deferred", "deferred"], Itself),
    ("overloaded", ["crash", "rate-limited", "rate-limited"], Itself),
    ("overage", [OK, "over-budget", OK], Itself),
    ("max-turns", ["crash", BAD, "environment"], Itself),
    ("denied", [OK, OK, OK], Itself),
    ("garbage", [OK, OK, OK], Itself),
    ("nul", [OK, OK, OK], Itself),
    ("unknown-events", [OK, OK, OK], Itself),
    ("deep", [OK, OK, OK], Itself),
    ("crlf", [OK, OK, OK], Itself),
    ("two-results", [OK, OK, OK], Itself),
    ("result-then-error", ["crash", "rate-limited", "rate-limited"], Itself),
    ("escapes", [OK, OK, OK], Itself),
    ("closes-stdout", ["silent", "silent", "silent"], Idle),
    ("early-exit", ["crash", "crash", "crash"], Itself),
    ("fills-folder", ["crash", "crash", "crash"], Itself),
    ("big-file", ["crash", "crash", "crash"], Itself),
    ("obeys", [OK, OK, OK], Itself),
];

pub const DIALECTS: [&str; 3] = ["command", "claude", "codex"];
