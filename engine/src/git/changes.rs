//! Compares the work tree with the index, and the index with `HEAD`, without running filters.
//!
//! To compare a file, `git status` and `git diff` run the file's filter, which is a program that
//! the project names. Here, git only lists index entries and untracked files, and compares the
//! index with `HEAD`, which does not involve filters. Each file in the work tree is then compared
//! by its stat data and, if the stat data differs or cannot be trusted, by the hash of its
//! unfiltered bytes.
//!
//! ```text
//! same stat data as the index, and older than the index ───────────> unchanged
//! filter, ident or encoding applies: same stat data as the index ──> unchanged, otherwise changed
//! same hash of the bytes as the index ─────────────────────────────> unchanged
//! same hash without carriage returns before line feeds ────────────> unchanged, otherwise changed
//! ```
//!
//! The last line accounts for the `text` attribute and `core.autocrlf`, but it applies to every
//! file of at most 64 MiB that contains no NUL and has no `filter`, `ident` or
//! `working-tree-encoding` attribute. This module must never open anything but regular files, never
//! follow a link, and never write.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use memchr::{memchr, memchr_iter};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Git, GitError, INPUT, Read};
use crate::files::open_in;
use crate::process::ExitStatus;

/// Maximum size in bytes of a file whose line endings are normalized for a comparison.
const LARGEST_TEXT: u64 = 64 * 1024 * 1024;

/// Describes how a path differs from `HEAD` or from the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The path has a merge conflict.
    Unmerged,
    /// The path is in the index, but not in `HEAD`.
    Added,
    /// The version in the index differs from the one in `HEAD`, or the index no longer contains the
    /// path.
    Staged,
    /// The version in the work tree differs from the one in the index, or the work tree no longer
    /// contains the path.
    Edited,
    /// The path is neither in the index nor ignored.
    Untracked,
}

/// Selects the untracked paths that are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untracked {
    /// Reports no untracked path.
    No,
    /// Reports every untracked file.
    Files,
    /// Reports every untracked file, but reports a folder with only untracked files as one path.
    Folders,
}

/// Maps each path that differs to its change. The paths are relative to the project. Changes inside
/// submodules are not included.
pub type Changes = BTreeMap<String, Change>;

impl Git {
    /// Returns the differences at or beneath the paths in `within`, which are literal and relative
    /// to the project. If `within` is empty, all differences are returned.
    ///
    /// # Errors
    /// Returns a [`GitError`] if a git command fails, if its output has an unknown format, or if a
    /// file cannot be read.
    pub fn changes(&self, within: &[&str], untracked: Untracked) -> Result<Changes, GitError> {
        let question = format!("changes {untracked:?} -- {}", within.join(" "));
        if self.recording.replays() {
            let answer = self.recalled(&question)?;
            return serde_json::from_slice(&answer.stdout).map_err(|error| GitError::Unreadable {
                path: "the recorded changes".to_owned(),
                why: error.to_string(),
            });
        }
        // A recording stores the comparison as one answer, because a work tree's stat data cannot
        // be replayed.
        let quiet = Self { recording: crate::recording::InputRecording::off(), ..self.clone() };
        let changes = quiet.compared(within, untracked)?;
        if self.recording.records() {
            let facts = json!({ "status": ExitStatus::Exit(0), "stderr": "" });
            let text = serde_json::to_vec(&changes).unwrap_or_default();
            self.recording.note(INPUT, &question, facts, Some(&text));
        }
        Ok(changes)
    }

