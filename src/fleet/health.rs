//! Fleet problems that the user should know about, for `runner doctor` and `runner fleet status`.

use jiff::SignedDuration;
use runner_fleet::{FleetStore as _, HostState, Postgres, Snapshot};

use super::membership::{self, failure};
use crate::config::Fleet;
use crate::env::Env;
use crate::ui::Failure;

/// Largest unreported difference between the host's and the database's clocks, in milliseconds.
const CLOCK_OFFSET: i64 = 30_000;

/// The state of a fleet's database, and its problems.
#[derive(Debug)]
pub struct FleetHealth {
    /// The PostgreSQL version, and the database's name and address.
    pub database: String,
    pub snapshot: Snapshot,
    pub problems: Vec<String>,
}

/// Reads the state of a fleet.
///
/// # Errors
/// Returns an error if the database cannot be used.
pub fn of(home: &Env, settings: &Fleet) -> Result<FleetHealth, Failure> {
    let mut database: Postgres = membership::database(settings)?;
    let facts = database.facts().map_err(failure)?;
    let snapshot = database.snapshot().map_err(failure)?;
    let mut problems = snapshot.budget_errors();
    for host in snapshot.hosts.iter().filter(|host| host.state == HostState::Active) {
        let unseen = SignedDuration::from_millis(snapshot.now - host.seen);
        if unseen > settings.silent_after {
            let unseen = SignedDuration::from_secs(unseen.as_secs());
            problems.push(format!("{} has been silent for {unseen:#}", host.host));
        }
    }
    let ahead = home.wall()?.as_millisecond() - facts.now;
    if ahead.abs() > CLOCK_OFFSET {
        problems.push(format!(
            "this host's clock differs from the database's by {} s; the database's clock decides",
            ahead / 1000
        ));
    }
    if facts.pooled {
        problems.push("the connection goes through a pooler; use a direct connection".to_owned());
    }
    for right in facts.missing {
        problems.push(format!("the role lacks the right to {right} (docs/guide/fleet.md, Rights)"));
    }
    let database = format!("PostgreSQL {}, {}", facts.version, database.place());
    Ok(FleetHealth { database, snapshot, problems })
}
