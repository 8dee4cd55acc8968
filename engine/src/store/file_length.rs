//! The length that the database file's header states, checked before any page of it is trusted.
//!
//! SQLite compares the stated length with the actual one only while there is no log beside the
//! file; with a log, a truncated file is noticed only when a missing page is read. This module must
//! never close the file that it inspected: that would drop the locks that this process holds on the
//! file through SQLite.

use crate::files::open_host;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Files that were looked at, by device and inode; a process opens one database or two.
static LOOKED_AT: Mutex<BTreeMap<(u64, u64), File>> = Mutex::new(BTreeMap::new());

/// The length of a file and the length that its header states, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileLengths {
    found: u64,
    said: u64,
}

impl FileLengths {
    /// Returns whether the file is shorter than its header states. A checkpoint that another
    /// process is just making looks the same, so the result is only a suspicion.
    pub fn is_short(self) -> bool {
        self.found < self.said
    }
}

/// Reads both lengths, at about the same time.
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
    // https://www.sqlite.org/fileformat2.html: the page size at 16, the number of pages at 28.
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    Ok(FileLengths { found: file.metadata()?.len(), said: page * u64::from(pages) })
}
