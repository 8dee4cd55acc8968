//! Every key there is: its shape and what it means. The schema is made from this table, `get` and
//! `set` name unknown keys by it, and tests hold it to the reader and to `config/default.toml`: a key
//! that one of them forgets fails a test.
//!
//! It must never be what reads a value: the reader judges, this describes.

mod backends;
mod curator;
mod jobs;
mod lifecycle;
mod notify;
mod overnight;
mod plain;
mod policy;
mod shape;
mod spending;
mod tables;

use backends::BACKEND;
use jobs::{AWAKE, COMMAND, DREAM, JOB, PROMPT, WATCH};
use lifecycle::{CYCLE, DAYDREAM, LIFECYCLE, REM, WORK};
use notify::{CHANNEL, NOTIFY};
use overnight::OVERNIGHT;
use plain::PLAIN;
use policy::{POLICY, SANDBOX};
pub(super) use shape::Shape;
use spending::{BUDGET, CAPS, POOL, PRICE, WINDOW};
pub(super) use tables::TABLES;

/// Returns the keys that only jobs of this kind have.
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

/// Returns the shape of `key` in a job of this kind.
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
    pub(super) shape: Shape,
    /// The description for people.
    pub(super) about: &'static str,
    /// The kinds of jobs that have it; empty for all, and for what is no job's.
    pub(super) kinds: &'static [&'static str],
}

type Row = (&'static str, Shape, &'static str);

/// The most that TOML can say.
const MOST: i64 = i64::MAX;
const U32: i64 = u32::MAX as i64;

/// Reports whether a job's key decides how the job is started. The database keeps such keys.
pub(super) fn is_policy(key: &str) -> bool {
    POLICY.iter().any(|(name, ..)| *name == key)
}

/// Reports whether a job takes the key from `[defaults]` if it does not set it itself.
pub(super) fn is_shared(key: &str) -> bool {
    is_policy(key) || [SANDBOX, AWAKE].concat().iter().any(|(name, ..)| *name == key)
}

pub(super) fn all() -> Vec<Key> {
    let mut all = Vec::new();
    let mut add = |table: &str, rows: &[Row], kinds: &'static [&'static str]| {
        for (name, shape, about) in rows {
            let path =
                if table.is_empty() { (*name).to_owned() } else { format!("{table}.{name}") };
            all.push(Key { path, shape: *shape, about, kinds });
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
    add("defaults", SANDBOX, &[]);
    add("jobs.*", SANDBOX, &[]);
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

/// Checks that `path` names a known key. The error holds the full name of the nearest one.
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
            if named[..length].iter().copied().eq(path.iter().map(String::as_str)) {
                return Ok(());
            }
        }
        near.push(named.join("."));
    }
    Err(runner_text::nearest::nearest(&wanted, near.iter().map(String::as_str)).map(str::to_owned))
}
