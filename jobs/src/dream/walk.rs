//! Finds a project's ideas from names and stat data alone, without opening a file.
//!
//! The walk follows no symbolic link, so there are no loops and nothing outside the project is
//! read. An entry that has the name of an idea but cannot be one is reported as a [`WalkProblem`];
//! the walk continues, and must never skip such an entry silently. Two threads share the stat
//! calls, because a pass over unchanged ideas spends most of its time on these calls.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

use ignore::{WalkBuilder, WalkState};
use runner_engine::publish::RelPath;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use serde::{Deserialize, Serialize};

use super::spec::DreamSpec;

/// Number of threads that walk the tree. Additional threads would only contend for the same folder.
const THREADS: usize = 2;

/// A path that could not be read as an idea.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error,
)]
#[error("{path} {why}")]
pub struct WalkProblem {
    /// The path, relative to the project.
    pub path: String,
    /// The reason, such as `is a symbolic link, which is not followed`.
    pub why: String,
}

/// The metadata that shows whether a file may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stat {
    /// Size in bytes.
    pub size: u64,
    /// The time of the last change to the content, in nanoseconds since the epoch.
    pub mtime: i64,
    /// The time of the last change to the file or its metadata, in nanoseconds since the epoch.
    pub ctime: i64,
    pub inode: u64,
}

impl Stat {
    /// Extracts the stat data from a file's metadata.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            size: metadata.size(),
            mtime: nanos(metadata.mtime(), metadata.mtime_nsec()),
            ctime: nanos(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
        }
    }

    /// Reads the stat data of a path relative to an open folder. Symlinks are not followed.
    fn within(folder: &OwnedFd, path: &str) -> io::Result<Self> {
        let stat = statat(folder, path, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: nanos(stat.st_mtime, stat.st_mtime_nsec as i64),
            ctime: nanos(stat.st_ctime, stat.st_ctime_nsec as i64),
            inode: stat.st_ino,
        })
    }
}

fn nanos(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// A file that may be an idea.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdeaFile {
    /// The path of the file, relative to the project.
    pub path: Box<str>,
    /// The file's stat data at the time of the walk.
    pub stat: Stat,
}

/// The result of a walk. Both lists are sorted by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Files that may be ideas.
    pub found: Vec<IdeaFile>,
    /// Paths that cannot be ideas.
    pub troubles: Vec<WalkProblem>,
}

/// Walks the ideas of the project at `root`. A missing folder is treated as empty.
pub fn walk(root: &Path, spec: &DreamSpec) -> Walked {
    walk_folder(root, spec, (&spec.ideas, &[&spec.done, &spec.dreams]))
}

/// Lists the notes below a folder of the project at `root`.
///
/// # Errors
/// Returns the first problem of the walk.
pub fn notes_in(
    root: &Path,
    spec: &DreamSpec,
    folder: &str,
) -> Result<BTreeSet<String>, WalkProblem> {
    let walked = walk_folder(root, spec, (folder, &[&spec.dreams]));
    match walked.troubles.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(walked.found.into_iter().map(|file| file.path.into()).collect()),
    }
}

/// Walks a folder of the project at `root`, without the folders in `except`.
fn walk_folder(root: &Path, spec: &DreamSpec, (folder, except): (&str, &[&str])) -> Walked {
    let mut walked = Walked::default();
    let base = match base(root, folder) {
        Ok(Some(base)) => base,
        Ok(None) => return walked,
        Err(trouble) => {
            walked.troubles.push(trouble);
            return walked;
        }
    };
    // A path relative to the project has fewer parts for the system to look up.
    let project = match openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(project) => project,
        Err(error) => {
            let why = format!("cannot be inspected: {error}");
            walked.troubles.push(WalkProblem { path: ".".to_owned(), why });
            return walked;
        }
    };
    let shared = Mutex::new(&mut walked);
    let skipped: Vec<_> = except.iter().map(|folder| root.join(folder)).collect();
    let walker = WalkBuilder::new(&base)
        .standard_filters(false)
        .hidden(true)
        .follow_links(false)
        .threads(THREADS)
        .filter_entry(move |entry| !skipped.iter().any(|folder| folder == entry.path()))
        .build_parallel();
    walker.run(|| {
        let project = &project;
        let mut part = ThreadResult { own: Walked::default(), shared: &shared };
        Box::new(move |entry| {
            match entry {
                Ok(entry) => part.own.meet((root, project), spec, &entry),
                Err(error) => part.own.troubles.push(cannot_read(root, &error)),
            }
            WalkState::Continue
        })
    });
    walked.found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    walked.troubles.sort_unstable();
    walked
}

/// The files found by one thread, which are added to the shared result when the thread finishes.
struct ThreadResult<'a, 'b> {
    own: Walked,
    shared: &'a Mutex<&'b mut Walked>,
}

impl Drop for ThreadResult<'_, '_> {
    fn drop(&mut self) {
        let mut all = self.shared.lock().expect("no thread panics while it holds the list");
        all.found.append(&mut self.own.found);
        all.troubles.append(&mut self.own.troubles);
    }
}

