//! The fleet figures that the last tick read, in one file `NAME.overview` for each joined fleet.
//! The files are in the state folder.
//!
//! ```text
//! tick ──Postgres::check_in──> file ──> status, metrics, pages, alerts
//! ```
//!
//! Commands and pages that show the figures read only these files, and show the age of the figures.
//! This module must never connect to a database.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::env::Env;

/// The file version. A file with a different version is not read; the next tick replaces it.
#[cfg(feature = "fleet")]
const VERSION: u32 = 1;

/// The file extension.
#[cfg(feature = "fleet")]
const EXTENSION: &str = "overview";

/// Minimum number of consecutive failed connections before the database is considered silent. The
/// number gives a machine that has just woken up time to connect.
#[cfg(feature = "fleet")]
const MANY: u32 = 10;

/// The figures of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct FleetFigures {
    /// The file version.
    pub version: u32,
    /// The fleet's name in the user's configuration.
    pub fleet: String,
    /// This host's name in the fleet.
    pub here: String,
    /// The number of fleet runs that this host executes at the same time.
    pub slots: u32,
    /// When the figures were read from the database.
    pub read: Timestamp,
    /// How long a host may go unseen, in seconds, before it is considered silent.
    pub silent_after: i64,
    /// The hosts that have not left, by name.
    pub hosts: Vec<HostFigures>,
    /// The number of occurrences by state: `pending`, `claimed`, `delivered`, `publishing`.
    pub open: BTreeMap<String, u64>,
    /// The budget for the current UTC day, by unit: `calls`, `tokens`, `micros`, `seconds`,
    /// `ideas`. Empty if nothing was offered on this day.
    pub day: BTreeMap<String, UnitFigures>,
}

/// A host of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct HostFigures {
    pub host: String,
    /// `active` or `draining`.
    pub state: String,
    pub tags: Vec<String>,
    pub version: String,
    /// When the host was last seen, on the clock of the host that reads the figures.
    pub seen: Timestamp,
    /// The number of the host's claims.
    pub claims: u64,
    /// Whether the host accepts work but has not been seen for too long.
    pub silent: bool,
}

/// The budget usage of a fleet, for one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct UnitFigures {
    pub used: i64,
    /// The amount reserved by claims in progress.
    pub reserved: i64,
    /// The limit; absent if there is none.
    pub limit: Option<i64>,
}

impl FleetFigures {
    /// Returns the time since the figures were read.
    pub fn age(&self, now: Timestamp) -> SignedDuration {
        SignedDuration::from_secs(now.duration_since(self.read).as_secs().max(0))
    }

    pub fn silent(&self) -> impl Iterator<Item = &HostFigures> {
        self.hosts.iter().filter(|host| host.silent)
    }

    /// Describes the fleet in one line, without its name.
    pub fn line(&self, now: Timestamp) -> String {
        let silent = self.silent().count();
        let silent = if silent > 0 { format!(", {silent} SILENT") } else { String::new() };
        format!(
            "{}{silent}, {} open; figures {:#} old",
            runner_text::counted(self.hosts.len(), "host"),
            runner_text::counted(self.open.values().sum::<u64>(), "run"),
            self.age(now)
        )
    }
}

/// Returns the figures of all joined fleets, sorted by name. A machine without a fleet reads one
/// folder, and a build without fleets reads nothing.
pub fn all(home: &Env) -> Vec<FleetFigures> {
    #[cfg(feature = "fleet")]
    return joined::all(home);
    #[cfg(not(feature = "fleet"))]
    {
        let _ = home;
        Vec::new()
    }
}

#[cfg(feature = "fleet")]
pub use joined::{note, remove, silence};

#[cfg(feature = "fleet")]
mod joined {
    use std::fs;
    use std::path::PathBuf;

    use runner_engine::files::{SMALL, read_text_host, write_atomic};
    use runner_fleet::{HostState, Overview, decide};

