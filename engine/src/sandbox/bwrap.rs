//! The mount view of the sandbox, built as an argument vector for bubblewrap.
//!
//! The child sees the host's files read-only. It has a private `/dev`, `/proc`, `/run` and `/tmp`,
//! a private PID namespace, and no capabilities. Writable paths are bound a second time as
//! writable; protected paths are bound over them as read-only. Every folder between a writable path
//! and a protected path is bound onto itself: a mount point cannot be renamed, so no other folder
//! can take its place.
//!
//! This module must never start a process, and never name a path that has not been checked.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::private_git::Cover;
use super::resolve::{ResolvedPath, ResolvedSandbox, on_the_way, within_any};

/// The paths at which bubblewrap may be installed. `PATH` is never searched, because it may contain
/// folders that other users or agents can write to.
const PLACES: [&str; 3] = ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap"];

/// Folders that contain sockets and temporary files of other programs. The child gets private ones
/// instead.
const PRIVATE: [&str; 2] = ["/tmp", "/run"];

/// Finds bubblewrap if it is installed, belongs to root and is writable only by root.
pub fn find() -> Option<PathBuf> {
    PLACES.iter().map(PathBuf::from).find(|path| {
        fs::metadata(path)
            .is_ok_and(|data| data.is_file() && data.uid() == 0 && data.mode() & 0o022 == 0)
    })
}

/// The inputs for a mount view.
#[derive(Clone, Copy, Debug)]
pub struct MountView<'a> {
    pub real: &'a ResolvedSandbox,
    /// The paths that are replaced with others.
    pub covers: &'a [Cover],
    /// The folder that becomes the child's `/tmp`. If there is none, an empty in-memory folder is
    /// used.
    pub temp: Option<&'a Path>,
    /// Paths that must be readable even if they are in a private folder: the program, its folder,
    /// its working folder and its home.
    pub visible: &'a [PathBuf],
    /// The sockets of other programs, which are covered where they would be visible.
    pub sockets: &'a BTreeSet<PathBuf>,
    /// Whether the child may use the host's network.
    pub network: bool,
}

/// Returns the folder that becomes the child's `/dev/shm`. It is next to the child's folder for
/// temporary files, so that the run folder's disk quota includes it and no child can replace it.
pub fn shared_memory(temp: &Path) -> PathBuf {
    temp.with_file_name("shm")
}

impl MountView<'_> {
    /// Returns whether the view shows a host path at the same path.
    fn shows(&self, path: &Path) -> bool {
        let within = |places: &[ResolvedPath]| within_any(path, places);
        let private = ["/dev", "/proc"].iter().chain(&PRIVATE);
        if private.into_iter().any(|folder| path.starts_with(folder)) {
            let visible = self.visible.iter().filter(|path| !is_private(path));
            let visible = visible.into_iter().any(|visible| path.starts_with(visible));
            return (visible || within(&self.real.write) || within(&self.real.show))
                && !self.covers.iter().any(|cover| path.starts_with(&cover.to));
        }
        let hidden =
            within(&self.real.hide) && !within(&self.real.show) && !within(&self.real.write);
        !hidden && !self.covers.iter().any(|cover| path.starts_with(&cover.to))
    }
}

