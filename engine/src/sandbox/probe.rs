//! Tests whether bubblewrap works on this host by running a trivial program in it.
//!
//! An installed bubblewrap may still fail: the kernel, a container or a security module may prevent
//! its user from creating namespaces. In that case, a run gets less protection than the installed
//! program promises. This module must never sandbox a job's program; it only starts programs for
//! the test.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::process::wait::poll_within;

/// Time limit for the probe, which normally takes milliseconds.
const LONGEST: Duration = Duration::from_secs(5);
/// Maximum number of bytes of bubblewrap's error output to include in a report.
const LONGEST_ERROR: u64 = 400;

/// Uses `bwrap` to run a no-op program in new namespaces.
///
/// # Errors
/// Returns why bubblewrap does not work: its error output, if any.
pub fn probe(bwrap: &Path) -> Result<(), String> {
    let mut command = Command::new(bwrap);
    command
        .args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"])
        .args(["--unshare-pid", "--unshare-ipc", "--die-with-parent"])
        .args(["--", "/bin/true"])
        .env_clear()
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
    if !over_in_time(&child) {
        let _it_may_just_have_ended = child.kill();
        let _it_was_killed = child.wait();
        return Err(format!("it did not end within {} s", LONGEST.as_secs()));
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(match stderr_text(&mut child) {
            said if said.is_empty() => format!("it ended with {status}"),
            said => said,
        }),
        Err(error) => Err(error.to_string()),
    }
}

fn over_in_time(child: &Child) -> bool {
    let Some(fd) = Pid::from_raw(child.id().cast_signed())
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
    else {
        // Without a pidfd, this function cannot wait with a time limit, so the caller waits without
        // a limit.
        return true;
    };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll_within(&mut fds, Some(LONGEST));
    !fds[0].revents().is_empty()
}

/// Returns the program's error output so far. It does not wait for another process that may still
/// hold the other end of the pipe.
fn stderr_text(child: &mut Child) -> String {
    let Some(stderr) = child.stderr.take() else {
        return String::new();
    };
    let mut said = Vec::new();
    if fcntl_setfl(&stderr, OFlags::NONBLOCK).is_ok() {
        let _as_much_as_is_there = stderr.take(LONGEST_ERROR).read_to_end(&mut said);
    }
    String::from_utf8_lossy(&said).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_broken_bubblewrap_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let fake = |name: &str, text: &str| {
            let path = folder.path().join(name);
            // Another process writes the file, because a program that this process has open for
            // writing cannot be started.
            let made = Command::new("/bin/sh")
                .args(["-c", r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod +x "$0""#])
                .arg(&path)
                .arg(text)
                .status();
            assert!(made.unwrap().success());
            path
        };
        let forbidden = fake(
            "forbidden",
            "echo 'bwrap: No permissions to create a new\n namespace' >&2; exit 1",
        );
        assert_eq!(
            probe(&forbidden).unwrap_err(),
            "bwrap: No permissions to create a new namespace"
        );
        let silent = probe(&fake("silent", "exit 3")).unwrap_err();
        assert!(silent.contains('3'), "{silent}");
        // The probe does not wait for a process that keeps the other end of the pipe open.
        let held = fake("held", r#"mkfifo "$0.fifo"; (read x < "$0.fifo") & echo no >&2; exit 1"#);
        assert_eq!(probe(&held).unwrap_err(), "no");
        fs::write(folder.path().join("held.fifo"), "end\n").unwrap();
        let none = probe(&folder.path().join("none")).unwrap_err();
        assert!(none.contains("cannot be started"), "{none}");
        // This fake starts the command given in its arguments, as the real bubblewrap does.
        let works = fake("works", r#"while [ "$1" != -- ]; do shift; done; shift; exec "$@""#);
        assert_eq!(probe(&works), Ok(()));
    }
}
