//! Whether runs could keep this machine awake: asked for, and let go of at once.

use runner_engine::awake::{Asked, Held, Keeper, Means};

use super::Finding;
use crate::home;

/// What would be got.
pub fn findings() -> Option<Finding> {
    let means = Means::here();
    let mut keeper = Keeper::take(&Asked {
        means,
        program: means.and_then(|means| home::host_program(means.program())),
        env: home::named(["PATH", "DBUS_SYSTEM_BUS_ADDRESS"].into_iter()),
        what: "runner doctor looks whether it could".to_owned(),
    });
    let awake = keeper.standing();
    match awake.held {
        Held::Sleep => None,
        _ => Some(Finding::note(
            "sleep",
            format!("runs here are {awake}; a machine that never sleeps needs nothing"),
        )),
    }
}
