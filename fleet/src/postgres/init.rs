//! Creates and upgrades the schema, checks its format, and gathers facts about the database for the
//! doctor.

use super::connection::LONG;
use super::{Postgres, Step};
use crate::store::{FleetError, Result};

/// The format that this version creates and reads.
const FORMAT: i32 = 2;

/// The statements that upgrade each older format to the next one, starting with format 1.
const UPGRADES: [&str; 1] = [include_str!("../upgrade_2.sql")];

/// The tables that a worker's role must read and write.
const TABLES: [&str; 6] = ["hosts", "occurrences", "attempts", "groups", "budgets", "blobs"];

/// The tables from which a worker's daily maintenance removes old rows.
const PRUNED: [&str; 3] = ["occurrences", "budgets", "blobs"];

/// The effect of [`Postgres::init`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initialized {
    Created,
    Upgraded,
    /// The tables already exist in this format.
    Unchanged,
}

/// Facts about a fleet's database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseFacts {
    /// The version of PostgreSQL.
    pub version: String,
    /// The database's time in milliseconds since the Unix epoch.
    pub now: i64,
    /// Permissions that the role lacks, such as `UPDATE on budgets`.
    pub missing: Vec<String>,
    /// Whether a pooler between runner and the database may use a different connection for each
    /// transaction.
    pub pooled: bool,
}

impl Postgres {
    /// Creates the schema unless it exists, and upgrades an older format.
    ///
    /// # Errors
    /// Returns a [`FleetError`], which is [`FleetError::Format`] for a newer format.
    pub fn init(&mut self) -> Result<Initialized> {
        match self.check_format() {
            Err(FleetError::NoFleet | FleetError::Format { found: ..FORMAT, .. }) => {}
            found => return found.map(|()| Initialized::Unchanged),
        }
        self.write_within(LONG, |step| {
            // Only one host at a time changes the schema.
            step.change("SELECT pg_advisory_xact_lock(7235409)", &[])?;
            let Some(found) = format(step)? else {
                step.batch(include_str!("../schema.sql"))?;
                let sql = "INSERT INTO runner_fleet.format VALUES (1, $1, runner_fleet.clock())";
                step.change(sql, &[&FORMAT])?;
                return Ok(Initialized::Created);
            };
            for (upgrade, from) in UPGRADES.iter().zip(1..) {
                if from >= found {
                    step.batch(upgrade)?;
                }
            }
            step.change("UPDATE runner_fleet.format SET version = $1", &[&FORMAT])?;
            Ok(Initialized::Upgraded)
        })
    }

    /// Checks that the database contains a fleet in a format that this version supports.
    ///
    /// # Errors
    /// Returns [`FleetError::NoFleet`] if there is no fleet, [`FleetError::Format`] if its format
    /// is different, and another [`FleetError`] if the format cannot be read.
    pub fn check_format(&mut self) -> Result<()> {
        match self.write(format)?.ok_or(FleetError::NoFleet)? {
            FORMAT => Ok(()),
            found => Err(FleetError::Format { found, known: FORMAT }),
        }
    }

    /// Gathers facts for the doctor.
    ///
    /// # Errors
    /// Returns a [`FleetError`].
    pub fn facts(&mut self) -> Result<DatabaseFacts> {
        self.check_format()?;
        let pooled = self.is_pooled()?;
        self.write(|step| {
            let row =
                step.one("SELECT current_setting('server_version'), runner_fleet.clock()", &[])?;
            let mut missing = Vec::new();
            for table in TABLES {
                for right in ["SELECT", "INSERT", "UPDATE", "DELETE"] {
                    if right == "DELETE" && !PRUNED.contains(&table) {
                        continue;
                    }
                    let name = format!("runner_fleet.{table}");
                    let sql = "SELECT has_table_privilege($1, $2)";
                    if !step.one(sql, &[&name, &right])?.try_get::<_, bool>(0)? {
                        missing.push(format!("{right} on {table}"));
                    }
                }
            }
            Ok(DatabaseFacts { version: row.try_get(0)?, now: row.try_get(1)?, missing, pooled })
        })
    }

    /// Returns the database's time in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// Returns a [`FleetError`].
    pub fn now(&mut self) -> Result<i64> {
        self.write(|step| {
            let row = step.one("SELECT runner_fleet.clock()", &[])?;
            Ok(row.try_get(0)?)
        })
    }

    /// Returns whether a pooler may use a different connection for each transaction. Without one,
    /// the backend process and the application name stay the same.
    fn is_pooled(&mut self) -> Result<bool, super::Fault> {
        let (client, wait, _) = self.client(LONG)?;
        let mut pids = std::collections::BTreeSet::new();
        for _ in 0..4 {
            let row = wait.on(client.query_one("SELECT pg_backend_pid()", &[]))?;
            pids.insert(row.try_get::<_, i32>(0)?);
        }
        let row = wait.on(client.query_one("SELECT current_setting('application_name')", &[]))?;
        let name: String = row.try_get(0)?;
        Ok(pids.len() > 1 || name != "runner")
    }
}

/// Returns the schema's format, or `None` if there is no schema.
fn format(step: &mut Step<'_>) -> Result<Option<i32>, super::Fault> {
    let sql = "SELECT to_regclass('runner_fleet.format') IS NOT NULL";
    if !step.one(sql, &[])?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let row = step.first("SELECT version FROM runner_fleet.format", &[])?;
    Ok(Some(row.ok_or(FleetError::NoFleet)?.try_get(0)?))
}
