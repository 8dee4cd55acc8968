//! Starts a program directly in a control group.
//!
//! A process that moves into a group waits for a grace period of the kernel, which takes 10 to 20 ms.
//! A process that is created in the group (`CLONE_INTO_CGROUP`, Linux 5.7) waits for nothing, but the
//! standard library cannot do that.
//!
//! This is the only module with unsafe code. It must never copy the process while it has more than one
//! thread: only the calling thread is copied, so the locks of the others would stay locked in the
//! copy.

#![allow(unsafe_code)]

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, WaitOptions, waitpid};

/// Why a program was not started in a group.
#[derive(Debug)]
pub(super) enum CloneError {
    /// No process was created: this process has several threads, or the kernel, a system call filter
    /// or the group does not permit it.
    NotPermitted,
    /// The process was created, but it could not execute the program.
    Program(io::Error),
}

/// Starts a program in the control group whose folder is open as `group`, and returns the process
/// id. The caller must wait for the process.
///
/// # Errors
/// Returns an error if the program was not started. In that case, no process remains.
pub(super) fn start(command: &mut Command, group: BorrowedFd<'_>) -> Result<Pid, CloneError> {
    if !is_single_threaded() {
        return Err(CloneError::NotPermitted);
    }
    let (mut reader, mut writer) = io::pipe().map_err(|_| CloneError::NotPermitted)?;
    // SAFETY: no other thread exists, so the copy is consistent.
    let Some(child) = unsafe { copy_process(group) }? else {
        // The pipe is closed when the program is executed; this call returns only if it is not.
        let error = command.exec().raw_os_error().unwrap_or(libc::EINVAL);
        let _ = writer.write_all(&error.to_ne_bytes());
        // SAFETY: ends the copy without the clean-up that belongs to the original.
        unsafe { libc::_exit(127) }
    };
    drop(writer);
    let mut error = [0; 4];
    match reader.read_exact(&mut error) {
        // The end of the pipe.
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

/// The arguments of `clone3`, from `linux/sched.h`.
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

/// Copies this process into a group, as `fork` does. Returns the id of the copy in the original, and
/// `None` in the copy.
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
    match i32::try_from(pid) {
        Ok(0) => Ok(None),
        Ok(pid) => Pid::from_raw(pid).map(Some).ok_or(CloneError::NotPermitted),
        Err(_) => Err(CloneError::NotPermitted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_with_several_threads_is_not_copied() {
        // The test harness has at least two threads.
        let folder = fs::File::open("/").unwrap();
        let started = start(&mut Command::new("true"), std::os::fd::AsFd::as_fd(&folder));
        assert!(matches!(started, Err(CloneError::NotPermitted)), "{started:?}");
    }
}