    use super::*;
    use crate::config::Fleet;
    use crate::fleet::membership::Membership;
    use crate::fleet::{SilentFleet, backoff, folder};
    use crate::ui::{Failure, show};

    fn path(home: &Env, fleet: &str) -> PathBuf {
        folder(home).join(format!("{fleet}.{EXTENSION}"))
    }

    pub(super) fn all(home: &Env) -> Vec<FleetFigures> {
        let Ok(entries) = fs::read_dir(folder(home)) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| {
            let path = entry.path();
            let is_figures = path.extension().is_some_and(|kind| kind == EXTENSION);
            is_figures.then(|| path.file_stem()?.to_str().map(str::to_owned)).flatten()
        });
        let mut all: Vec<FleetFigures> = names.filter_map(|fleet| read(home, &fleet)).collect();
        all.sort_by(|a, b| a.fleet.cmp(&b.fleet));
        all
    }

    /// Returns the figures of a fleet, if a tick has read them.
    fn read(home: &Env, fleet: &str) -> Option<FleetFigures> {
        let text = read_text_host(path(home, fleet), SMALL).ok()?;
        let found: FleetFigures = serde_json::from_str(&text).ok()?;
        (found.version == VERSION).then_some(found)
    }

    /// Writes the figures that were read at `now`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn note(
        home: &Env,
        (member, settings): (&Membership, &Fleet),
        overview: Overview,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let figures = of(member, settings, overview, now);
        let text = serde_json::to_string_pretty(&figures)
            .map_err(|error| Failure::internal(error.to_string()))?;
        write_atomic(&path(home, &member.fleet), text.as_bytes(), 0o600)
            .map_err(|error| Failure::cannot_write(error.to_string()))
    }

    pub(super) fn of(
        member: &Membership,
        settings: &Fleet,
        overview: Overview,
        now: Timestamp,
    ) -> FleetFigures {
        let hosts = overview.hosts.into_iter().map(|(row, claims)| {
            let unseen = SignedDuration::from_millis((overview.now - row.seen).max(0));
            HostFigures {
                silent: row.state == HostState::Active
                    && row.host != member.host
                    && unseen > settings.silent_after,
                state: row.state.as_str().to_owned(),
                host: row.host,
                tags: row.tags,
                version: row.version,
                seen: now.saturating_sub(unseen).unwrap_or(now),
                claims,
            }
        });
        let day = overview.day.into_iter().flat_map(|row| {
            let unit = move |at: usize| {
                let figures = UnitFigures {
                    used: row.used[at],
                    reserved: row.held[at],
                    limit: row.limits[at],
                };
                (decide::UNITS[at].to_owned(), figures)
            };
            (0..decide::UNITS.len()).map(unit)
        });
        FleetFigures {
            version: VERSION,
            fleet: member.fleet.clone(),
            here: member.host.clone(),
            slots: settings.slots,
            read: now,
            silent_after: settings.silent_after.as_secs(),
            hosts: hosts.collect(),
            open: overview
                .open
                .into_iter()
                .map(|(state, number)| (format!("{state:?}").to_lowercase(), number))
                .collect(),
            day: day.collect(),
        }
    }

    /// Removes the figures of a fleet that this host is leaving.
    ///
    /// # Errors
    /// Returns an error if the file cannot be removed.
    pub fn remove(home: &Env, fleet: &str) -> Result<(), Failure> {
        let path = path(home, fleet);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::not_written(&path, error))
            }
            _ => Ok(()),
        }
    }

    /// Returns a fleet's silent hosts, and its database if the database has not responded for too
    /// long. Returns `None` if neither is silent.
    pub fn silence(home: &Env, fleet: &str, now: Timestamp) -> Option<SilentFleet> {
        of_figures(&read(home, fleet)?, backoff::failures(home, fleet), now)
    }

    pub(super) fn of_figures(
        figures: &FleetFigures,
        failures: u32,
        now: Timestamp,
    ) -> Option<SilentFleet> {
        let limit = SignedDuration::from_secs(figures.silent_after);
        let fleet = &figures.fleet;
        let mut found: Vec<(Timestamp, String)> = figures
            .silent()
            .map(|host| {
                let seen = show::format_time(host.seen);
                (
                    host.seen,
                    format!("the host {} of the fleet {fleet} was last seen at {seen}", host.host),
                )
            })
            .collect();
        if failures >= MANY && figures.age(now) > limit {
            let read = show::format_time(figures.read);
            let why = format!("the database of the fleet {fleet} has not answered since {read}");
            found.push((figures.read, why));
        }
        let last = found.iter().map(|(seen, _)| *seen).max()?;
        let why: Vec<String> = found.into_iter().map(|(_, why)| why).collect();
        Some(SilentFleet {
            fleet: fleet.clone(),
            since: last.saturating_add(limit).unwrap_or(now).min(now),
            why: why.join("; "),
        })
    }
}