    fn compared(&self, within: &[&str], untracked: Untracked) -> Result<Changes, GitError> {
        let paths: Vec<String> = within.iter().map(|path| literal(path)).collect();
        let with = |args: &[&'static str]| -> Vec<&str> {
            let args = args.iter().copied().chain(["--"]);
            args.chain(paths.iter().map(String::as_str)).collect()
        };
        let mut changes = Changes::new();
        // The first change found for a path is the most informative, so later ones do not replace
        // it.
        let mut note = |path: &Path, change| {
            let path = path.to_string_lossy().into_owned();
            changes.entry(path).or_insert(change);
        };
        // Git lists the index and compares it with `HEAD` at the same time.
        let (listing, staged) = std::thread::scope(|scope| {
            let staged = scope.spawn(|| self.staged(&paths));
            let listing = self.ask(Read::LsFiles, &with(&["--stage", "--debug", "-z"]));
            (listing, staged.join())
        });
        let (listing, staged) =
            (listing?, staged.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        let records = records(&listing);
        let work_tree = self.compare_work_tree(&records)?;
        work_tree.unmerged.iter().for_each(|path| note(path, Change::Unmerged));
        match &staged {
            Some(staged) => staged_paths(staged).for_each(|(path, change)| note(path, change)),
            None => entries(&records).for_each(|entry| note(entry.path, Change::Added)),
        }
        self.edited(work_tree)?.iter().for_each(|path| note(path, Change::Edited));
        let others: &[&str] = match untracked {
            Untracked::No => return Ok(changes),
            Untracked::Files => &["--others", "--exclude-standard", "-z"],
            Untracked::Folders => {
                &["--others", "--exclude-standard", "--directory", "--no-empty-directory", "-z"]
            }
        };
        for path in names(&self.ask(Read::LsFiles, &with(others))?) {
            note(&path, Change::Untracked);
        }
        Ok(changes)
    }

    /// Lists the paths at or beneath `paths` that differ between `HEAD` and the index, in the
    /// format that [`staged_paths`] parses. Returns `None` before the first commit. With
    /// `--cached`, git does not read the work tree.
    fn staged(&self, paths: &[String]) -> Result<Option<Vec<u8>>, GitError> {
        let Some(head) = self.head()? else {
            return Ok(None);
        };
        let mut args = vec!["--raw", "-z", "--no-renames", "--relative"];
        args.extend(["--ita-visible-in-index", "--ignore-submodules=none", &head, "--"]);
        args.extend(paths.iter().map(String::as_str));
        self.ask(Read::DiffIndex, &args).map(Some)
    }

    /// Compares the files in the work tree with the stat data in the index.
    fn compare_work_tree<'l>(&self, records: &[&'l [u8]]) -> Result<Compared<'l>, GitError> {
        let written = self.path(&["--git-path", "index"])?;
        let written = FileStat::of(CWD, &written).map_or((0, 0), |it| it.mtime);
        let root = openat(CWD, &self.root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| unreadable(&self.root, &error.into()))?;
        // The stat calls take most of the time, so two threads share them.
        let (first, second) = records.split_at(records.len() / 2);
        let (first, second) = std::thread::scope(|scope| {
            let second = scope.spawn(|| compare_stats(&root, second, written));
            (compare_stats(&root, first, written), second.join())
        });
        let mut compared = first?;
        let second = second.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        compared.unmerged.extend(second.unmerged);
        compared.edited.extend(second.edited);
        compared.unsure.extend(second.unsure);
        Ok(compared)
    }

    /// Returns the paths whose files differ from the index. Reads the files whose stat data does
    /// not show whether they differ.
    fn edited<'l>(&self, compared: Compared<'l>) -> Result<Vec<&'l Path>, GitError> {
        let Compared { mut edited, unsure, .. } = compared;
        if unsure.is_empty() {
            return Ok(edited);
        }
        let converted = self.converted()?;
        for (entry, stat, same) in unsure {
            let unchanged = match converted.contains(entry.path) {
                true => same,
                false => entry
                    .holds(&self.root, &stat)
                    .map_err(|error| unreadable(entry.path, &error))?,
            };
            if !unchanged {
                edited.push(entry.path);
            }
        }
        Ok(edited)
    }

    /// Returns the paths of the files for which git converts more than line endings when it adds
    /// them to the index.
    fn converted(&self) -> Result<BTreeSet<PathBuf>, GitError> {
        let none = ":(exclude,attr:!filter !ident !working-tree-encoding).";
        let out = self.ask(Read::LsFiles, &["-z", "--", ".", none])?;
        Ok(names(&out).collect())
    }
}

const SUBMODULE: u32 = 0o160_000;
const LINK: u32 = 0o120_000;
const EXECUTABLE: u32 = 0o100;

/// An index entry, whose strings are slices of git's listing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry<'l> {
    path: &'l Path,
    mode: u32,
    object: &'l str,
    stage: u32,
    stat: Option<Stat>,
    flags: u32,
}

/// The stat data that the index recorded for a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Stat {
    ctime: (i64, i64),
    mtime: (i64, i64),
    inode: u32,
    size: u64,
}

/// The current stat data of a file.
#[derive(Clone, Copy, Debug)]
struct FileStat {
    mode: u32,
    size: u64,
    inode: u64,
    ctime: (i64, i64),
    mtime: (i64, i64),
}

