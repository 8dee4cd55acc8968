//! Creates a file system view in which a private git directory replaces the project's, for a child
//! without bubblewrap.
//!
//! The launch supervisor enters a separate mount namespace before it starts the program. Git then
//! finds the private directory at the usual path, and other repositories are not affected.
//! Variables such as `GIT_DIR` cannot achieve this, because they direct git to the private
//! directory from every folder. Landlock later prevents the program from changing the mounts. This
//! module must never change a mount outside the new namespace.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags, open, statvfs};
use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount};
use rustix::process::{getgid, getuid};
use rustix::thread::UnshareFlags;

use super::plan::LaunchRefusal;
use crate::sandbox::private_git::{Cover, PrivateGit};

/// Enters a new mount namespace and creates the mounts for a private git directory in it. Returns
/// `false` if no mount could be created, for example because the host does not permit it; the file
/// system view is then unchanged. Without the right to mount, the calling process must have only one
/// thread.
///
/// # Errors
/// Returns an error if the user or group id cannot be mapped in a new user namespace, or if only
/// some of the mounts could be created.
pub(super) fn cover(git: &PrivateGit) -> Result<bool, LaunchRefusal> {
    if unshare(UnshareFlags::NEWNS).is_err() {
        let (user, group) = (getuid().as_raw(), getgid().as_raw());
        if unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS).is_err() {
            return Ok(false);
        }
        // The process keeps its user and group ids, and files keep their owners.
        fs::write("/proc/self/setgroups", "deny")
            .and_then(|()| fs::write("/proc/self/uid_map", format!("{user} {user} 1")))
            .and_then(|()| fs::write("/proc/self/gid_map", format!("{group} {group} 1")))
            .map_err(|error| LaunchRefusal::at("set the user of a namespace", error))?;
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    if mount_change("/", private).is_err() {
        return Ok(false);
    }
    // The first mount hides the sources of the others, so all sources are opened before it.
    let covers = git.covers();
    let sources = covers.iter().map(|cover| open(&cover.from, OFlags::PATH, Mode::empty()));
    let Ok(sources) = sources.collect::<Result<Vec<_>, _>>() else { return Ok(false) };
    for (at, (cover, source)) in covers.iter().zip(&sources).enumerate() {
        match mount(cover, source) {
            Ok(()) => {}
            Err(_) if at == 0 => return Ok(false),
            Err(error) => {
                let what = format!("mount {}", cover.to.display());
                return Err(LaunchRefusal::at(&what, error));
            }
        }
    }
    Ok(true)
}

#[allow(
    deprecated,
    reason = "only the flag `FILES` makes this function unsound, and it is never passed"
)]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

fn mount(cover: &Cover, source: &OwnedFd) -> io::Result<()> {
    mount_bind(format!("/proc/self/fd/{}", source.as_raw_fd()), &cover.to)?;
    if cover.writable {
        return Ok(());
    }
    // In a namespace that an unprivileged user has created, a remount must keep the flags of the
    // original mount.
    let held = statvfs(&cover.to)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (has, flag) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        flags.set(flag, flags.contains(flag) || held.contains(has));
    }
    Ok(mount_remount(&cover.to, flags, "")?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::thread;

    use super::*;
    use crate::sandbox::private_git::Repository;

    /// Creates the mounts in a thread that has its own view of the file system.
    fn cover_in_thread(root: &Path, at: &str) -> Result<bool, LaunchRefusal> {
        let git = PrivateGit {
            at: root.join(at),
            is_folder: true,
            folder: root.join("private"),
            repositories: vec![Repository {
                below: "".into(),
                top: root.to_owned(),
                git_dir: root.join("git"),
                common_dir: root.join("git"),
                objects: root.join("objects"),
                listing: None,
            }],
            links: Vec::new(),
        };
        thread::spawn(move || cover(&git)).join().unwrap()
    }

    #[test]
    fn partial_view_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["git", "objects", "private/borrowed/objects"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        let permitted = cover_in_thread(root, "git").unwrap();
        // If the first mount fails, nothing has changed, and the child works without the view.
        assert!(!cover_in_thread(root, "none").unwrap());
        // If a later mount fails, the child would see only part of the private directory.
        fs::remove_dir(root.join("private/borrowed/objects")).unwrap();
        let partial = cover_in_thread(root, "git");
        assert_eq!(partial.is_err(), permitted, "{partial:?}");
        assert!(root.join("git").read_dir().unwrap().next().is_none());
    }
}
