//! Checks the whole database. SQLite checks every page and reference. This module checks the JSON
//! columns and the invariants that connect rows. It must never change anything.

use std::collections::BTreeMap;
use std::fs;

use rusqlite::Connection;
use serde::Serialize;

use super::columns::{Count, Query as _};
use super::database_file::beside;
use super::{Fault, Result, RunSummary, Store, format};
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::process_id::ProcessIdentity;
use crate::publish::Manifest;
use crate::schedule::Schedule;

/// A problem in the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreFinding {
    pub what: String,
    /// The location of the problem: a table and the key of a row, or a name from SQLite.
    pub place: String,
}

/// The result of a full check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreHealth {
    /// The format of the file, or 0 if it cannot be read.
    pub format: i64,
    /// The SQLite version built into this program.
    pub sqlite: &'static str,
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The length of the write-ahead log in bytes.
    pub log_bytes: u64,
    /// The number of rows in each table. Empty if `whole` is false.
    pub rows: BTreeMap<String, u64>,
    /// Whether SQLite found every page, index and reference intact.
    pub whole: bool,
    pub findings: Vec<StoreFinding>,
}

/// Maximum number of findings for each rule, JSON column or check by SQLite.
const NAMED: usize = 20;

/// The invariants of the database, each with a query for the rows that violate it.
const RULES: &[(&str, &str)] = &[
    (
        "an occurrence is open, but none of its runs is",
        "SELECT 'occurrences ' || id FROM occurrences o WHERE outcome IS NULL
           AND NOT EXISTS (SELECT 1 FROM runs WHERE occurrence = o.id AND state <> 'settled')",
    ),
    (
        "an occurrence is settled, but one of its runs is not",
        "SELECT 'runs ' || r.id FROM runs r JOIN occurrences o ON o.id = r.occurrence
         WHERE r.state <> 'settled' AND o.outcome IS NOT NULL",
    ),
    (
        "an outcome has no time, or a time has no outcome",
        "SELECT 'occurrences ' || id FROM occurrences WHERE (outcome IS NULL) <> (settled IS NULL)
         UNION ALL SELECT 'runs ' || id FROM runs WHERE (outcome IS NULL) <> (finished IS NULL)",
    ),
    (
        "a run and its occurrence belong to different jobs",
        "SELECT 'runs ' || r.id FROM runs r JOIN occurrences o ON o.id = r.occurrence WHERE r.job <> o.job",
    ),
    (
        "a running run has no owner, no fence or no start time",
        "SELECT 'runs ' || id FROM runs WHERE state = 'running'
           AND (owner IS NULL OR fence IS NULL OR started IS NULL)",
    ),
    (
        "a run has a higher fence than its job",
        "SELECT 'runs ' || r.id FROM runs r JOIN jobs j ON j.id = r.job WHERE r.fence > j.fence",
    ),
    (
        "a run is waiting for an occurrence that has been settled",
        "SELECT 'runs ' || r.id FROM runs r JOIN occurrences o ON o.id = r.waits_for
         WHERE o.outcome IS NOT NULL",
    ),
    (
        "a reservation is open, but its run is not running",
        "SELECT DISTINCT 'reservations ' || v.run FROM reservations v JOIN runs r ON r.id = v.run
         WHERE v.open AND r.state <> 'running'",
    ),
    (
        "a running run has no reservation of its own",
        "SELECT 'runs ' || id FROM runs r WHERE state = 'running' AND NOT EXISTS
           (SELECT 1 FROM reservations WHERE run = r.id AND level = 'run' AND open)",
    ),
    (
        "a publication is done, but its run is not settled",
        "SELECT 'publications ' || p.run FROM publications p JOIN runs r ON r.id = p.run
         WHERE p.published IS NOT NULL AND r.state <> 'settled'",
    ),
    (
        "a run has a staging folder before it is admitted",
        "SELECT 'runs ' || id FROM runs WHERE staging IS NOT NULL AND state IN ('queued', 'requested')",
    ),
    (
        "a budget level has less usage than its settled runs",
        "SELECT 'budget_usage ' || v.level || ' ' || v.key FROM reservations v
         JOIN (SELECT run, sum(calls) calls, sum(tokens) tokens, sum(micros) micros, sum(ideas) ideas
               FROM requests GROUP BY run) q ON q.run = v.run
         LEFT JOIN budget_usage a ON a.level = v.level AND a.key = v.key
         WHERE NOT v.open AND v.level <> 'run' GROUP BY v.level, v.key
         HAVING sum(q.calls) > coalesce(max(a.calls), 0) OR sum(q.tokens) > coalesce(max(a.tokens), 0)
             OR sum(q.micros) > coalesce(max(a.micros), 0) OR sum(q.ideas) > coalesce(max(a.ideas), 0)",
    ),
    (
        "an amount is negative",
        "SELECT 'budget_usage ' || level || ' ' || key FROM budget_usage
           WHERE min(calls, tokens, micros, seconds, ideas) < 0
         UNION ALL SELECT 'reservations ' || run FROM reservations
           WHERE min(calls, tokens, micros, seconds, ideas) < 0
         UNION ALL SELECT 'requests ' || id FROM requests WHERE min(calls, tokens, micros, ideas) < 0",
    ),
];