impl FileStat {
    /// Reads the stat data of a path relative to an open folder, without following a link at its
    /// end. Returns `None` if the file cannot be inspected.
    fn of(folder: impl AsFd, path: &Path) -> Option<Self> {
        let stat = statat(folder, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(Self {
            mode: stat.st_mode,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            inode: stat.st_ino,
            ctime: (stat.st_ctime, stat.st_ctime_nsec as i64),
            mtime: (stat.st_mtime, stat.st_mtime_nsec as i64),
        })
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

impl Stat {
    /// Returns whether a file still has the recorded values. A zero inode, change time or fraction
    /// of a second was not recorded and is not compared, because some programs do not write these
    /// fields.
    fn fits(&self, stat: &FileStat) -> bool {
        let time = |known: (i64, i64), now: (i64, i64)| {
            known.0 == now.0 && (known.1 == 0 || known.1 == now.1)
        };
        time(self.mtime, stat.mtime)
            && (self.ctime == (0, 0) || time(self.ctime, stat.ctime))
            && (self.inode == 0 || self.inode == stat.inode as u32)
            && self.size == stat.size & u64::from(u32::MAX)
    }
}

impl Entry<'_> {
    /// Returns whether git was configured to ignore changes to the file (`assume-unchanged` or
    /// `skip-worktree`).
    fn is_unwatched(&self) -> bool {
        self.flags & (0x8000 | 0x4000_0000) != 0
    }

    fn is_empty_blob(&self) -> bool {
        hash(self.object.len(), &mut &b""[..]).is_ok_and(|empty| empty == self.object)
    }

    fn is_of_type(&self, stat: &FileStat) -> bool {
        match self.mode {
            LINK => stat.kind().is_symlink(),
            _ => stat.kind().is_file(),
        }
    }

    /// Returns whether the file has the same bytes and executable permission as the index entry. A
    /// text file may also have additional carriage returns before line feeds.
    fn holds(&self, root: &Path, stat: &FileStat) -> io::Result<bool> {
        if self.mode == LINK {
            let target = fs::read_link(root.join(self.path))?;
            let target = target.as_os_str().as_bytes();
            return Ok(hash(self.object.len(), &mut &*target)? == self.object);
        }
        if (self.mode & EXECUTABLE == 0) != (stat.mode & EXECUTABLE == 0) {
            return Ok(false);
        }
        let file = open_in(root, self.path)?;
        let now = file.metadata()?;
        let digits = self.object.len();
        // Git records a size of zero to force a comparison of the bytes.
        let other = |known: &Stat| known.size != 0 && known.size != now.len();
        if !self.stat.as_ref().is_some_and(other)
            && hash_sized(digits, now.len(), &mut (&file).take(now.len()))? == self.object
        {
            return Ok(true);
        }
        if now.len() > LARGEST_TEXT {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        io::Seek::rewind(&mut &file)?;
        (&file).take(LARGEST_TEXT).read_to_end(&mut bytes)?;
        let plain = with_line_feeds(&bytes);
        Ok(plain.len() < bytes.len()
            && !bytes.contains(&0)
            && hash(digits, &mut plain.as_slice())? == self.object)
    }
}

fn with_line_feeds(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().peekable();
    while let Some(byte) = rest.next() {
        if *byte != b'\r' || rest.peek() != Some(&&b'\n') {
            out.push(*byte);
        }
    }
    out
}

/// Returns the object name of the empty tree. `length` is the number of hexadecimal digits in an
/// object name.
pub(super) fn empty_tree(length: usize) -> &'static str {
    match length {
        64 => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
        _ => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    }
}

/// Returns the object name of a blob as `length` hexadecimal digits.
pub(super) fn hash(length: usize, bytes: &mut &[u8]) -> io::Result<String> {
    hash_sized(length, bytes.len() as u64, bytes)
}

/// Returns the object name of a blob of `size` bytes as `length` hexadecimal digits.
fn hash_sized(length: usize, size: u64, bytes: &mut impl io::Read) -> io::Result<String> {
    fn all<H: sha1::Digest + io::Write>(
        size: u64,
        bytes: &mut impl io::Read,
    ) -> io::Result<String> {
        let mut hash = H::new_with_prefix(format!("blob {size}\0"));
        io::copy(bytes, &mut hash)?;
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
    match length {
        64 => all::<sha2::Sha256>(size, bytes),
        _ => all::<sha1::Sha1>(size, bytes),
    }
}

/// Splits the output of `ls-files --stage --debug -z` into its entries. Each entry is
/// `MODE OBJECT STAGE`, a tab, the path and a NUL, followed by [`STAT_LINES`] lines of stat data.
pub(super) fn records(listing: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    let mut rest = listing;
    while let Some(end) = memchr(0, rest) {
        let mut length = end + 1;
        if rest[length..].starts_with(FIRST_STAT) {
            let mut ends = memchr_iter(b'\n', &rest[length..]);
            length += ends.nth(STAT_LINES - 1).map_or(0, |end| end + 1);
        }
        let (record, after) = rest.split_at(length);
        all.push(record);
        rest = after;
    }
    all
}

/// The number of stat data lines in an entry.
const STAT_LINES: usize = 5;

/// The beginning of the first line of stat data.
const FIRST_STAT: &[u8] = b"  ctime: ";

/// Parses the records that [`records`] returned, skipping those that are not entries.
pub(super) fn entries<'l>(records: &[&'l [u8]]) -> impl Iterator<Item = Entry<'l>> {
    records.iter().filter_map(|record| entry(record))
}

