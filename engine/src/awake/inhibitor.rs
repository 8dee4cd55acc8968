//! The process that holds the inhibition lock.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::inhibitor_command::{HELD, is_denied};
use super::{InhibitLevel, InhibitScope, InhibitorCommand, SleepInhibition};
use crate::process::wait::poll_within;
use crate::time::boot_time;

/// Maximum wait for the lock. logind normally grants it immediately, but a hung bus must not delay
/// the run.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that the program has to exit after its input is closed. The program is then killed.
const GRACE: Duration = Duration::from_secs(2);
/// Number of bytes after which the program's output or error output is not read any further.
const LONGEST_OUTPUT: u64 = 4_096;

/// A request to keep the machine awake.
#[derive(Clone, Debug)]
pub struct InhibitRequest {
    /// The command to use. `None` if this system has none.
    pub means: Option<InhibitorCommand>,
    /// The command's path. `None` if the command is not installed.
    pub program: Option<PathBuf>,
    /// The program's environment. It includes the address of the system bus if that differs from
    /// the default.
    pub env: BTreeMap<String, String>,
    /// The reason for the inhibition, as shown by `systemd-inhibit --list`.
    pub what: String,
}

/// A sleep inhibition that is held until this value is dropped.
#[derive(Debug)]
pub struct Inhibitor {
    awake: SleepInhibition,
    holder: Option<InhibitorProcess>,
}

impl Inhibitor {
    /// Requests the inhibition. If the request is denied, falls back to inhibiting idle sleep only.
    pub fn take(asked: &InhibitRequest) -> Self {
        let Some(means) = asked.means else {
            return Self::without("", "this system has no sleep inhibitor that runner supports");
        };
        let Some(program) = &asked.program else {
            let why = format!("{} was not found in PATH", means.program());
            return Self::without(means.name(), why);
        };
        let mut scope = InhibitScope::Sleep;
        let mut denied = String::new();
        loop {
            match InhibitorProcess::start(means, scope, program, asked) {
                Ok(holder) => {
                    let held = match scope {
                        InhibitScope::Sleep => InhibitLevel::Sleep,
                        InhibitScope::Idle => InhibitLevel::Idle,
                    };
                    return Self {
                        awake: SleepInhibition { held, by: means.name().to_owned(), why: denied },
                        holder: Some(holder),
                    };
                }
                Err(why) => match means.less(scope).filter(|_| is_denied(&why)) {
                    Some(less) => (scope, denied) = (less, why),
                    None => return Self::without(means.name(), why),
                },
            }
        }
    }

    fn without(by: &str, why: impl Into<String>) -> Self {
        Self {
            awake: SleepInhibition {
                held: InhibitLevel::Nothing,
                by: by.to_owned(),
                why: why.into(),
            },
            holder: None,
        }
    }

    /// Returns the current state of the inhibition.
    pub fn standing(&mut self) -> SleepInhibition {
        if let Some(holder) = &mut self.holder
            && let Some(why) = holder.gone()
        {
            self.holder = None;
            self.awake.held = InhibitLevel::ForAWhile;
            self.awake.why = why;
        }
        self.awake.clone()
    }
}

/// The child process that holds the lock. Dropping this value terminates the process.
#[derive(Debug)]
struct InhibitorProcess {
    means: InhibitorCommand,
    child: Child,
    /// The program's standard input. Closing it makes the program exit.
    stdin: Option<ChildStdin>,
}

impl InhibitorProcess {
    /// Starts the process. If the program reports that it holds the lock, waits for that report. On
    /// failure, returns the program's error output or another reason.
    fn start(
        means: InhibitorCommand,
        scope: InhibitScope,
        program: &std::path::Path,
        asked: &InhibitRequest,
    ) -> Result<Self, String> {
        let words = means.arguments(scope, &asked.what, std::process::id());
        let mut child = Command::new(program)
            .args(words)
            .env_clear()
            .envs(&asked.env)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mut holder = Self { means, stdin: child.stdin.take(), child };
        if !means.reports_hold() {
            return Ok(holder);
        }
        match holder.confirms_hold()? {
            true => Ok(holder),
            false => Err(holder.error_output()),
        }
    }