#[cfg(all(test, feature = "fleet"))]
mod tests {
    use runner_fleet::{HostRow, HostState, Overview, State};

    use super::*;
    use crate::config::Fleet;
    use crate::fleet::membership::Membership;

    const HOUR: i64 = 3_600_000;

    fn figures(seen: i64, state: HostState) -> FleetFigures {
        let row = |host: &str, seen, state| HostRow {
            host: host.to_owned(),
            worker: format!("{host}.boot"),
            state,
            tags: Vec::new(),
            version: "1".to_owned(),
            joined: 0,
            seen,
        };
        let overview = Overview {
            // The database's clock is years ahead.
            hosts: vec![
                (row("here", 0, HostState::Active), 1),
                (row("other", 900 * HOUR - seen, state), 2),
            ],
            open: BTreeMap::from([(State::Pending, 3)]),
            day: None,
            now: 900 * HOUR,
        };
        let member = Membership {
            fleet: "night".to_owned(),
            host: "here".to_owned(),
            worker: "here.boot".to_owned(),
            draining: false,
        };
        let settings = Fleet {
            url: String::new(),
            tags: Vec::new(),
            slots: 1,
            lease: SignedDuration::from_mins(2),
            silent_after: SignedDuration::from_hours(1),
            day: runner_engine::store::Budget::default(),
            remotes: Vec::new(),
        };
        joined::of(&member, &settings, overview, at(100 * HOUR))
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).expect("a time in range")
    }

    #[test]
    fn only_other_active_hosts_become_silent() {
        let found = figures(2 * HOUR, HostState::Active);
        let silent: Vec<&str> = found.silent().map(|host| host.host.as_str()).collect();
        assert_eq!(silent, ["other"]);
        assert_eq!(found.hosts[1].seen, at(98 * HOUR), "the time must be on this host's clock");
        assert_eq!(
            found.line(at(100 * HOUR + 60_000)),
            "2 hosts, 1 SILENT, 3 runs open; figures 1m old"
        );
        for (seen, state) in [(HOUR, HostState::Active), (2 * HOUR, HostState::Draining)] {
            assert_eq!(figures(seen, state).silent().count(), 0);
        }
    }

    #[test]
    fn silence_begins_at_the_limit() {
        let found = figures(2 * HOUR, HostState::Active);
        let silent = joined::of_figures(&found, 0, at(100 * HOUR)).unwrap();
        assert_eq!(silent.since, at(99 * HOUR));
        assert!(silent.why.starts_with("the host other of the fleet night was last seen"));
        let seen = figures(HOUR, HostState::Active);
        assert_eq!(joined::of_figures(&seen, 99, at(101 * HOUR)), None);
        // The machine has just woken up, and only one connection has failed.
        assert_eq!(joined::of_figures(&seen, 1, at(101 * HOUR + 1_000)), None);
        let lost = joined::of_figures(&seen, 10, at(102 * HOUR)).unwrap();
        assert_eq!(lost.since, at(101 * HOUR));
        assert!(lost.why.contains("has not answered since"), "{}", lost.why);
    }
}