/// Parses one record. Git does not guarantee the format of the stat data. If a value has an
/// unexpected format, the stat data is treated as unknown, and the file is compared by its bytes.
/// If a record does not consist of the expected lines, it is not an entry, and the comparison
/// fails.
fn entry(record: &[u8]) -> Option<Entry<'_>> {
    let (head, after) = record.split_at(memchr(0, record)?);
    let (stat, flags) = debug(&after[1..]).map_or((None, 0), |(stat, flags)| (Some(stat), flags));
    let (facts, path) = head.split_at(memchr(b'\t', head)?);
    let mut words = std::str::from_utf8(facts).ok()?.split_ascii_whitespace().rev();
    let (stage, object, mode) = (words.next()?, words.next()?, words.next()?);
    Some(Entry {
        path: Path::new(OsStr::from_bytes(&path[1..])),
        mode: u32::from_str_radix(mode, 8).ok()?,
        object,
        stage: stage.parse().ok()?,
        stat,
        flags,
    })
}

/// Parses [`STAT_LINES`] lines of stat data. Returns the data and the flags.
fn debug(lines: &[u8]) -> Option<(Stat, u32)> {
    let mut rest = lines;
    // Returns the value after `name`, up to the byte `end`.
    let mut value = |name: &str, end: u8| {
        rest = rest.strip_prefix(name.as_bytes())?;
        let (value, after) = rest.split_at(memchr(end, rest)?);
        rest = &after[1..];
        std::str::from_utf8(value).ok()
    };
    let mut time = |name: &str| {
        let (seconds, rest) = value(name, b'\n')?.split_once(':')?;
        Some((seconds.parse().ok()?, rest.parse().ok()?))
    };
    let (ctime, mtime) = (time("  ctime: ")?, time("  mtime: ")?);
    value("  dev: ", b'\t')?;
    let inode = value("ino: ", b'\n')?.parse().ok()?;
    value("  uid: ", b'\n')?;
    let size = value("  size: ", b'\t')?.parse().ok()?;
    let flags = u32::from_str_radix(value("flags: ", b'\n')?, 16).ok()?;
    Some((Stat { ctime, mtime, inode, size }, flags))
}

/// The result of a comparison by stat data.
#[derive(Default)]
struct Compared<'l> {
    /// The paths with a merge conflict.
    unmerged: Vec<&'l Path>,
    /// The paths whose file is missing, has another type, or is in a folder that was replaced by a
    /// link.
    edited: Vec<&'l Path>,
    /// The entries whose bytes must be compared, each with its stat data and whether that data
    /// matches the index.
    unsure: Vec<(Entry<'l>, FileStat, bool)>,
}

/// Recognizes files whose folder was replaced by a link. Git treats such files as deleted.
#[derive(Default)]
struct LinkedFolders<'l> {
    /// The folder of the file that was checked last, and whether its path leads through a link.
    last: Option<(&'l Path, bool)>,
}

impl<'l> LinkedFolders<'l> {
    /// Returns whether the path leads through a link. If the paths are sorted, few folders are
    /// checked more than once.
    fn contain(&mut self, root: &OwnedFd, path: &'l Path) -> bool {
        let Some(folder) = path.parent() else { return false };
        match self.last {
            Some((last, linked)) if last == folder => return linked,
            _ => {}
        }
        let known = self.last.filter(|(_, linked)| !linked).map(|(last, _)| last);
        let unknown = |it: &&Path| !known.is_some_and(|known| known.starts_with(it));
        let is_link =
            |it: &Path| FileStat::of(root, it).is_some_and(|stat| stat.kind().is_symlink());
        let linked = folder.ancestors().filter(unknown).any(is_link);
        self.last = Some((folder, linked));
        linked
    }
}

