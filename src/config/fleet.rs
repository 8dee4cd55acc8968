//! The fleets that this host may join. Only the user's file names them, because whoever owns a
//! fleet's database decides what its hosts run.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use runner_engine::store::Budget;

use super::reader::Reader;
use super::settings::FleetTable;

/// The shortest lease. A shorter one would end before a host notices a lost connection.
const SHORTEST: SignedDuration = SignedDuration::from_secs(10);

/// The settings of this host in a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// The address of the database, or `env:NAME`.
    pub url: String,
    /// The tags of this host.
    pub tags: Vec<String>,
    /// Number of runs at the same time.
    pub slots: u32,
    /// The length of a lease of this host's jobs.
    pub lease: SignedDuration,
    /// The time after which a host that was not seen is silent.
    pub silent_after: SignedDuration,
    /// The limits of a day in UTC, for all hosts.
    pub day: Budget,
}

/// Reads `[fleet]`.
pub(super) fn fleets(reader: &mut Reader<'_>) -> BTreeMap<String, Fleet> {
    let mut fleets = BTreeMap::new();
    for name in reader.entries("fleet") {
        let Some(table) = reader.read::<FleetTable>(&["fleet", &name]) else { continue };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) {
            let why = "the name of a fleet has only letters, digits, \"-\" and \"_\"";
            reader.wrong(&format!("fleet.{name}"), why);
        }
        let is_address = ["postgresql://", "postgres://", "env:"]
            .iter()
            .any(|start| table.url.strip_prefix(start).is_some_and(|rest| !rest.is_empty()));
        if !is_address {
            let why = "expected postgresql://HOST/DATABASE, or env:NAME";
            reader.wrong(&format!("fleet.{name}.url"), why);
        }
        if has_password(&table.url) {
            let why = "the address contains a password, which logs would record; use env:NAME";
            reader.wrong(&format!("fleet.{name}.url"), why);
        }
        let lease = table.lease.map_or(SignedDuration::from_mins(2), |span| span.0);
        if lease < SHORTEST {
            let why = "the lease is shorter than 10s, so that hosts would lose it without a reason";
            reader.wrong(&format!("fleet.{name}.lease"), why);
        }
        let fleet = Fleet {
            url: table.url,
            tags: table.tags,
            slots: table.slots.unwrap_or(1),
            lease,
            silent_after: table.silent_after.map_or(SignedDuration::from_hours(1), |span| span.0),
            day: table.day.into(),
        };
        fleets.insert(name, fleet);
    }
    fleets
}

/// Reports whether an address contains a password, as `//USER:PASSWORD@HOST` or `password=`.
fn has_password(url: &str) -> bool {
    let authority = url.split_once("//").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    user.contains(':') || url.contains("password=")
}
