//! What jobs are confined by here, and how that is known without trying it at every look.
//!
//! Trying takes a process with namespaces of its own, which is longer than a whole look at a thousand
//! projects may take. So a tick leaves what it found in the state folder, with what that depends on, and
//! tries again only when one of these is another one. Must never be believed beyond that: where they
//! differ, it is tried.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use runner_engine::files::{SMALL, read_host, read_text_proc, write_atomic};
use runner_engine::process::tree::boot_id;
use runner_engine::walls::{self, AtHand, Level, at_hand, bwrap};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::Finding;
use crate::home::Home;

/// What forbids users to make namespaces, where a kernel has it.
const SWITCHES: [&str; 3] = [
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
];

/// What mends it.
const BUBBLEWRAP: &str = "apt-get install bubblewrap";

#[derive(Serialize, Deserialize)]
struct Note {
    depends_on: String,
    found: AtHand,
}

fn depends_on() -> String {
    let program = bwrap::find().and_then(|path| fs::metadata(path).ok());
    let program = program.map_or_else(String::new, |data| {
        let changed = (data.ctime(), data.ctime_nsec());
        format!("{}.{}.{changed:?}", data.dev(), data.ino())
    });
    let switches = SWITCHES.map(|path| read_text_proc(path).unwrap_or_default());
    let switches = switches.each_ref().map(|text| text.trim());
    format!(
        "{} {} {program} {}",
        boot_id().unwrap_or_default(),
        geteuid().as_raw(),
        switches.join(" ")
    )
}

fn noted(home: &Home) -> Option<AtHand> {
    let note: Note = serde_json::from_slice(&read_host(home.walls_note(), SMALL).ok()?).ok()?;
    (note.depends_on == depends_on()).then_some(note.found)
}

/// Leaves what is at hand for those who only look. What cannot be written is tried by them.
pub fn note(home: &Home) {
    if noted(home).is_some() {
        return;
    }
    let note = Note {
        depends_on: depends_on(),
        // A daemon may have found something else long ago.
        found: walls::look(),
    };
    let text = serde_json::to_string(&note).expect("a note has string keys only");
    let _said_by_other_writes = write_atomic(&home.walls_note(), text.as_bytes(), 0o600);
}

/// What walls would be made of here, in a few words.
///
/// # Errors
/// There is nothing, with what mends it.
pub fn in_words() -> Result<String, String> {
    words(at_hand())
}

/// The same for one who looks at everything: as it was noted, where that still holds.
///
/// # Errors
/// There is nothing, with what mends it.
pub fn at_a_look(home: &Home) -> Result<String, String> {
    noted(home).map_or_else(in_words, |found| words(&found))
}

fn words(found: &AtHand) -> Result<String, String> {
    let parts = found.parts.join(", ");
    match (&found.level, &found.refused) {
        (Some(level), None) => Ok(format!("{level} ({parts})")),
        (Some(level), Some(why)) => Ok(format!(
            "{level} ({parts}; bubblewrap does not work: {why})"
        )),
        (None, None) => Err(format!(
            "neither bubblewrap nor a kernel with Landlock is here, so no job's program is started; {BUBBLEWRAP}"
        )),
        (None, Some(why)) => Err(format!(
            "bubblewrap does not work here ({why}), and the kernel has no Landlock, so no job's program is started; {}",
            allow(&switched_off())
        )),
    }
}

/// Whether the kernel can confine what jobs start.
pub(super) fn findings() -> Vec<Finding> {
    findings_of(at_hand(), &switched_off())
}

fn findings_of(found: &AtHand, off: &[&str]) -> Vec<Finding> {
    let open = "walls are files-only, and docs/guide/walls.md says what that leaves open";
    match (&found.level, &found.refused) {
        (Some(Level::FilesOnly), None) => vec![
            Finding::note("walls", format!("bubblewrap is not installed: {open}"))
                .mend(BUBBLEWRAP),
        ],
        (Some(_), Some(why)) => vec![
            Finding::warning(
                "walls",
                format!("bubblewrap is installed and does not work here ({why}): {open}"),
            )
            .mend(allow(off)),
        ],
        (Some(_), None) => Vec::new(),
        (None, Some(why)) => vec![
            Finding::warning(
                "walls",
                format!(
                    "bubblewrap does not work here ({why}) and there is no Landlock, so jobs cannot be confined and are refused"
                ),
            )
            .mend(allow(off)),
        ],
        (None, None) => vec![
            Finding::warning(
                "walls",
                "neither Landlock nor bubblewrap is here, so jobs cannot be confined and are refused",
            )
            .mend(BUBBLEWRAP),
        ],
    }
}

/// The switches that stand against namespaces.
fn switched_off() -> Vec<&'static str> {
    let forbids = |path: &&str| {
        let value = read_text_proc(path).unwrap_or_default();
        match path.contains("restrict") {
            true => value.trim() == "1",
            false => value.trim() == "0",
        }
    };
    SWITCHES.into_iter().filter(forbids).collect()
}

/// The command that lets it work.
fn allow(off: &[&str]) -> String {
    let settings = off.iter().map(|path| {
        let name = path.trim_start_matches("/proc/sys/").replace('/', ".");
        let value = match name.as_str() {
            name if name.contains("restrict") => "0",
            "user.max_user_namespaces" => "15000",
            _ => "1",
        };
        format!("sysctl -w {name}={value}")
    });
    let settings: Vec<String> = settings.collect();
    match settings.as_slice() {
        // A container forbids it from outside, and only what it says itself tells more.
        [] => "bwrap --ro-bind / / --unshare-pid --proc /proc /bin/true".to_owned(),
        settings => settings.join(" && "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_there_and_does_not_work_is_not_promised() {
        let forbidden = AtHand {
            level: Some(Level::FilesOnly),
            parts: vec!["landlock".to_owned()],
            refused: Some("bwrap: no permissions".to_owned()),
        };
        assert_eq!(
            words(&forbidden).unwrap(),
            "files-only (landlock; bubblewrap does not work: bwrap: no permissions)"
        );
        let found = findings_of(&forbidden, &[SWITCHES[1]]);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("no permissions"), "{found:?}");
        let mend = found[0].mend.as_deref().unwrap();
        assert_eq!(mend, "sysctl -w kernel.unprivileged_userns_clone=1");
        assert_eq!(
            allow(&[SWITCHES[0], SWITCHES[2]]),
            "sysctl -w user.max_user_namespaces=15000 && sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        );
        let nothing = AtHand {
            level: None,
            parts: Vec::new(),
            ..forbidden.clone()
        };
        assert!(words(&nothing).unwrap_err().contains("no permissions"));
        assert_eq!(findings_of(&nothing, &[]).len(), 1);
        let full = AtHand {
            level: Some(Level::Full),
            refused: None,
            ..forbidden
        };
        assert_eq!(findings_of(&full, &[]).len(), 0);
    }
}
