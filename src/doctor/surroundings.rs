//! The machine and the user: program, home, clock, zones, room on disks, walls.

use std::path::Path;

use jiff::tz::TimeZone;
use rustix::fs::{Access, access, statvfs};

use super::{Finding, walls, word};
use crate::filesystem;
use crate::home::{self, Home};

/// Less room than this is told; a run is held back by its own floor.
const ROOM: u64 = 512 << 20;

/// What is wrong with them.
pub fn findings(home: &Home) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(program(home));
    found.extend(person(home));
    found.extend(time(home));
    found.extend(room(home));
    found.extend(walls::findings());
    found
}

fn program(home: &Home) -> Vec<Finding> {
    match home.program() {
        Err(failure) => vec![Finding::failure("program", &failure)],
        Ok(path) if path.to_string_lossy().ends_with(" (deleted)") => vec![
            Finding::error(
                "program",
                "the file of this program was replaced or removed; call the new one",
            )
            .mend("runner doctor"),
        ],
        Ok(path) if path.components().any(|part| part.as_os_str() == "target") => vec![
            Finding::note(
                path.display().to_string(),
                "lies in a build folder: a clean build takes it from the timer",
            )
            .mend("cargo install --path ."),
        ],
        Ok(_) => Vec::new(),
    }
}

fn person(home: &Home) -> Vec<Finding> {
    let mut found = Vec::new();
    match home.folder() {
        Err(failure) => found.push(Finding::failure("HOME", &failure)),
        Ok(folder) if access(&folder, Access::READ_OK | Access::EXEC_OK).is_err() => found.push(
            Finding::error("HOME", format!("{} cannot be read", folder.display()))
                .mend(format!("chmod u+rx {}", word(&folder))),
        ),
        Ok(_) => {}
    }
    for name in ["USER", "PATH"] {
        if home::setting(name).is_none() {
            found.push(
                Finding::warning(
                    name,
                    "is not set, and agent programs look for it; a login shell has it",
                )
                .mend("runner setup --apply"),
            );
        }
    }
    found
}

fn time(home: &Home) -> Vec<Finding> {
    let mut found = Vec::new();
    match home.wall() {
        Err(failure) => found.push(Finding::failure("clock", &failure)),
        // No version of this program is older.
        Ok(now) if now.as_second() < 1_760_000_000 => found.push(
            Finding::error("clock", "it shows a time before this program was written")
                .mend("timedatectl set-ntp true"),
        ),
        Ok(_) => {}
    }
    if TimeZone::system().iana_name().is_none() {
        found.push(
            Finding::warning("zone", "this machine does not name its time zone, so its times are UTC; as root, with the place where you are:")
                .mend("ln -sf /usr/share/zoneinfo/Europe/Berlin /etc/localtime"),
        );
    }
    if !Path::new("/usr/share/zoneinfo").is_dir() {
        found.push(
            Finding::note(
                "zone",
                "no zone data on this machine; the program's own are used",
            )
            .mend("apt-get install tzdata"),
        );
    }
    found
}

fn room(home: &Home) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(kind) = filesystem::shared(&home.state) {
        found.push(
            Finding::error(
                home.state.display().to_string(),
                format!("lies on {kind}: its locks and its ledger hold only between processes of one machine"),
            )
            .mend("export XDG_STATE_HOME=/var/tmp/runner-state && runner setup --apply"),
        );
    }
    found.extend(room_at(&home.state));
    found
}

/// Whether a disk is nearly full, or cannot be written.
pub fn room_at(path: &Path) -> Option<Finding> {
    let there = path.ancestors().find(|path| path.exists())?;
    let place = there.display().to_string();
    if access(there, Access::WRITE_OK).is_err() {
        return Some(
            Finding::error(&place, "cannot be written")
                .mend(format!("chmod u+rwx {}", word(there))),
        );
    }
    let data = statvfs(there).ok()?;
    let free = data.f_bavail.saturating_mul(data.f_frsize);
    (free < ROOM).then(|| {
        Finding::warning(&place, format!("only {} MB are free there", free >> 20))
            .mend("runner ledger prune")
    })
}
