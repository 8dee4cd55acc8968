//! Finds the sandbox available for jobs on this host, without probing each time the status is
//! shown.
//!
//! A probe starts a process with its own namespaces, which takes longer than the time limit for
//! showing the status of a thousand projects. A tick therefore stores the result in the state
//! folder, with the facts that it depends on, and probes again only when one of them has changed. A
//! stored result must never be used if the facts differ: in that case the host is probed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use runner_engine::files::{SMALL, read_host, read_text_proc, write_atomic};
use runner_engine::process::tree::boot_id;
use runner_engine::sandbox::{self, Available, SandboxLevel, available, bwrap};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::DoctorFinding;
use crate::env::Env;

/// A kernel switch that can forbid users from creating namespaces.
#[derive(Clone, Copy)]
struct Switch {
    path: &'static str,
    /// The value that forbids namespaces.
    forbids: &'static str,
    /// A value that allows namespaces.
    allows: &'static str,
}

/// The switches; a kernel may lack any of them.
const SWITCHES: [Switch; 3] = [
    Switch { path: "/proc/sys/user/max_user_namespaces", forbids: "0", allows: "15000" },
    Switch { path: "/proc/sys/kernel/unprivileged_userns_clone", forbids: "0", allows: "1" },
    Switch {
        path: "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        forbids: "1",
        allows: "0",
    },
];

/// The command that installs bubblewrap.
const BUBBLEWRAP: &str = "apt-get install bubblewrap";

#[derive(Serialize, Deserialize)]
struct ProbeNote {
    depends_on: String,
    found: Available,
}

fn depends_on() -> String {
    let program = bwrap::find().and_then(|path| fs::metadata(path).ok());
    let program = program.map_or_else(String::new, |data| {
        let changed = (data.ctime(), data.ctime_nsec());
        format!("{}.{}.{changed:?}", data.dev(), data.ino())
    });
    let switches = SWITCHES.map(|switch| read_text_proc(switch.path).unwrap_or_default());
    let switches = switches.each_ref().map(|text| text.trim());
    format!(
        "{} {} {program} {}",
        boot_id().unwrap_or_default(),
        geteuid().as_raw(),
        switches.join(" ")
    )
}

fn noted(home: &Env) -> Option<Available> {
    let note: ProbeNote =
        serde_json::from_slice(&read_host(home.sandbox_note(), SMALL).ok()?).ok()?;
    (note.depends_on == depends_on()).then_some(note.found)
}

/// Probes the sandbox and stores the result for later readers, unless the stored result is still
/// valid. If the file cannot be written, each reader runs its own probe.
pub fn note(home: &Env) {
    if noted(home).is_some() {
        return;
    }
    let note = ProbeNote {
        depends_on: depends_on(),
        // The result cached in this process is not used, because it may be out of date in a daemon.
        found: sandbox::probe_now(),
    };
    let text = serde_json::to_string(&note).expect("a note has string keys only");
    let _not_stored = write_atomic(&home.sandbox_note(), text.as_bytes(), 0o600);
}

/// Describes the sandbox that is available on this host.
///
/// # Errors
/// Returns an error with the fix if no sandbox is available.
pub fn describe() -> Result<String, String> {
    describe_available(available())
}

/// Describes the available sandbox like [`describe`], but uses the stored result if it is still
/// valid.
///
/// # Errors
/// Returns an error with the fix if no sandbox is available.
pub fn describe_cached(home: &Env) -> Result<String, String> {
    noted(home).map_or_else(describe, |found| describe_available(&found))
}

fn describe_available(found: &Available) -> Result<String, String> {
    let parts = found.parts.join(", ");
    match (&found.level, &found.refused) {
        (Some(level), None) => Ok(format!("{level} ({parts})")),
        (Some(level), Some(why)) => {
            Ok(format!("{level} ({parts}; bubblewrap does not work: {why})"))
        }
        (None, None) => Err(format!(
            "neither bubblewrap nor a kernel with Landlock is available here, so no job's program is started; {BUBBLEWRAP}"
        )),
        (None, Some(why)) => Err(format!(
            "bubblewrap does not work here ({why}), and the kernel has no Landlock, so no job's program is started; {}",
            allow(&switched_off())
        )),
    }
}

