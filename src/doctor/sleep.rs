//! Checks that runs can keep this machine awake, by requesting an inhibitor and releasing it at
//! once.

use runner_engine::awake::{InhibitLevel, InhibitRequest, Inhibitor, InhibitorCommand};

use super::DoctorFinding;
use crate::env;

/// Returns a note if a run cannot keep the machine from sleeping.
pub fn findings() -> Option<DoctorFinding> {
    let command = InhibitorCommand::here();
    let mut inhibitor = Inhibitor::take(&InhibitRequest {
        means: command,
        program: command.and_then(|command| env::host_program(command.program())),
        env: env::named(["PATH", "DBUS_SYSTEM_BUS_ADDRESS"].into_iter()),
        what: "runner doctor checks whether runs can keep this machine awake".to_owned(),
    });
    let awake = inhibitor.standing();
    match awake.held {
        InhibitLevel::Sleep => None,
        _ => Some(DoctorFinding::note(
            "sleep",
            format!("runs here are {awake}; this does not matter on a machine that never sleeps"),
        )),
    }
}
