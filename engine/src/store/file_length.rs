//! Compares the length of the database file with the length in its header.
//!
//! SQLite makes this comparison only if there is no log next to the file. With a log, it detects a
//! truncated file only when it reads a missing page. This module must never close an inspected
//! file, because that would release the locks that SQLite holds on the file for this process.

use crate::files::open_host;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The inspected files, by device and inode. A process opens at most a few databases.
static INSPECTED: Mutex<BTreeMap<(u64, u64), File>> = Mutex::new(BTreeMap::new());

/// A file's actual length and the length in its header, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileLengths {
    found: u64,
    stated: u64,
}

impl FileLengths {
    /// Returns whether the file is shorter than the length in its header. An intact file can be
    /// short during a checkpoint or after an interrupted one.
    pub fn is_short(self) -> bool {
        self.found < self.stated
    }
}

/// Reads both lengths. If the header cannot be read completely, the result is short.
pub(super) fn lengths(path: &Path) -> io::Result<FileLengths> {
    let data = fs::metadata(path)?;
    let mut inspected = INSPECTED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (data.dev(), data.ino());
    let file = match inspected.entry(key) {
        std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
        std::collections::btree_map::Entry::Vacant(new) => new.insert(open_host(path)?),
    };
    let mut header = [0_u8; 32];
    if file.read_exact_at(&mut header, 0).is_err() {
        return Ok(FileLengths { found: file.metadata()?.len(), stated: u64::MAX });
    }
    // The page size is at offset 16 and the number of pages is at offset 28, according to
    // https://www.sqlite.org/fileformat2.html.
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    Ok(FileLengths { found: file.metadata()?.len(), stated: page * u64::from(pages) })
}
