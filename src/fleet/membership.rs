//! The fleets that this host has joined, with one file per fleet in the state folder.

use std::fs;

use jiff::{SignedDuration, Timestamp};
use runner_engine::files::{SMALL, read_text_host, write_atomic};
use runner_engine::ids::OccurrenceId;
use runner_engine::process_id::ProcessIdentity;
use runner_fleet::{HostInfo, Postgres};
use serde::{Deserialize, Serialize};

use crate::config::{self, Fleet};
use crate::env::{self, Env};
use crate::ui::Failure;

/// A fleet that this host has joined.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Membership {
    /// The fleet's name in the user's configuration.
    pub fleet: String,
    /// The machine name and a ULID, which together identify this state folder, even after a
    /// restart.
    pub host: String,
    /// The worker name under which the host last joined: the host's name and the id of its boot.
    pub worker: String,
    /// Whether the host is finishing its runs and accepts no new ones.
    pub draining: bool,
}

impl Membership {
    /// Returns a new membership for this host.
    pub fn new(fleet: &str, now: Timestamp) -> Self {
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = format!("{machine}.{}", OccurrenceId::new(now));
        Self { fleet: fleet.to_owned(), worker: worker(&host), host, draining: false }
    }

    /// Returns all memberships, ordered by name.
    pub fn all(home: &Env) -> Result<Vec<Self>, Failure> {
        let folder = super::folder(home);
        let Ok(entries) = fs::read_dir(&folder) else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|kind| kind != "json") {
                continue;
            }
            let text =
                read_text_host(&path, SMALL).map_err(|error| Failure::unreadable(&path, error))?;
            all.push(serde_json::from_str(&text).map_err(|error| {
                Failure::data(format!("{}: {error}", path.display())).hint("runner fleet join NAME")
            })?);
        }
        all.sort_by(|a: &Self, b| a.fleet.cmp(&b.fleet));
        Ok(all)
    }

    /// Returns the membership in a fleet, if there is one.
    pub fn of(home: &Env, fleet: &str) -> Result<Option<Self>, Failure> {
        Ok(Self::all(home)?.into_iter().find(|one| one.fleet == fleet))
    }

    /// Writes the membership to its file.
    pub fn save(&self, home: &Env) -> Result<(), Failure> {
        let folder = super::folder(home);
        home.make_state()?;
        fs::create_dir_all(&folder).map_err(|error| Failure::not_made(&folder, error))?;
        let path = folder.join(format!("{}.json", self.fleet));
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Failure::internal(error.to_string()))?;
        write_atomic(&path, text.as_bytes(), 0o600)
            .map_err(|error| Failure::cannot_write(error.to_string()))
    }

    /// Removes the membership's file.
    pub fn remove(&self, home: &Env) -> Result<(), Failure> {
        let path = super::folder(home).join(format!("{}.json", self.fleet));
        fs::remove_file(&path).map_err(|error| Failure::not_written(&path, error))
    }

    /// Returns the worker for the current boot.
    pub fn worker_now(&self) -> String {
        worker(&self.host)
    }

    /// Returns the host's row for the fleet's database.
    pub fn info(&self, settings: &Fleet) -> HostInfo {
        HostInfo {
            host: self.host.clone(),
            worker: self.worker.clone(),
            tags: settings.tags.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

fn worker(host: &str) -> String {
    format!("{host}.{}", ProcessIdentity::me().boot)
}

/// Returns the settings of a fleet from the user's configuration, if there are any.
pub fn settings_if_any(home: &Env, fleet: &str) -> Result<Option<Fleet>, Failure> {
    Ok(config::load(&home.stack(None))?.fleets.get(fleet).cloned())
}

/// Returns the settings of a fleet from the user's configuration.
pub fn settings(home: &Env, fleet: &str) -> Result<Fleet, Failure> {
    settings_if_any(home, fleet)?.ok_or_else(|| {
        Failure::configuration(format!("there is no [fleet.{fleet}] in your own config.toml"))
            .hint(format!("runner config set --user fleet.{fleet}.url postgresql://HOST/DATABASE"))
    })
}

/// Returns the fleet's database, without connecting to it.
pub fn database(settings: &Fleet) -> Result<Postgres, Failure> {
    let url = match settings.url.strip_prefix("env:") {
        Some(name) => {
            env::setting(name).and_then(|text| text.into_string().ok()).ok_or_else(|| {
                Failure::configuration(format!(
                    "the variable {name}, which must contain the fleet's address, is not set"
                ))
            })?
        }
        None => settings.url.clone(),
    };
    Postgres::at(&url).map_err(failure)
}

/// Removes occurrences settled more than `age` ago from all joined fleets, and returns any
/// problems.
pub fn prune(home: &Env, age: SignedDuration) -> Vec<String> {
    let members = match Membership::all(home) {
        Ok(members) => members,
        Err(problem) => return vec![format!("fleet: {problem}")],
    };
    let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX / 2);
    let one = |fleet: &str| {
        let mut database = database(&settings(home, fleet)?)?;
        database.check_format().and_then(|()| database.prune(age)).map_err(failure)
    };
    let mut troubles = Vec::new();
    for member in members {
        match one(&member.fleet) {
            Ok(pruned) => tracing::info!(fleet = member.fleet, ?pruned, "pruned"),
            Err(problem) => troubles.push(format!("pruning the fleet {}: {problem}", member.fleet)),
        }
    }
    troubles
}

/// Converts an error from the fleet's database to a failure with a hint.
pub fn failure(error: runner_fleet::FleetError) -> Failure {
    use runner_fleet::FleetError as E;
    let text = error.to_string();
    match error {
        E::Unreachable(_) => Failure::environment(text)
            .hint("start the server, or give its address: runner config set --user fleet.NAME.url ADDRESS"),
        E::NoFleet => Failure::environment(text).hint("runner fleet init NAME"),
        E::Format { .. } => {
            Failure::configuration(text).hint("install the newest version of runner")
        }
        E::Denied(_) => Failure::environment(text).hint("see \"Rights\" in docs/guide/fleet.md"),
        E::Address(_) => {
            Failure::configuration(text).hint("runner config set --user fleet.NAME.url ADDRESS")
        }
        E::NotJoined(_) => Failure::configuration(text).hint("runner fleet join NAME"),
        E::Stale(_) | E::Database(_) => Failure::internal(text),
    }
}
