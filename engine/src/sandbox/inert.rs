//! Starts a trusted program that reads a project and cannot start any other program.
//!
//! Git reads configuration and attributes that anyone with write access to the project may have
//! written. Many of these settings name a program to run: filters, pagers, monitors, helpers and
//! signers. A list of settings to override would never be complete, so the kernel enforces the
//! restrictions instead. Landlock allows only git and its loader to be executed, and allows writes
//! only beneath the folders in [`Inert::write`]. A system call filter refuses new processes and
//! sockets. If the kernel does not support Landlock, only the filter applies.
//!
//! This module must never start a job's program, which only the launcher may start. It must never
//! fall back to an unrestricted start: a restriction that fails is an error.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::thread::set_no_new_privs;

use super::{SandboxError, landlock, syscalls};
use crate::files::open_host;

/// The permissions of an inert program in addition to reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inert {
    /// Folders beneath which the program may write. The list is empty for a program that only
    /// reads.
    pub write: Vec<PathBuf>,
}

/// Starts `command` from a restricted thread. `program` is the absolute path of its program.
///
/// A child inherits the restrictions of the thread that starts it. This thread exits immediately
/// after starting the child.
///
/// # Errors
/// Returns an error if the kernel refuses to restrict the thread or to start the program.
pub(crate) fn spawn(command: &mut Command, program: &Path, inert: &Inert) -> io::Result<Child> {
    let start = || {
        restrict(program, inert).map_err(io::Error::other)?;
        command.spawn()
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(start);
        thread.join().unwrap_or_else(|_| {
            Err(io::Error::other("the thread that starts the program panicked"))
        })
    })
}

/// Restricts this thread permanently.
fn restrict(program: &Path, inert: &Inert) -> Result<(), SandboxError> {
    set_no_new_privs(true)
        .map_err(|error| SandboxError::Kernel(format!("cannot disable new privileges: {error}")))?;
    if landlock::is_there() {
        landlock::restrict_to(&executables(program), &inert.write)?;
    }
    syscalls::refuse(syscalls::SyscallRules { network: false, sockets: false, processes: false })
}

/// Returns the files that the kernel opens to start `program`. The list is empty if `program` is
/// not a 64-bit ELF file but, for example, a script, whose interpreter may need other files.
/// Landlock then does not restrict which files can be executed, and only the system call filter
/// refuses new processes.
fn executables(program: &Path) -> Vec<PathBuf> {
    let Ok(real) = fs::canonicalize(program) else {
        return Vec::new();
    };
    match loader(&real) {
        Ok(Some(loader)) => vec![real, loader],
        Ok(None) => vec![real],
        Err(_) => Vec::new(),
    }
}

/// Returns the loader named by a 64-bit ELF file, or `None` if the file is statically linked.
///
/// # Errors
/// Returns an error if the file is not a 64-bit ELF file or cannot be read.
fn loader(program: &Path) -> io::Result<Option<PathBuf>> {
    // Linkers write the headers and the loader's name near the beginning of the file.
    let mut head = Vec::new();
    open_host(program)?.take(64 * 1024).read_to_end(&mut head)?;
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return Err(bad());
    }
    let number = |at: usize, bytes: usize| -> io::Result<usize> {
        let field = head.get(at..at + bytes).ok_or_else(bad)?;
        let number = field.iter().rev().fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
        usize::try_from(number).map_err(|_| bad())
    };
    let (table, entry, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for at in (0..count).map(|index| table + index * entry) {
        const INTERPRETER: usize = 3;
        if number(at, 4)? == INTERPRETER {
            let (from, length) = (number(at + 8, 8)?, number(at + 32, 8)?);
            let name = head.get(from..from + length).ok_or_else(bad)?;
            let name = std::str::from_utf8(name.strip_suffix(b"\0").unwrap_or(name));
            let path = fs::canonicalize(name.map_err(|_| bad())?)?;
            return Ok(Some(path));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn output(program: &str, args: &[&str], inert: &Inert) -> (Option<i32>, String) {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir("/")
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = spawn(&mut command, Path::new(program), inert).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    }

    #[test]
    fn inert_program_writes_only_allowed_folders() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "content").unwrap();
        let file = file.to_str().unwrap();
        let nothing = Inert::default();
        assert_eq!(output("/bin/cat", &[file], &nothing), (Some(0), "content".into()));
        let (code, text) = output("/bin/sh", &["-c", "/bin/true"], &nothing);
        assert_ne!(code, Some(0), "another program was started: {text}");
        let (code, text) = output("/bin/sh", &["-c", "exec /bin/cat /dev/null"], &nothing);
        assert!(
            !landlock::is_there() || code != Some(0),
            "the process became another program: {text}"
        );
        let beside = folder.path().join("beside");
        let (code, _) = output("/usr/bin/touch", &[beside.to_str().unwrap()], &nothing);
        assert!(!landlock::is_there() || (code != Some(0) && !beside.exists()));
        let write = Inert { write: vec![folder.path().to_owned()] };
        let (code, text) = output("/usr/bin/touch", &[beside.to_str().unwrap()], &write);
        assert_eq!(code, Some(0), "{text}");
    }

    #[test]
    fn program_loader_is_found() {
        let found = loader(&fs::canonicalize("/bin/cat").unwrap()).unwrap();
        assert!(found.is_some_and(|path| path.is_absolute()));
        assert!(loader(Path::new("/etc/passwd")).is_err());
    }
}