impl Walked {
    fn meet(
        &mut self,
        (root, project): (&Path, &OwnedFd),
        spec: &DreamSpec,
        entry: &ignore::DirEntry,
    ) {
        let Some(kind) = entry.file_type().filter(|kind| !kind.is_dir()) else {
            return;
        };
        let path = entry.path();
        let named = path.extension().is_some_and(|ending| ending == "md");
        if !named && !kind.is_symlink() {
            return;
        }
        let relative = path.strip_prefix(root).unwrap_or(path);
        let mut trouble = |why: &str| {
            self.troubles
                .push(WalkProblem { path: relative.display().to_string(), why: why.to_owned() });
        };
        if kind.is_symlink() {
            // Only links to folders, cyclic links, and links named like a note are reported.
            let target = path.metadata();
            if named
                || target.as_ref().is_ok_and(Metadata::is_dir)
                || target.is_err_and(|e| is_loop(&e))
            {
                trouble("is a symbolic link, which is not followed");
            }
            return;
        }
        if !kind.is_file() {
            return trouble("is not a plain file");
        }
        let Some(text) = relative.to_str() else {
            return trouble("has a name that is not UTF-8");
        };
        if let Err(bad) = RelPath::new(text) {
            return trouble(&format!("has a name that cannot be used: {}", bad.why));
        }
        if spec.canonical_over(text).is_some() {
            return;
        }
        match Stat::within(project, text) {
            Ok(stat) => {
                if stat.size > spec.max_idea_bytes {
                    trouble(&too_long(stat.size, spec.max_idea_bytes));
                } else {
                    self.found.push(IdeaFile { path: text.into(), stat });
                }
            }
            Err(error) => trouble(&format!("cannot be inspected: {error}")),
        }
    }
}

/// Returns why an idea of this size is not read.
pub fn too_long(size: u64, most: u64) -> String {
    format!("is {size} bytes long; the limit is {most}")
}

/// Returns whether a link cannot be resolved for a reason other than a missing target, such as a
/// cycle.
fn is_loop(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::NotFound
}

/// Returns the path of the folder to walk, or `None` if the folder does not exist. No part of the
/// path may be a link.
fn base(root: &Path, ideas: &str) -> Result<Option<std::path::PathBuf>, WalkProblem> {
    let mut base = root.to_owned();
    for name in ideas.split('/') {
        base.push(name);
        let trouble = |why: String| {
            let path = base.strip_prefix(root).unwrap_or(&base).display().to_string();
            Err(WalkProblem { path, why })
        };
        match base.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(metadata) if metadata.is_symlink() => {
                return trouble("is a symbolic link, which is not followed".to_owned());
            }
            Ok(_) => return trouble("is not a folder".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return trouble(format!("cannot be inspected: {error}")),
        }
    }
    Ok(Some(base))
}

fn cannot_read(root: &Path, error: &ignore::Error) -> WalkProblem {
    let mut path = String::new();
    let mut inner = error;
    let why = loop {
        match inner {
            ignore::Error::WithPath { path: at, err } => {
                path = at.strip_prefix(root).unwrap_or(at).display().to_string();
                inner = err;
            }
            ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
                inner = err
            }
            other => break other.to_string(),
        }
    };
    WalkProblem { path, why: format!("cannot be read: {why}") }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(walked: &Walked) -> Vec<&str> {
        walked.found.iter().map(|found| &*found.path).collect()
    }

    #[test]
    fn walk_returns_only_candidate_ideas() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for file in [
            "ideas/b.md",
            "ideas/a.md",
            "ideas/deep/er/c.md",
            "ideas/done/old.md",
            "ideas/.hidden/x.md",
            "ideas/.x.md",
            "ideas/pic.png",
            "ideas/dreams/own.md",
            "elsewhere/x.md",
            "ideas/canon.md",
        ] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
        }
        // Ignore files do not hide ideas.
        fs::write(root.join(".gitignore"), "ideas/\n").unwrap();
        fs::write(root.join("ideas/.ignore"), "*.md\n").unwrap();
        let spec = DreamSpec {
            dreams: "ideas/dreams".into(),
            canonical: vec!["ideas/canon.md".into()],
            ..DreamSpec::default()
        };
        let walked = walk(root, &spec);
        assert_eq!(names(&walked), ["ideas/a.md", "ideas/b.md", "ideas/deep/er/c.md"]);
        assert_eq!(walked.troubles, []);
        assert_eq!(walked.found[0].stat.size, 4);
    }

    #[test]
    fn unreadable_files_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("ideas/sub")).unwrap();
        fs::write(root.join("outside.md"), "secret").unwrap();
        fs::write(root.join("ideas/good.md"), "text").unwrap();
        symlink("../outside.md", root.join("ideas/link.md")).unwrap();
        symlink("..", root.join("ideas/sub/up")).unwrap();
        symlink("loop", root.join("ideas/loop")).unwrap();
        symlink("../outside.md", root.join("ideas/harmless.txt")).unwrap();
        fs::write(root.join("ideas/line\nbreak.md"), "x").unwrap();
        std::os::unix::net::UnixListener::bind(root.join("ideas/socket.md")).unwrap();
        let huge = fs::File::create(root.join("ideas/huge.md")).unwrap();
        huge.set_len(500 * 1024 * 1024).unwrap();
        let walked = walk(root, &DreamSpec::default());
        assert_eq!(names(&walked), ["ideas/good.md"]);
        let troubles: Vec<&str> =
            walked.troubles.iter().map(|trouble| trouble.path.as_str()).collect();
        assert_eq!(
            troubles,
            [
                "ideas/huge.md",
                "ideas/line\nbreak.md",
                "ideas/link.md",
                "ideas/loop",
                "ideas/socket.md",
                "ideas/sub/up"
            ]
        );
        assert_eq!(walked.troubles[0].why, "is 524288000 bytes long; the limit is 1048576");
    }

    #[test]
    fn linked_or_missing_ideas_folder_is_not_entered() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(walk(root, &DreamSpec::default()), Walked::default());
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("real/a.md"), "x").unwrap();
        symlink("real", root.join("ideas")).unwrap();
        let walked = walk(root, &DreamSpec::default());
        assert_eq!((walked.found.len(), walked.troubles.len()), (0, 1));
    }
}