/// Compares files with the stat data of their entries. `written` is the time of the last change to
/// the index.
///
/// # Errors
/// Returns an error if a record is not an entry, because a change to its file would be missed.
fn compare_stats<'l>(
    root: &OwnedFd,
    records: &[&'l [u8]],
    written: (i64, i64),
) -> Result<Compared<'l>, GitError> {
    let (mut compared, mut linked) = (Compared::default(), LinkedFolders::default());
    for record in records {
        let entry = entry(record).ok_or_else(|| GitError::Unreadable {
            path: "the index".to_owned(),
            why: "the output of git ls-files has an unknown format".to_owned(),
        })?;
        if entry.stage != 0 {
            compared.unmerged.push(entry.path);
            continue;
        }
        if entry.is_unwatched() || entry.mode == SUBMODULE {
            continue;
        }
        let stat = FileStat::of(root, entry.path).filter(|stat| entry.is_of_type(stat));
        match stat.filter(|_| !linked.contain(root, entry.path)) {
            None => compared.edited.push(entry.path),
            Some(stat) => {
                // Git records a size of zero for an empty file, or to force a comparison of the
                // bytes.
                let whole = |known: &Stat| known.size != 0 || entry.is_empty_blob();
                let known = entry.stat.as_ref().filter(|known| whole(known));
                let same = known.is_some_and(|known| known.fits(&stat));
                // A file that was modified when the index was written, or later, may have changed
                // again within the timestamp's resolution.
                if !same || stat.mtime >= written {
                    compared.unsure.push((entry, stat, same));
                }
            }
        }
    }
    Ok(compared)
}

/// Parses the differences between `HEAD` and the index. Each difference is
/// `:MODE MODE OBJECT OBJECT STATUS`, a NUL, the path and a NUL.
fn staged_paths(listing: &[u8]) -> impl Iterator<Item = (&Path, Change)> {
    let mut fields = listing.split(|byte| *byte == 0);
    std::iter::from_fn(move || {
        let (facts, path) = (fields.next()?, fields.next()?);
        let change = if facts.ends_with(b"A") { Change::Added } else { Change::Staged };
        Some((Path::new(OsStr::from_bytes(path)), change))
    })
}

/// Returns a pathspec that git interprets literally, whatever characters it contains.
pub fn literal(path: &str) -> String {
    format!(":(literal){path}")
}

fn names(out: &[u8]) -> impl Iterator<Item = PathBuf> {
    out.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(name)
}

fn name(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn unreadable(path: &Path, error: &io::Error) -> GitError {
    GitError::Unreadable { path: path.display().to_string(), why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "  ctime: 1:2\n  mtime: 3:4\n  dev: 5\tino: 6\n  uid: 7\tgid: 8\n  size: 9\tflags: 0\n";

    #[test]
    fn hostile_names_hide_no_entries() {
        let names = ["plain", "  ctime: 1:2\n", "a\tb", STAT, "100644 0 1\tx", "\n\n"];
        let line = |name: &str| format!("100644 {} 0\t{name}\0{STAT}", "a".repeat(40));
        let listing: String = names.map(line).concat();
        let found = records(listing.as_bytes());
        let paths: Vec<&Path> = entries(&found).map(|entry| entry.path).collect();
        assert_eq!(paths, names.map(Path::new));
        assert!(entries(&found).all(|entry| entry.stat.is_some_and(|stat| stat.size == 9)));
    }

    #[test]
    fn unknown_listing_format_is_an_error() {
        let root = openat(CWD, "/", OFlags::PATH, Mode::empty()).unwrap();
        let entry = format!("100644 {} 0\tno-such-file\0", "a".repeat(40));
        for lines in [
            STAT.replace("  ctime", "ctime"),
            STAT.replace("  uid: 7\tgid: 8\n", ""),
            format!("{STAT}  new: 1\tvalue: 2\n"),
        ] {
            let listing = format!("{entry}{lines}").repeat(3);
            let compared = compare_stats(&root, &records(listing.as_bytes()), (0, 0));
            assert!(matches!(compared, Err(GitError::Unreadable { .. })), "{lines}");
        }
        // A value in an unexpected format makes only the stat data unknown.
        let listing = format!("{entry}{}", STAT.replace("3:4", "now")).repeat(3);
        let compared = compare_stats(&root, &records(listing.as_bytes()), (0, 0)).unwrap();
        assert_eq!(compared.edited.len(), 3);
    }
}
