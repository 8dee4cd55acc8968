//! Gives the user advice before a host scheduler is set up, for each kind of scheduler and each
//! backend.

use std::collections::BTreeMap;

use runner_backends::BackendKind;
use runner_backends::credentials::in_keyring;

use crate::config;
use crate::doctor::timers;
use crate::env::Env;
use crate::project::LoadedProject;
use crate::setup::SchedulerKind;
use crate::setup::record::{DAEMON, HostTicks};

/// Returns the notes about a host scheduler.
pub(super) fn advice(
    kind: SchedulerKind,
    ticks: &HostTicks,
    lingering: Option<bool>,
) -> Vec<String> {
    let mut notes = Vec::new();
    match kind {
        SchedulerKind::Systemd => {
            let unit = if ticks.service { DAEMON } else { "runner-tick.service" };
            notes.push(format!("log: journalctl --user -u {unit}"));
            notes.push(match lingering {
                Some(true) => "your services keep running after you log out (linger is on, and stays on)".to_owned(),
                Some(false) => "your services stop when your last session ends, so setup runs `loginctl enable-linger`; --remove undoes this".to_owned(),
                None => "no logind here: the timer runs only while your systemd user manager runs".to_owned(),
            });
            notes.push("keep-awake: a lingering service without a session can often inhibit only idle sleep; each run reports the inhibition that it was granted".to_owned());
        }
        SchedulerKind::Cron => {
            notes.push("log: timer.log in the state folder; MAILTO and all other lines are left unchanged".to_owned());
            if !timers::cron_runs() {
                notes.push("no cron daemon seems to be running here: nothing starts until a cron daemon runs (service cron start)".to_owned());
            }
        }
        SchedulerKind::Launchd => notes.push(
            "launchd starts the tick at each of the given minutes, once after a sleep and at login, but only while you are logged in".to_owned(),
        ),
        SchedulerKind::TaskScheduler => notes.push(
            "runner does not register the task: read register-runner-tick.ps1, then run it in PowerShell; the task runs while you are logged in, even on battery power, and opens no window".to_owned(),
        ),
        SchedulerKind::Manual => notes.push(
            "no timer is set up on this machine: run `runner tick` every 15 minutes by other means, or keep `runner daemon` running".to_owned(),
        ),
    }
    notes.push("no host scheduler wakes a sleeping machine for a tick (`--wake` shows how to wake the machine); each job's catch_up determines how missed times are caught up".to_owned());
    notes
}

/// Describes how each backend gets its keys when the user is not logged in.
pub(super) fn credentials(
    home: &Env,
    here: Option<&LoadedProject>,
    kind: SchedulerKind,
    frozen: &BTreeMap<String, String>,
) -> Vec<String> {
    let config = match here {
        Some(here) => Some(here.config.clone()),
        None => config::load(&home.stack(None)).ok(),
    };
    let file = home.credentials_file();
    let mut lines = Vec::new();
    for (name, backend) in config.iter().flat_map(|config| &config.backends) {
        let named = backend.kind.env().unwrap_or_default().iter().map(String::as_str);
        let named = named.chain(backend.endpoint_key());
        let missing: Vec<&str> = named.filter(|name| !frozen.contains_key(*name)).collect();
        let own_file = backend.kind.env_file();
        lines.push(match (&backend.kind, missing.is_empty(), own_file) {
            _ if missing.iter().any(|name| in_keyring(name).is_some()) => format!(
                "{name}: the keyring may be locked at night; use a variable or a private file instead"
            ),
            (BackendKind::Agent(..) | BackendKind::Command(..), true, None) => format!(
                "{name}: its program keeps a login under HOME; a key in a login keychain is not available at night"
            ),
            (_, true, None) => format!("{name}: no key is needed"),
            (_, _, Some(file)) => format!("{name}: its keys are read from {}", file.display()),
            (_, false, None) => format!(
                "{name}: {} never saved by setup; write NAME=value lines to {} (chmod 600){}",
                missing.join(", ") + if missing.len() == 1 { " is" } else { " are" },
                file.display(),
                match kind {
                    SchedulerKind::Systemd => ", or use Environment= in a drop-in of runner-tick.service",
                    SchedulerKind::Launchd => ", or EnvironmentVariables in a separate plist",
                    _ => "",
                }
            ),
        });
    }
    lines
}
