//! The programs that inhibit sleep on this host, and their arguments.

/// The kind of sleep to inhibit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InhibitScope {
    /// Sleep for any reason: when idle and on request.
    Sleep,
    /// Only idle sleep. logind lets even users without a session inhibit it.
    Idle,
}

/// A host program that holds an inhibition lock while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InhibitorCommand {
    /// `systemd-inhibit`, the client of logind.
    Logind,
    /// `caffeinate` on macOS.
    Caffeinate,
}

/// The line that [`HOLDS`] prints. `systemd-inhibit` starts the script only once it has the lock.
pub(super) const HELD: &str = "held";
/// A script that prints [`HELD`], and exits when runner closes the pipe or dies.
const HOLDS: &str = "echo held; while read -r _; do :; done";

impl InhibitorCommand {
    /// Returns this system's command, if there is one.
    pub fn here() -> Option<Self> {
        if cfg!(target_os = "linux") {
            Some(Self::Logind)
        } else if cfg!(target_os = "macos") {
            Some(Self::Caffeinate)
        } else {
            None
        }
    }

    /// Returns the command's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Logind => "logind",
            Self::Caffeinate => "caffeinate",
        }
    }

    /// Returns the program's file name.
    pub fn program(self) -> &'static str {
        match self {
            Self::Logind => "systemd-inhibit",
            Self::Caffeinate => "caffeinate",
        }
    }

    /// Returns the program's arguments. logind reports `what` as the reason, and `caffeinate` waits
    /// for the process `pid`. None of the arguments keeps the screen on.
    pub fn arguments(self, scope: InhibitScope, what: &str, pid: u32) -> Vec<String> {
        let words = match self {
            Self::Logind => vec![
                match scope {
                    InhibitScope::Sleep => "--what=sleep:idle".to_owned(),
                    InhibitScope::Idle => "--what=idle".to_owned(),
                },
                "--mode=block".to_owned(),
                "--who=runner".to_owned(),
                format!("--why={what}"),
                // The path is absolute, because the user controls `PATH`.
                "/bin/sh".to_owned(),
                "-c".to_owned(),
                HOLDS.to_owned(),
            ],
            Self::Caffeinate => vec![
                // `-i` inhibits idle sleep. `-s` inhibits all sleep while the machine is on mains
                // power.
                "-i".to_owned(),
                "-s".to_owned(),
                "-w".to_owned(),
                pid.to_string(),
            ],
        };
        words.into_iter().map(|word| word.replace(char::is_control, " ")).collect()
    }

    /// Returns whether the program reports that the lock is held. `caffeinate` reports nothing and
    /// holds the lock while it runs.
    pub(super) fn reports_hold(self) -> bool {
        self == Self::Logind
    }

    /// Returns the scope to request if `scope` was denied, or `None` if there is no smaller scope.
    pub(super) fn less(self, scope: InhibitScope) -> Option<InhibitScope> {
        match (self, scope) {
            (Self::Logind, InhibitScope::Sleep) => Some(InhibitScope::Idle),
            _ => None,
        }
    }
}

/// Returns whether the program's error output reports that this user is not allowed to inhibit
/// sleep.
pub(super) fn is_denied(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    ["denied", "authentication", "not authorized", "not permitted"]
        .iter()
        .any(|word| said.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logind_arguments_never_include_the_screen() {
        let words = InhibitorCommand::Logind.arguments(InhibitScope::Sleep, "dream of a\nb", 7);
        assert_eq!(words[0], "--what=sleep:idle");
        assert!(words.contains(&"--mode=block".to_owned()));
        assert!(words.contains(&"--why=dream of a b".to_owned()), "{words:?}");
        assert_eq!(
            InhibitorCommand::Logind.arguments(InhibitScope::Idle, "x", 7)[0],
            "--what=idle"
        );
        assert_eq!(InhibitorCommand::Logind.less(InhibitScope::Sleep), Some(InhibitScope::Idle));
        assert_eq!(InhibitorCommand::Logind.less(InhibitScope::Idle), None);
    }

    #[test]
    fn caffeinate_arguments_wait_for_the_process() {
        let words = InhibitorCommand::Caffeinate.arguments(InhibitScope::Sleep, "dream", 4711);
        assert_eq!(words, ["-i", "-s", "-w", "4711"]);
        assert_eq!(InhibitorCommand::Caffeinate.less(InhibitScope::Sleep), None);
    }

    #[test]
    fn refusals_are_recognized() {
        assert!(is_denied("Failed to inhibit: Access denied"));
        assert!(is_denied("Failed to inhibit: Interactive authentication required."));
        assert!(!is_denied("Failed to connect to bus: No such file or directory"));
    }
}