impl StoreHealth {
    /// Returns the report for a file that could not be opened.
    pub fn unreadable(bytes: u64, why: String) -> Self {
        Self {
            format: 0,
            sqlite: rusqlite::version(),
            bytes,
            log_bytes: 0,
            rows: BTreeMap::new(),
            whole: false,
            findings: vec![StoreFinding {
                what: "the file cannot be read as a database".to_owned(),
                place: why,
            }],
        }
    }
}

type ColumnReader = fn(&str) -> serde_json::Result<()>;

/// The JSON columns to check. Each entry contains the table, its key column, the JSON column, and a
/// function that checks whether a value can be parsed.
const TEXTS: &[(&str, &str, &str, ColumnReader)] = &[
    ("occurrences", "id", "outcome", reads::<Outcome>),
    ("occurrences", "id", "settings", reads::<Vec<(String, String)>>),
    ("runs", "id", "outcome", reads::<Outcome>),
    ("runs", "id", "summary", reads::<RunSummary>),
    ("runs", "id", "starter", reads::<ProcessIdentity>),
    ("runs", "id", "owner", reads::<ProcessIdentity>),
    ("publications", "run", "manifest", reads::<Manifest>),
    ("jobs", "name", "schedule", reads::<Schedule>),
    ("jobs", "name", "policy", reads::<Policy>),
];

fn reads<T: serde::de::DeserializeOwned>(text: &str) -> serde_json::Result<()> {
    serde_json::from_str::<T>(text).map(drop)
}

impl Store {
    /// Checks the whole database. The cost grows with the size of the file.
    ///
    /// # Errors
    /// Returns a [`super::StoreError`] if the check cannot be performed.
    pub fn examine(&self) -> Result<StoreHealth> {
        let bytes = |path: &std::path::Path| fs::metadata(path).map_or(0, |data| data.len());
        let mut findings = self.view(pages)?;
        let mut rows = BTreeMap::new();
        let whole = findings.is_empty();
        // The rows of a damaged database cannot be trusted.
        if findings.is_empty() {
            self.view(|db| between_rows(db, &mut findings))?;
            rows = self.view(count)?;
        }
        Ok(StoreHealth {
            format: format::PRESENT,
            sqlite: rusqlite::version(),
            bytes: bytes(&self.path),
            log_bytes: bytes(&beside(&self.path, "-wal")),
            rows,
            whole,
            findings,
        })
    }
}

fn pages(db: &Connection) -> Result<Vec<StoreFinding>, Fault> {
    let damage = |place| StoreFinding { what: "SQLite reports damage".to_owned(), place };
    let mut findings = Vec::new();
    let mut statement = db.prepare(&format!("PRAGMA integrity_check({NAMED})"))?;
    for line in statement.query_map([], |row| row.get::<_, String>(0))? {
        match line {
            Ok(line) if line == "ok" => {}
            Ok(line) => findings.push(damage(line)),
            Err(error) => {
                findings.push(damage(error.to_string()));
                break;
            }
        }
    }
    if !findings.is_empty() {
        return Ok(findings);
    }
    let mut broken = db.all("PRAGMA foreign_key_check", [], |row| {
        let (table, number, parent): (String, Option<i64>, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(StoreFinding {
            what: format!("the row refers to a missing row of {parent}"),
            place: match number {
                Some(number) => format!("{table} row {number}"),
                None => table,
            },
        })
    })?;
    broken.truncate(NAMED);
    Ok(broken)
}

fn between_rows(db: &Connection, findings: &mut Vec<StoreFinding>) -> Result<(), Fault> {
    for (what, sql) in RULES {
        let places: Vec<String> = db.values(&format!("{sql} LIMIT {NAMED}"), [])?;
        let found =
            places.into_iter().map(|place| StoreFinding { what: (*what).to_owned(), place });
        findings.extend(found);
    }
    for (table, key, column, read) in TEXTS {
        let sql = format!("SELECT {key}, {column} FROM {table} WHERE {column} IS NOT NULL");
        let mut statement = db.prepare(&sql)?;
        let mut rows = statement.query([])?;
        let mut named = 0;
        while let Some(row) = rows.next()?.filter(|_| named < NAMED) {
            let (key, text): (String, String) = (row.get(0)?, row.get(1)?);
            if let Err(error) = read(&text) {
                findings.push(StoreFinding {
                    what: format!("the value of {column} is invalid: {error} in {text:?}"),
                    place: format!("{table} {key}"),
                });
                named += 1;
            }
        }
    }
    Ok(())
}

fn count(db: &Connection) -> Result<BTreeMap<String, u64>, Fault> {
    let sql = "SELECT name FROM pragma_table_list
               WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'";
    let tables: Vec<String> = db.values(sql, [])?;
    let count = |table: String| {
        let Count(count) = db.value(&format!("SELECT count(*) FROM {table}"), [])?;
        Ok((table, count))
    };
    tables.into_iter().map(count).collect()
}
