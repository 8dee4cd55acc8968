//! The addresses of Unix sockets in the state folder.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

/// Returns an address for a socket in the state folder. The length of a Unix socket address is
/// limited, so the address goes through an open descriptor of the state folder. The descriptor must
/// stay open while the address is used.
///
/// # Errors
/// Returns an error if the folder cannot be opened.
pub fn socket_address(state: &Path, name: &str) -> io::Result<(OwnedFd, PathBuf)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(state, flags, Mode::empty())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()));
    Ok((folder, path))
}
