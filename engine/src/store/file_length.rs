//! Checks the length that the header of the database file states, before any page is trusted.
//!
//! SQLite compares the stated length with the actual length only if there is no log beside the
//! file. With a log, SQLite detects a truncated file only when it reads a missing page. This module
//! must never close a file that it has inspected, because that would drop the locks that this
//! process holds on the file through SQLite.

use crate::files::open_host;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The inspected files, by device and inode. A process opens at most a few databases.
static LOOKED_AT: Mutex<BTreeMap<(u64, u64), File>> = Mutex::new(BTreeMap::new());

/// The actual length of a file and the length that its header states, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileLengths {
    found: u64,
    said: u64,
}

impl FileLengths {
    /// Returns whether the file is shorter than its header states. During a checkpoint by another
    /// process, this is also true for an intact file.
    pub fn is_short(self) -> bool {
        self.found < self.said
    }
}

/// Reads both lengths at nearly the same time.
pub(super) fn lengths(path: &Path) -> io::Result<FileLengths> {
    let data = fs::metadata(path)?;
    let mut looked_at = LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (data.dev(), data.ino());
    let file = match looked_at.entry(key) {
        std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
        std::collections::btree_map::Entry::Vacant(new) => new.insert(open_host(path)?),
    };
    let mut header = [0_u8; 32];
    if file.read_exact_at(&mut header, 0).is_err() {
        return Ok(FileLengths { found: file.metadata()?.len(), said: u64::MAX });
    }
    // According to https://www.sqlite.org/fileformat2.html, the page size is at offset 16 and the
    // number of pages is at offset 28.
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    Ok(FileLengths { found: file.metadata()?.len(), said: page * u64::from(pages) })
}
