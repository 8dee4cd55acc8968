//! The fleets that this host may join. Only the user's file may name them, because the owner of a
//! fleet's database decides what the fleet's hosts run.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use runner_engine::store::Budget;

use super::reader::Reader;
use super::settings::FleetTable;

/// The shortest permitted lease. A shorter lease could end before a host notices a lost connection.
const SHORTEST: SignedDuration = SignedDuration::from_secs(10);

/// This host's settings in a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// The address of the database, or `env:NAME`.
    pub url: String,
    pub tags: Vec<String>,
    /// Maximum number of concurrent runs.
    pub slots: u32,
    /// The lease duration for this host's jobs.
    pub lease: SignedDuration,
    /// How long a host may be unseen before it is reported as silent.
    pub silent_after: SignedDuration,
    /// The combined limits of all hosts for one day in UTC.
    pub day: Budget,
    /// The addresses of the remotes from which hosts fetch commits.
    pub remotes: Vec<String>,
}

pub(super) fn fleets(reader: &mut Reader<'_>) -> BTreeMap<String, Fleet> {
    let mut fleets = BTreeMap::new();
    for name in reader.entries("fleet") {
        let Some(table) = reader.read::<FleetTable>(&["fleet", &name]) else { continue };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) {
            let why = "the name of a fleet may contain only letters, digits, \"-\" and \"_\"";
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
            let why = "the lease is shorter than 10s, so hosts could lose it even if nothing fails";
            reader.wrong(&format!("fleet.{name}.lease"), why);
        }
        let fleet = Fleet {
            url: table.url,
            tags: table.tags,
            slots: table.slots.unwrap_or(1),
            lease,
            silent_after: table.silent_after.map_or(SignedDuration::from_hours(1), |span| span.0),
            day: table.day.into(),
            remotes: table.remotes,
        };
        if let Some(address) = fleet.remotes.iter().find(|address| !is_remote(address)) {
            let why = format!(
                "{address:?} is not https://HOST/PATH/, ssh://HOST/PATH/, USER@HOST: or file:///PATH/ without a password"
            );
            reader.wrong(&format!("fleet.{name}.remotes"), why);
        }
        fleets.insert(name, fleet);
    }
    fleets
}

/// Reports whether an address may be a remote: it must name a host or a path on this host, and must
/// not contain a password.
fn is_remote(address: &str) -> bool {
    let is_plain = |text: &str| !text.is_empty() && !text.starts_with(['/', '-', ':', '@']);
    let names_host = ["https://", "ssh://"]
        .iter()
        .any(|start| address.strip_prefix(start).is_some_and(is_plain));
    let is_short = is_plain(address)
        && address.split_once('@').is_some_and(|(user, rest)| {
            !user.contains(['/', ':'])
                && rest.split_once(':').is_some_and(|(host, _)| is_plain(host))
        });
    let is_path = address.strip_prefix("file:///").is_some_and(|path| !path.is_empty());
    !has_password(address) && (names_host || is_short || is_path)
}

/// Reports whether an address contains a password, either as `//USER:PASSWORD@HOST` or as
/// `password=`.
fn has_password(url: &str) -> bool {
    let authority = url.split_once("//").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    user.contains(':') || url.contains("password=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remotes_name_a_host_or_a_path() {
        for address in [
            "https://git.example/",
            "https://git.example/me/p.git",
            "ssh://git@git.example/me/",
            "git@git.example:",
            "git@git.example:me/p.git",
            "file:///srv/git/",
        ] {
            assert!(is_remote(address), "{address}");
        }
        for address in [
            "",
            "/",
            "https://",
            "https:///me/",
            "https://me:key@git.example/me/",
            "http://git.example/me/",
            "ext::sh -c true",
            "ssh://-oProxyCommand=true/",
            "-git@git.example:",
            "git@:me",
            "file:///",
            "../p.git",
        ] {
            assert!(!is_remote(address), "{address}");
        }
    }
}
