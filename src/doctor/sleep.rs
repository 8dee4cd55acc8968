//! Checks that runs can keep this machine awake, by requesting an inhibitor and releasing it at
//! once.

use runner_engine::awake::{InhibitLevel, InhibitRequest, Inhibitor, InhibitorCommand};

use super::DoctorFinding;
use crate::env;

/// Returns a note if a run cannot keep the machine from sleeping.
pub fn findings() -> Option<DoctorFinding> {
    let means = InhibitorCommand::here();
    let mut keeper = Inhibitor::take(&InhibitRequest {
        means,
        program: means.and_then(|means| env::host_program(means.program())),
        env: env::named(["PATH", "DBUS_SYSTEM_BUS_ADDRESS"].into_iter()),
        what: "runner doctor checks whether runs can keep this machine awake".to_owned(),
    });
    let awake = keeper.standing();
    match awake.held {
        InhibitLevel::Sleep => None,
        _ => Some(DoctorFinding::note(
            "sleep",
            format!("runs here are {awake}; this does not matter on a machine that never sleeps"),
        )),
    }
}
