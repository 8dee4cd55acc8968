//! Gives advice on waking a sleeping machine before a night: the command for each host.
//!
//! An alarm that wakes a machine affects all of its users and requires root on every host (a
//! capability for systemd's `WakeSystem=`, sudo for `pmset`), so `setup` prints the command and
//! never runs it. The alarm uses a separate timer, because the tick timer would wake the machine
//! every 15 minutes. This module is pure.

use jiff::civil::Time;
use jiff::{SignedDuration, ToSpan as _};

use super::SchedulerKind;

/// Time between waking the machine and the start of the night, so that disks and networks are
/// ready.
const BEFORE: SignedDuration = SignedDuration::from_mins(5);

/// Returns advice on waking the machine for a night that opens at `opens` in `zone`.
pub fn advice(kind: SchedulerKind, opens: Time, zone: &str) -> Vec<String> {
    let at = opens.wrapping_sub((BEFORE.as_mins()).minutes());
    let at = at.strftime("%H:%M:00");
    let command = match kind {
        SchedulerKind::Systemd | SchedulerKind::Cron => format!(
            "printf '[Timer]\\nOnCalendar=*-*-* {at} {zone}\\nWakeSystem=true\\n[Install]\\nWantedBy=timers.target\\n' | sudo tee /etc/systemd/system/runner-wake.timer && \
             printf '[Service]\\nType=oneshot\\nExecStart=/bin/true\\n' | sudo tee /etc/systemd/system/runner-wake.service && \
             sudo systemctl daemon-reload && sudo systemctl enable --now runner-wake.timer"
        ),
        SchedulerKind::Launchd => format!("sudo pmset repeat wakeorpoweron MTWRFSU {at}"),
        SchedulerKind::TaskScheduler => format!(
            "Register-ScheduledTask -TaskPath '\\runner\\' -TaskName 'wake' -Trigger (New-ScheduledTaskTrigger -Daily -At {at}) -Action (New-ScheduledTaskAction -Execute 'cmd.exe' -Argument '/c exit') -Settings (New-ScheduledTaskSettingsSet -WakeToRun)"
        ),
        SchedulerKind::Manual => {
            return vec![
                "waking: no host scheduler is used, so the machine is not woken".to_owned(),
            ];
        }
    };
    let undo = match kind {
        SchedulerKind::Launchd => "sudo pmset repeat cancel",
        SchedulerKind::TaskScheduler => {
            "Unregister-ScheduledTask -TaskPath '\\runner\\' -TaskName 'wake'"
        }
        _ => {
            "sudo systemctl disable --now runner-wake.timer && sudo rm /etc/systemd/system/runner-wake.timer /etc/systemd/system/runner-wake.service"
        }
    };
    let zoned = match kind {
        SchedulerKind::Launchd | SchedulerKind::TaskScheduler => {
            format!(
                " (the time is in {zone}, but the command interprets it in this machine's zone)"
            )
        }
        SchedulerKind::Cron => " (cron cannot wake a machine, so this needs systemd)".to_owned(),
        _ => String::new(),
    };
    vec![
        format!("waking needs root; run this yourself{zoned}: {command}"),
        format!("to undo it: {undo}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn wake_time_precedes_the_night() {
        let at = |hour, minute| {
            advice(SchedulerKind::Launchd, Time::constant(hour, minute, 0, 0), "UTC")
        };
        assert!(at(2, 30)[0].ends_with("MTWRFSU 02:25:00"));
        assert!(at(0, 3)[0].ends_with("MTWRFSU 23:58:00"));
    }

    #[test]
    fn advice_consists_of_valid_commands() {
        let night = Time::constant(2, 30, 0, 0);
        for kind in [SchedulerKind::Systemd, SchedulerKind::Cron, SchedulerKind::Launchd] {
            for line in advice(kind, night, "Europe/Berlin") {
                let command = line.rsplit_once(": ").map(|(_, command)| command).unwrap();
                let read = Command::new("sh").args(["-n", "-c", command]).status();
                assert!(read.unwrap().success(), "{command}");
            }
        }
        let systemd = advice(SchedulerKind::Systemd, night, "Europe/Berlin").join("\n");
        assert!(systemd.contains("OnCalendar=*-*-* 02:25:00 Europe/Berlin"));
        assert!(!systemd.contains("runner-tick"), "the advice names the tick timer");
        assert!(advice(SchedulerKind::TaskScheduler, night, "UTC")[0].contains("-WakeToRun"));
    }
}
