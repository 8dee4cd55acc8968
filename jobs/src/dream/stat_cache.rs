//! A cache of each note file's kind and, for an idea, its digest, so that unchanged ideas are not
//! opened.
//!
//! The cache is a file in runner's cache folder, never in the work tree. If the file is missing,
//! damaged or in another format, the cache is empty. The cache must never cause an error, and must
//! never return a digest for content that was not read.
//!
//! The cache follows git's rule for racily clean entries (`Documentation/technical/racy-git.txt`):
//! an entry is not trusted if the stat data show a change at or after the time when the cache was
//! written. Such a file may have changed again within the clock's resolution.

use std::fs;
use std::path::Path;

use runner_engine::digest::Digest;
use runner_engine::files::{RECORD, read_host};

use super::walk::Stat;

/// The first bytes of the file, which include the format version.
const MAGIC: &[u8] = b"runner-dream-stat-cache 2\n";
/// Size of a record without its path, in bytes: length, stat, kind, digest.
const FIXED: usize = 2 + 32 + 1 + 32;

/// The kind of a cached file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedFile {
    /// An idea with this content.
    Idea(Digest),
    /// A file that runner wrote and the user has not edited.
    Own,
    /// A file that is not UTF-8.
    NotText,
}

/// The cache as it was loaded: one block of bytes, searched in place.
#[derive(Debug, Default)]
pub struct StatCache {
    bytes: Vec<u8>,
    /// The offset of each record, sorted by record path.
    records: Vec<u32>,
    /// The time when the file was written, in nanoseconds since the epoch.
    written: i64,
}

impl StatCache {
    /// Loads the cache at `path`. A missing or damaged file yields an empty cache.
    pub fn load(path: &Path) -> Self {
        let read = || -> Option<Self> {
            let bytes = read_host(path, RECORD).ok()?;
            let written = Stat::of(&fs::metadata(path).ok()?).mtime;
            Self::parse(bytes, written)
        };
        read().unwrap_or_default()
    }

    fn parse(bytes: Vec<u8>, written: i64) -> Option<Self> {
        let body = bytes.len().checked_sub(32)?;
        if !bytes.starts_with(MAGIC) || *Digest::of(&bytes[..body]).as_bytes() != bytes[body..] {
            return None;
        }
        let mut records = Vec::with_capacity(body / 100);
        let mut at = MAGIC.len();
        while at < body {
            let length = usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
            records.push(u32::try_from(at).ok()?);
            at += FIXED + length;
        }
        (at == body).then_some(Self { bytes, records, written })
    }

    /// Returns the digest at the end of the loaded file, or `None` if there was no valid file.
    pub fn digest(&self) -> Option<Digest> {
        digest_of(&self.bytes)
    }

    /// Returns the number of files in the cache.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether the cache contains no files.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the kind of the file at `path`, or `None` if the file is not in the cache or may
    /// have changed since it was read. The record at index `hint` is checked first, and `hint` is
    /// then set to the index after the record that was found. A caller that makes queries in path
    /// order starts with 0 and passes the same variable to each call.
    pub fn get(&self, path: &str, stat: &Stat, hint: &mut usize) -> Option<CachedFile> {
        let here = |at: &u32| self.path(*at).cmp(path.as_bytes());
        let at = match self.records.get(*hint) {
            Some(record) if here(record).is_eq() => *hint,
            _ => self.records.binary_search_by(here).ok()?,
        };
        *hint = at + 1;
        if stat.mtime.max(stat.ctime) >= self.written {
            return None;
        }
        let start = self.records[at] as usize + 2 + path.len();
        let record = &self.bytes[start..start + FIXED - 2];
        if record[..32] != stat_bytes(stat) {
            return None;
        }
        match record[32] {
            0 => Some(CachedFile::Idea(digest_of(record)?)),
            1 => Some(CachedFile::Own),
            2 => Some(CachedFile::NotText),
            _ => None,
        }
    }