    /// Waits until the process reports that it holds the lock. Returns `false` if its output ends
    /// first or is too long. Returns an error after [`PATIENCE`].
    fn confirms_hold(&mut self) -> Result<bool, String> {
        let Some(mut stdout) = self.child.stdout.take() else {
            return Ok(false);
        };
        let until = boot_time() + PATIENCE;
        let mut said = Vec::new();
        let mut chunk = [0; 64];
        loop {
            let left = until.saturating_sub(boot_time());
            let mut fds = [PollFd::new(&stdout, PollFlags::IN)];
            poll_within(&mut fds, Some(left));
            if fds[0].revents().is_empty() {
                return Err(format!("no answer within {} seconds", PATIENCE.as_secs()));
            }
            match stdout.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return Ok(false),
                Ok(count) => said.extend_from_slice(&chunk[..count]),
            }
            if said.split(|byte| *byte == b'\n').any(|line| line == HELD.as_bytes()) {
                return Ok(true);
            }
            if said.len() as u64 > LONGEST_OUTPUT {
                return Ok(false);
            }
        }
    }

    /// Terminates the process and returns its error output as one line.
    fn error_output(&mut self) -> String {
        self.end();
        let mut said = String::new();
        // Another process may still hold the other end of the pipe, so the read must not block.
        if let Some(stderr) = self.child.stderr.take()
            && fcntl_setfl(&stderr, OFlags::NONBLOCK).is_ok()
        {
            let _as_much_as_is_there = stderr.take(LONGEST_OUTPUT).read_to_string(&mut said);
        }
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let said: String = said.chars().filter(|c| !c.is_control()).collect();
        match said.is_empty() {
            true => format!("{} ended without a message", self.means.program()),
            false => said,
        }
    }

    /// Returns why the lock is no longer held, or `None` if the process is still running.
    fn gone(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => {
                Some(format!("the process that held the inhibition has ended ({status})"))
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// Releases the lock and waits until the program has exited or has been killed.
    fn end(&mut self) {
        self.stdin = None;
        let pid = Pid::from_child(&self.child);
        // `caffeinate` ignores its input, so it is killed immediately.
        let ended = self.means.reports_hold()
            && pidfd_open(pid, PidfdFlags::empty()).is_ok_and(|pidfd| {
                let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
                poll_within(&mut fds, Some(GRACE));
                !fds[0].revents().is_empty()
            });
        if !ended {
            let _it_may_be_gone = self.child.kill();
        }
        let _reaped = self.child.wait();
    }
}

impl Drop for InhibitorProcess {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn asked(folder: &Path, means: InhibitorCommand, script: &str) -> InhibitRequest {
        let (program, text) = (folder.join(means.program()), folder.join("text"));
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        // The `install` process writes the program. If this process wrote it, another test's child
        // could inherit the descriptor, and a program that is open for writing cannot be executed.
        let mut install = std::process::Command::new("install");
        assert!(install.args(["-m", "755"]).arg(&text).arg(&program).status().unwrap().success());
        InhibitRequest {
            means: Some(means),
            program: Some(program),
            env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
            what: "a test".to_owned(),
        }
    }

    /// A script that skips the options and runs the command, as `systemd-inhibit` does. It then
    /// creates the file `over`.
    const INHIBITS: &str =
        "while [ \"${1#--}\" != \"$1\" ]; do shift; done; \"$@\"; echo over > over";

    #[test]
    fn inhibitor_is_held_until_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let over = folder.path().join("over");
        let script = format!("cd '{}'; {INHIBITS}", folder.path().display());
        let mut inhibitor =
            Inhibitor::take(&asked(folder.path(), InhibitorCommand::Logind, &script));
        assert_eq!(inhibitor.standing().to_string(), "kept awake by logind");
        assert!(!over.exists());
        drop(inhibitor);
        assert!(over.exists(), "the program exits before drop returns");
    }

    #[test]
    fn denied_request_falls_back_to_idle() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "cd '{}'; case \"$1\" in *sleep*) echo 'Failed to inhibit: Access denied' >&2; exit 1;; esac; {INHIBITS}",
            folder.path().display()
        );
        let mut inhibitor =
            Inhibitor::take(&asked(folder.path(), InhibitorCommand::Logind, &script));
        let standing = inhibitor.standing();
        assert_eq!(standing.held, InhibitLevel::Idle);
        assert!(standing.to_string().contains("Access denied"), "{standing}");
    }

    #[test]
    fn errors_quote_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let mut asked = asked(
            folder.path(),
            InhibitorCommand::Logind,
            "echo 'Failed to connect to bus: No such file' >&2; exit 1",
        );
        let mut inhibitor = Inhibitor::take(&asked);
        assert_eq!(
            inhibitor.standing().to_string(),
            "not kept awake: Failed to connect to bus: No such file"
        );
        // Another process keeps the error output open.
        let script = "exec 3>&1; (exec 1>&- 3>&-; exec tail -f /dev/null --pid=$PPID) & \
                      echo 'No permission' >&2; exit 1";
        let denied = self::asked(folder.path(), InhibitorCommand::Logind, script);
        let reported = Inhibitor::take(&denied).standing().to_string();
        assert!(reported.contains("No permission"), "{reported}");
        asked.program = None;
        let reported = Inhibitor::take(&asked).standing().to_string();
        assert_eq!(reported, "not kept awake: systemd-inhibit was not found in PATH");
        asked.means = None;
        assert_eq!(Inhibitor::take(&asked).standing().held, InhibitLevel::Nothing);
    }

    #[test]
    fn a_lost_lock_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo held; exec 1>&-; read -r _ < gate";
        let gate = folder.path().join("gate");
        let script = format!("cd '{}'; {script}", folder.path().display());
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &gate,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        let mut inhibitor =
            Inhibitor::take(&asked(folder.path(), InhibitorCommand::Logind, &script));
        assert_eq!(inhibitor.standing().held, InhibitLevel::Sleep);
        let pid = Pid::from_child(&inhibitor.holder.as_ref().unwrap().child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        fs::write(&gate, "go\n").unwrap();
        let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        poll_within(&mut fds, None);
        assert_eq!(inhibitor.standing().held, InhibitLevel::ForAWhile);
    }

    #[test]
    fn caffeinate_inhibits_while_running() {
        let folder = tempfile::tempdir().unwrap();
        // Like `caffeinate`, the program ignores its input.
        let script = "[ \"$1 $2 $3\" = '-i -s -w' ] && exec tail -f /dev/null --pid=\"$4\"";
        let mut inhibitor =
            Inhibitor::take(&asked(folder.path(), InhibitorCommand::Caffeinate, script));
        assert_eq!(inhibitor.standing().to_string(), "kept awake by caffeinate");
    }
}
