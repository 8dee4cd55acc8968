//! Starts a program directly in a control group.
//!
//! A process that moves into a group waits for a kernel grace period, which takes 10 to 20 ms. A
//! process that is created in the group (`CLONE_INTO_CGROUP`, Linux 5.7) does not have to wait, but
//! the standard library cannot create a process that way.
//!
//! This is the only module with unsafe code. It must never copy a process that has more than one
//! thread: only the calling thread is copied, so locks held by other threads would remain locked
//! in the copy.

#![allow(unsafe_code)]

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use rustix::process::{Pid, WaitOptions, waitpid};

/// The reason why a program was not started in a group.
#[derive(Debug)]
pub(super) enum CloneError {
    /// This process has several threads, or the kernel, a system call filter or the group does not
    /// permit the call. No process was created.
    NotPermitted,
    /// The pipe or the process could not be created, or the program could not be executed.
    Program(io::Error),
}

/// Starts a program in the control group whose folder is open as `group`, and returns the process
/// id. The caller must wait for the process.
///
/// # Errors
/// Returns an error if no process was created or the program could not be executed. In that case,
/// no process remains.
pub(super) fn start(command: &mut Command, group: BorrowedFd<'_>) -> Result<Pid, CloneError> {
    if !is_single_threaded() {
        return Err(CloneError::NotPermitted);
    }
    let (mut reader, mut writer) = io::pipe().map_err(CloneError::Program)?;
    // SAFETY: no other thread exists, so the copy is consistent.
    let Some(child) = unsafe { copy_process(group) }? else {
        // The pipe is closed when the program is executed, and `exec` returns only on failure. A
        // panic must not unwind into the copied stack frames of the callers.
        let error = catch_unwind(AssertUnwindSafe(|| command.exec()));
        let error = error.ok().and_then(|error| error.raw_os_error()).unwrap_or(libc::EINVAL);
        let _ = writer.write_all(&error.to_ne_bytes());
        // SAFETY: the call only terminates the copy. It skips the clean-up, which only the original
        // may perform.
        unsafe { libc::_exit(127) }
    };
    drop(writer);
    let mut error = [0; 4];
    match reader.read_exact(&mut error) {
        // The pipe was closed, because the program was executed or the copy was killed.
        Err(_) => Ok(child),
        Ok(()) => {
            let _ = waitpid(Some(child), WaitOptions::empty());
            Err(CloneError::Program(io::Error::from_raw_os_error(i32::from_ne_bytes(error))))
        }
    }
}

fn is_single_threaded() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// The arguments to `clone3`, from `linux/sched.h`.
#[derive(Default)]
#[repr(C)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Copies this process into a group, as `fork` does. Returns the id of the copy to the original,
/// and `None` to the copy.
///
/// # Safety
/// The process must have only one thread.
unsafe fn copy_process(group: BorrowedFd<'_>) -> Result<Option<Pid>, CloneError> {
    /// From `linux/sched.h`.
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let args = CloneArgs {
        flags: CLONE_INTO_CGROUP,
        exit_signal: libc::SIGCHLD.unsigned_abs().into(),
        cgroup: group.as_raw_fd().unsigned_abs().into(),
        ..CloneArgs::default()
    };
    // SAFETY: the kernel only reads the arguments, which have the layout and the size that it
    // expects. Without `CLONE_VM`, the copy has its own memory, and continues on its own stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    let error = io::Error::last_os_error();
    match i32::try_from(pid) {
        Ok(0) => Ok(None),
        Ok(pid @ 1..) => Ok(Pid::from_raw(pid)),
        _ if [Some(libc::EAGAIN), Some(libc::ENOMEM)].contains(&error.raw_os_error()) => {
            Err(CloneError::Program(error))
        }
        _ => Err(CloneError::NotPermitted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_folder_is_refused() {
        let folder = fs::File::open("/").unwrap();
        // SAFETY: the kernel refuses the folder before it creates a process.
        let copied = unsafe { copy_process(std::os::fd::AsFd::as_fd(&folder)) };
        assert!(matches!(copied, Err(CloneError::NotPermitted)), "{copied:?}");
    }

    #[test]
    fn multithreaded_process_is_not_copied() {
        // The test harness has at least two threads.
        let folder = fs::File::open("/").unwrap();
        let started = start(&mut Command::new("true"), std::os::fd::AsFd::as_fd(&folder));
        assert!(matches!(started, Err(CloneError::NotPermitted)), "{started:?}");
    }
}