    fn path(&self, at: u32) -> &[u8] {
        let at = at as usize;
        let length = usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]));
        &self.bytes[at + 2..at + 2 + length]
    }
}

/// Encodes entries, which must be in path order, as the content of the cache file.
pub fn encode<'a>(entries: impl Iterator<Item = (&'a str, Stat, CachedFile)>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for (path, stat, known) in entries {
        // A file whose path is too long for a record is not cached.
        let Ok(length) = u16::try_from(path.len()) else {
            continue;
        };
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(path.as_bytes());
        bytes.extend_from_slice(&stat_bytes(&stat));
        let (kind, digest) = match known {
            CachedFile::Idea(digest) => (0, *digest.as_bytes()),
            CachedFile::Own => (1, [0; 32]),
            CachedFile::NotText => (2, [0; 32]),
        };
        bytes.push(kind);
        bytes.extend_from_slice(&digest);
    }
    let sum = Digest::of(&bytes);
    bytes.extend_from_slice(sum.as_bytes());
    bytes
}

/// Returns the digest in the last 32 bytes, or `None` if there are fewer bytes.
pub fn digest_of(bytes: &[u8]) -> Option<Digest> {
    bytes.last_chunk().map(|raw| Digest::from_bytes(*raw))
}

fn stat_bytes(stat: &Stat) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&stat.size.to_le_bytes());
    bytes[8..16].copy_from_slice(&stat.mtime.to_le_bytes());
    bytes[16..24].copy_from_slice(&stat.ctime.to_le_bytes());
    bytes[24..].copy_from_slice(&stat.inode.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(mtime: i64) -> Stat {
        Stat { size: 3, mtime, ctime: mtime, inode: 7 }
    }

    fn sample() -> Vec<u8> {
        let idea = CachedFile::Idea(Digest::of(b"abc"));
        let entries = [
            ("a.md", stat(10), idea),
            ("b/ü.md", stat(20), CachedFile::Own),
            ("c", stat(30), CachedFile::NotText),
        ];
        encode(entries.into_iter())
    }

    #[test]
    fn written_entries_are_read_back() {
        let cache = StatCache::parse(sample(), 100).unwrap();
        assert_eq!(cache.len(), 3);
        assert_eq!(
            cache.get("a.md", &stat(10), &mut 0),
            Some(CachedFile::Idea(Digest::of(b"abc")))
        );
        assert_eq!(cache.get("b/ü.md", &stat(20), &mut 0), Some(CachedFile::Own));
        assert_eq!(cache.get("c", &stat(30), &mut 0), Some(CachedFile::NotText));
        assert_eq!(cache.get("d", &stat(30), &mut 0), None);
    }

    #[test]
    fn any_stat_difference_is_a_cache_miss() {
        let cache = StatCache::parse(sample(), 100).unwrap();
        let same = stat(10);
        for changed in [
            Stat { size: 4, ..same },
            Stat { mtime: 11, ..same },
            Stat { ctime: 11, ..same },
            Stat { inode: 8, ..same },
        ] {
            assert_eq!(cache.get("a.md", &changed, &mut 0), None, "{changed:?}");
        }
    }

    #[test]
    fn racy_entry_is_not_trusted() {
        let cache = StatCache::parse(sample(), 20).unwrap();
        assert!(cache.get("a.md", &stat(10), &mut 0).is_some());
        assert_eq!(
            cache.get("b/ü.md", &stat(20), &mut 0),
            None,
            "changed when the cache was written"
        );
        assert_eq!(cache.get("c", &stat(30), &mut 0), None, "changed later");
    }

    #[test]
    fn damaged_or_missing_cache_is_not_used() {
        let good = sample();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(StatCache::parse(bad, 100).is_none(), "byte {at}");
            assert!(StatCache::parse(good[..at].to_vec(), 100).is_none(), "cut at {at}");
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(StatCache::load(folder.path()).is_empty());
        assert!(StatCache::load(&folder.path().join("none")).is_empty());
    }
}
