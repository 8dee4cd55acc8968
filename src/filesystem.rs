//! Detects file systems on which locks and the database do not work reliably.
//!
//! `flock` and the database's shared memory work only between processes on the same kernel. On a
//! file system that other machines also write to, they fail silently. The callers of this module
//! therefore refuse a state folder on such a file system, and warn about a project there. This
//! module must never refuse or warn itself.

use std::fs;
use std::path::Path;

use runner_engine::files::read_text_proc;

use crate::ui::Failure;

/// File systems that are shared between machines, by the magic number from `statfs`.
const SHARED: &[(u64, &str)] = &[
    (0x6969, "nfs"),
    (0x517b, "smb"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "afs"),
    (0x6b41_4653, "afs"),
    (0x7375_7245, "coda"),
    (0x564c, "ncp"),
    (0x00c3_6400, "ceph"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (0x786f_4256, "vboxsf"),
    (0xbacb_acbc, "vmhgfs"),
];
const FUSE: u64 = 0x6573_5546;
/// FUSE file systems that are shared or synced, by their name in the mount table.
const BEHIND_FUSE: &[&str] = &[
    "virtiofs",
    "fuse.sshfs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.gcsfuse",
    "fuse.davfs",
    "fuse.davfs2",
    "fuse.glusterfs",
    "fuse.ceph",
    "fuse.ceph-fuse",
    "fuse.juicefs",
    "fuse.curlftpfs",
    "fuse.onedriver",
    "fuse.google-drive-ocamlfuse",
    "fuse.gvfsd-fuse",
    "fuse.vmhgfs-fuse",
    "fuse.grpcfuse",
    "fuse.osxfs",
    "fuse.portal",
    "fuse.mount-s3",
    "fuse.goofys",
    "fuse.blobfuse2",
    "fuse.dbxfs",
    "fuse.keybase",
];

/// Returns the free space, in bytes, of the file system that contains `path`.
pub fn free_bytes(path: &Path) -> Result<u64, Failure> {
    let free = rustix::fs::statvfs(path).map_err(|error| Failure::unreadable(path, error))?;
    Ok(free.f_bavail.saturating_mul(free.f_frsize))
}

/// Returns the type of the shared or synced file system that contains `path`. Returns `None` for a
/// local file system, or if the type is unknown.
pub fn shared(path: &Path) -> Option<String> {
    // A missing path will be created on the file system of its nearest existing ancestor.
    let there = path.ancestors().find(|path| path.exists())?;
    let found = rustix::fs::statfs(there).ok()?;
    // Some systems sign-extend the 32-bit number.
    #[allow(clippy::cast_sign_loss, reason = "the number is only compared")]
    let magic = (found.f_type as u64) & 0xffff_ffff;
    kind(magic, || {
        let table = read_text_proc("/proc/self/mountinfo").ok()?;
        let there = fs::canonicalize(there).ok()?;
        type_of_mount(&table, &there)
    })
}

/// Returns the name of a shared file system type, or `None` for any other type. The mount table is
/// read only if the magic number is ambiguous.
fn kind(magic: u64, mounted: impl FnOnce() -> Option<String>) -> Option<String> {
    if magic == FUSE {
        return mounted().filter(|name| BEHIND_FUSE.contains(&name.as_str()));
    }
    SHARED.iter().find(|(number, _)| *number == magic).map(|(_, name)| (*name).to_owned())
}

/// Returns the type of the mount that contains `path`. The longest mount point wins; if several are
/// equally long, the last one wins.
fn type_of_mount(mountinfo: &str, path: &Path) -> Option<String> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let point = unescaped(before.split(' ').nth(4)?);
            path.starts_with(&point)
                .then(|| (point.len(), after.split(' ').next().unwrap_or_default()))
        })
        .max_by_key(|(length, _)| *length)
        .map(|(_, kind)| kind.to_owned())
}

/// Decodes the escapes in the mount table, such as `\040` for a space.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:35 / /mnt/far rw,nosuid - fuse.sshfs me@far:/ rw,user_id=0
41 22 0:36 / /mnt/far/deep rw - fuse.gocryptfs /x rw
42 22 0:37 / /mnt/a\\040b rw shared:9 master:1 - virtiofs share rw
43 22 0:38 / /mnt/far rw - fuse.rclone r: rw
";

    #[test]
    fn nearest_mount_determines_the_type() {
        for (path, expected) in [
            ("/home/me", "ext4"),
            ("/mnt/farther", "ext4"),
            ("/mnt/far/deep/x", "fuse.gocryptfs"),
            ("/mnt/a b/c", "virtiofs"),
            // A later mount hides an earlier one at the same path.
            ("/mnt/far/x", "fuse.rclone"),
        ] {
            assert_eq!(type_of_mount(TABLE, Path::new(path)).as_deref(), Some(expected), "{path}");
        }
        assert_eq!(type_of_mount("nonsense", Path::new("/")), None);
    }

    #[test]
    fn shared_file_systems_are_recognized() {
        let never = || -> Option<String> {
            panic!("the mount table was read although the magic number is sufficient")
        };
        for (magic, expected) in [
            (0x6969, Some("nfs")),
            (0xff53_4d42, Some("cifs")),
            (0xfe53_4d42, Some("smb2")),
            (0x0102_1997, Some("9p")),
            (0xef53, None),      // ext4
            (0x0102_1994, None), // tmpfs
            (0x9123_683e, None), // btrfs
            (0x794c_7630, None), // overlayfs
        ] {
            assert_eq!(kind(magic, never).as_deref(), expected, "{magic:x}");
        }
        for (mounted, expected) in [
            ("fuse.sshfs", Some("fuse.sshfs")),
            ("virtiofs", Some("virtiofs")),
            ("fuse.gocryptfs", None),
            ("fuseblk", None),
        ] {
            let found = kind(FUSE, || Some(mounted.to_owned()));
            assert_eq!(found.as_deref(), expected, "{mounted}");
        }
        assert_eq!(kind(FUSE, || None), None);
    }

    #[test]
    fn missing_folder_has_its_ancestors_type() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(shared(&folder.path().join("not/yet")), shared(folder.path()));
    }
}