/// Checks that the kernel can sandbox jobs' programs.
pub(super) fn findings() -> Vec<DoctorFinding> {
    findings_of(available(), &switched_off())
}

fn findings_of(found: &Available, off: &[Switch]) -> Vec<DoctorFinding> {
    let open =
        "the sandbox is files-only; docs/guide/sandbox.md describes what that does not cover";
    match (&found.level, &found.refused) {
        (Some(SandboxLevel::FilesOnly), None) => vec![
            DoctorFinding::note("sandbox", format!("bubblewrap is not installed: {open}"))
                .hint(BUBBLEWRAP),
        ],
        (Some(_), Some(why)) => vec![
            DoctorFinding::warning(
                "sandbox",
                format!("bubblewrap is installed but does not work here ({why}): {open}"),
            )
            .hint(allow(off)),
        ],
        (Some(_), None) => Vec::new(),
        (None, Some(why)) => vec![
            DoctorFinding::warning(
                "sandbox",
                format!(
                    "bubblewrap does not work here ({why}) and there is no Landlock, so jobs cannot be sandboxed and are refused"
                ),
            )
            .hint(allow(off)),
        ],
        (None, None) => vec![
            DoctorFinding::warning(
                "sandbox",
                "neither Landlock nor bubblewrap is available here, so jobs cannot be sandboxed and are refused",
            )
            .hint(BUBBLEWRAP),
        ],
    }
}

/// Returns the switches that forbid namespaces.
fn switched_off() -> Vec<Switch> {
    let forbids = |switch: &Switch| {
        read_text_proc(switch.path).is_ok_and(|value| value.trim() == switch.forbids)
    };
    SWITCHES.into_iter().filter(forbids).collect()
}

/// Returns the command that allows bubblewrap to work, or one that shows its error if no switch
/// forbids namespaces.
fn allow(off: &[Switch]) -> String {
    let settings = off.iter().map(|switch| {
        let name = switch.path.trim_start_matches("/proc/sys/").replace('/', ".");
        format!("sysctl -w {name}={}", switch.allows)
    });
    let settings: Vec<String> = settings.collect();
    match settings.as_slice() {
        // The restriction comes from outside, such as a container, and only bubblewrap's own error
        // describes it.
        [] => "bwrap --ro-bind / / --unshare-pid --proc /proc /bin/true".to_owned(),
        settings => settings.join(" && "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_bubblewrap_is_reported() {
        let forbidden = Available {
            level: Some(SandboxLevel::FilesOnly),
            parts: vec!["landlock".to_owned()],
            refused: Some("bwrap: no permissions".to_owned()),
        };
        assert_eq!(
            describe_available(&forbidden).unwrap(),
            "files-only (landlock; bubblewrap does not work: bwrap: no permissions)"
        );
        let found = findings_of(&forbidden, &[SWITCHES[1]]);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("no permissions"), "{found:?}");
        let hint = found[0].hint.as_deref().unwrap();
        assert_eq!(hint, "sysctl -w kernel.unprivileged_userns_clone=1");
        assert_eq!(
            allow(&[SWITCHES[0], SWITCHES[2]]),
            "sysctl -w user.max_user_namespaces=15000 && sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        );
        let nothing = Available { level: None, parts: Vec::new(), ..forbidden.clone() };
        assert!(describe_available(&nothing).unwrap_err().contains("no permissions"));
        assert_eq!(findings_of(&nothing, &[]).len(), 1);
        let full = Available { level: Some(SandboxLevel::Full), refused: None, ..forbidden };
        assert_eq!(findings_of(&full, &[]).len(), 0);
    }
}