/// Returns the options that precede `--`.
pub fn options(view: &MountView<'_>) -> Vec<OsString> {
    let mut line = CommandLine(Vec::new());
    line.add(["--die-with-parent", "--new-session", "--as-pid-1"]);
    line.add(["--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"]);
    if !view.network {
        line.add(["--unshare-net"]);
    }
    line.add(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
    if let Some(temp) = view.temp {
        line.mount("--bind", &shared_memory(temp), Path::new("/dev/shm"));
    }
    for folder in PRIVATE {
        if is_folder(Path::new(folder)) {
            match view.temp.filter(|_| folder == "/tmp") {
                Some(temp) => line.mount("--bind", temp, Path::new(folder)),
                None => line.add(["--tmpfs", folder]),
            }
        }
    }
    for path in view.visible.iter().cloned().chain(resolver()) {
        if PRIVATE.iter().any(|folder| path.starts_with(folder)) && !is_private(&path) {
            line.mount("--ro-bind", &path, &path);
        }
    }
    // Deeper paths are mounted over higher ones. Each path gets one mount, and a later insertion
    // replaces an earlier one.
    let mut mounts: BTreeMap<&Path, Mount<'_>> = BTreeMap::new();
    for place in &view.real.hide {
        let hidden = if place.folder { Mount::Empty } else { Mount::Null };
        mounts.insert(&place.path, hidden);
    }
    for place in &view.real.show {
        mounts.insert(&place.path, Mount::ReadOnly);
    }
    for place in &view.real.write {
        mounts.insert(&place.path, Mount::Writable);
    }
    let ways = on_the_way(view.real);
    let covered = |path: &Path| view.covers.iter().any(|cover| path.starts_with(&cover.to));
    for path in ways.iter().filter(|path| !covered(path)) {
        mounts.insert(path, Mount::Writable);
    }
    let kept = view.real.keep.iter().map(|place| place.path.as_path());
    for path in kept.chain(view.real.missing.iter().map(PathBuf::as_path)) {
        mounts.insert(path, Mount::ReadOnly);
    }
    for cover in view.covers {
        mounts.insert(&cover.to, Mount::Other(cover));
    }
    for socket in view.sockets.iter().filter(|path| view.shows(path)) {
        mounts.insert(socket, Mount::Null);
    }
    let emptied = mounts.iter().filter(|(_, mount)| matches!(mount, Mount::Empty));
    let emptied: Vec<&Path> = emptied.map(|(path, _)| *path).collect();
    for (path, mount) in mounts {
        match mount {
            Mount::Other(Cover { from, writable: true, .. }) => line.mount("--bind", from, path),
            Mount::Other(Cover { from, .. }) => line.mount("--ro-bind", from, path),
            Mount::Empty => line.path("--tmpfs", path),
            Mount::Null => line.mount("--ro-bind", Path::new("/dev/null"), path),
            Mount::Writable => line.mount("--bind", path, path),
            Mount::ReadOnly => line.mount("--ro-bind", path, path),
        }
    }
    // All mounts below these in-memory folders exist now, so the folders become read-only and the
    // child cannot store data in them.
    line.add(["--remount-ro", "/run"]);
    for path in emptied {
        line.path("--remount-ro", path);
    }
    // `/proc/sys` and `sysrq-trigger` belong to root, who can write to them without any capability.
    line.add(["--remount-ro", "/proc"]);
    line.add(["--chdir", "/"]);
    line.0
}

#[derive(Clone, Copy, Debug)]
enum Mount<'a> {
    Other(&'a Cover),
    Empty,
    Null,
    Writable,
    ReadOnly,
}

struct CommandLine(Vec<OsString>);

impl CommandLine {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(OsString::from));
    }

    fn path(&mut self, option: &str, path: &Path) {
        self.0.extend([option.into(), path.into()]);
    }

    fn mount(&mut self, option: &str, from: &Path, to: &Path) {
        self.0.extend([option.into(), from.into(), to.into()]);
    }
}

fn is_private(path: &Path) -> bool {
    PRIVATE.iter().any(|folder| path == Path::new(folder))
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|data| data.is_dir())
}

/// Returns the real path of the file that configures name resolution. It may be in a private
/// folder.
fn resolver() -> Option<PathBuf> {
    fs::canonicalize("/etc/resolv.conf").ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn protected_paths_are_mounted_last() {
        let place =
            |path: &str| ResolvedPath { path: path.into(), folder: true, device: 0, inode: 0 };
        let real = ResolvedSandbox {
            write: vec![place("/tree")],
            keep: vec![place("/tree/docs/plan.md")],
            missing: vec!["/tree/.claude".into()],
            hide: vec![place("/home/me/.local/state/runner")],
            show: vec![place("/home/me/.local/state/runner/shown")],
        };
        let view = MountView {
            real: &real,
            covers: &[Cover {
                from: "/private/git".into(),
                to: "/tree/.git".into(),
                writable: true,
            }],
            temp: Some(Path::new("/private")),
            visible: &["/tmp/x/program".into(), "/usr/bin".into()],
            sockets: &[
                "/tree/agent.sock",
                "/tmp/other.sock",
                "/tmp/x/program/sock",
                "/home/me/.local/state/runner/sock",
                "/tree/.git/fsmonitor",
                "/home/me/docker.sock",
            ]
            .map(PathBuf::from)
            .into(),
            network: false,
        };
        let line: Vec<String> =
            options(&view).into_iter().map(|word| word.into_string().unwrap()).collect();
        let line = line.join(" ");
        let at = |part: &str| line.find(part).unwrap_or_else(|| panic!("no {part} in {line}"));
        let order = [
            "--ro-bind / /",
            "--bind /shm /dev/shm",
            "--bind /private /tmp",
            "--ro-bind /tmp/x/program /tmp/x/program",
            "--tmpfs /home/me/.local/state/runner",
            "--ro-bind /home/me/.local/state/runner/shown",
            "--bind /tree /tree",
            "--ro-bind /tree/.claude /tree/.claude",
            "--bind /private/git /tree/.git",
            "--bind /tree/docs /tree/docs",
            "--ro-bind /tree/docs/plan.md /tree/docs/plan.md",
            "--remount-ro /home/me/.local/state/runner",
        ];
        assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])), "{line}");
        let covered = ["/tree/agent.sock", "/tmp/x/program/sock", "/home/me/docker.sock"];
        assert!(
            covered.iter().all(|it| line.contains(&format!("--ro-bind /dev/null {it}"))),
            "{line}"
        );
        assert_eq!(line.matches("--ro-bind /dev/null").count(), covered.len(), "{line}");
        assert!(line.contains("--unshare-net") && !line.contains("/usr/bin /usr/bin"));
    }
}
