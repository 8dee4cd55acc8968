//! Checks the fleets that this host has joined.

use super::DoctorFinding;
use crate::config;
use crate::env::Env;
use crate::fleet::health;
use crate::fleet::membership::Membership;

pub fn findings(home: &Env) -> Vec<DoctorFinding> {
    let members = match Membership::all(home) {
        Ok(members) => members,
        Err(failure) => return vec![DoctorFinding::failure("fleet", &failure)],
    };
    if members.is_empty() {
        return Vec::new();
    }
    let fleets = match config::load(&home.stack(None)) {
        Ok(config) => config.fleets,
        // The checks of the projects report an invalid configuration.
        Err(_) => return Vec::new(),
    };
    let mut found = Vec::new();
    for member in members {
        let place = format!("fleet {}", member.fleet);
        let Some(settings) = fleets.get(&member.fleet) else {
            let hint = format!("runner config set --user fleet.{}.url ADDRESS", member.fleet);
            let what = "this host has joined the fleet, but it is not in the user's config.toml";
            found.push(DoctorFinding::error(place, what).hint(hint));
            continue;
        };
        match health::of(home, settings) {
            Ok(health) => {
                let hint = format!("runner fleet status {}", member.fleet);
                let of_problem =
                    |what: String| DoctorFinding::warning(&place, what).hint(hint.clone());
                found.extend(health.problems.into_iter().map(of_problem));
            }
            Err(failure) => found.push(DoctorFinding::failure(place, &failure)),
        }
    }
    found
}
