//! Checks the machine and the user: program, home folder, clock, time zones, disk space, sandbox.

use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use super::{DoctorFinding, sandbox};
use crate::env::{self, Env};
use crate::filesystem;
use runner_engine::zones;
use runner_text::shell_word;

/// Free space in bytes below which a disk is reported. Runs are subject to a separate limit.
const ROOM: u64 = 512 << 20;

pub fn findings(home: &Env) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    found.extend(program(home));
    found.extend(person(home));
    found.extend(time(home));
    found.extend(disk_space(home));
    found.extend(sandbox::findings());
    found
}

fn program(home: &Env) -> Vec<DoctorFinding> {
    match home.program() {
        Err(failure) => vec![DoctorFinding::failure("program", &failure)],
        Ok(path) if path.to_string_lossy().ends_with(" (deleted)") => vec![
            DoctorFinding::error(
                "program",
                "the file of this program was replaced or removed; run the new one",
            )
            .hint("runner doctor"),
        ],
        Ok(path) if path.components().any(|part| part.as_os_str() == "target") => vec![
            DoctorFinding::note(
                path.display().to_string(),
                "is in a build folder: after a clean build the timer no longer finds it",
            )
            .hint("cargo install --path ."),
        ],
        Ok(_) => Vec::new(),
    }
}

fn person(home: &Env) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    match home.folder() {
        Err(failure) => found.push(DoctorFinding::failure("HOME", &failure)),
        Ok(folder) if access(&folder, Access::READ_OK | Access::EXEC_OK).is_err() => found.push(
            DoctorFinding::error("HOME", format!("{} cannot be read", folder.display()))
                .hint(format!("chmod u+rx {}", shell_word(folder.display()))),
        ),
        Ok(_) => {}
    }
    let again = "runner setup --apply";
    for (name, fix) in
        [("USER", format!("export USER=$(id -un) && {again}")), ("PATH", again.into())]
    {
        if env::setting(name).is_none() {
            found.push(
                DoctorFinding::warning(
                    name,
                    "is not set, and agent programs need it; a login shell sets it",
                )
                .hint(fix),
            );
        }
    }
    found
}

fn time(home: &Env) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    match home.wall() {
        Err(failure) => found.push(DoctorFinding::failure("clock", &failure)),
        // No version of this program is older than this date.
        Ok(now) if now.as_second() < 1_760_000_000 => found.push(
            DoctorFinding::error("clock", "it shows a time before this program was written")
                .hint("timedatectl set-ntp true"),
        ),
        Ok(_) => {}
    }
    if zones::system().iana_name().is_none() {
        found.push(
            DoctorFinding::warning("zone", "this machine does not name its time zone, so its times are UTC; as root, with your own zone:")
                .hint("ln -sf /usr/share/zoneinfo/Europe/Berlin /etc/localtime"),
        );
    }
    if !Path::new("/usr/share/zoneinfo").is_dir() {
        found.push(
            DoctorFinding::note(
                "zone",
                "no time zone data on this machine; the program's own data is used",
            )
            .hint("apt-get install tzdata"),
        );
    }
    found
}

fn disk_space(home: &Env) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    if let Some(kind) = filesystem::shared(&home.state) {
        found.push(
            DoctorFinding::error(
                home.state.display().to_string(),
                format!("is on {kind}: its locks and its database work only between processes of one machine"),
            )
            .hint("export XDG_STATE_HOME=/var/tmp/runner-state && runner setup --apply"),
        );
    }
    found.extend(disk_at(&home.state));
    found
}

/// Checks that `path`, or its nearest existing ancestor, is writable, and that its disk has enough
/// free space.
pub fn disk_at(path: &Path) -> Option<DoctorFinding> {
    let there = path.ancestors().find(|path| path.exists())?;
    let place = there.display().to_string();
    if access(there, Access::WRITE_OK).is_err() {
        return Some(
            DoctorFinding::error(&place, "cannot be written")
                .hint(format!("chmod u+rwx {}", shell_word(there.display()))),
        );
    }
    let data = statvfs(there).ok()?;
    let free = data.f_bavail.saturating_mul(data.f_frsize);
    (free < ROOM).then(|| {
        DoctorFinding::warning(&place, format!("only {} MB is free there", free >> 20))
            .hint("runner db prune")
    })
}
