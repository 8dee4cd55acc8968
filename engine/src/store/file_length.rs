//! What the file says of its own length, before any page of it is trusted.
//!
//! SQLite compares the two by itself while there is no log beside the file; with one, a truncated
//! file is met only when a page that is missing is read. Must never close the file that it looked at:
//! that would take the locks away that this process holds on it through SQLite.

use crate::files::open_host;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Files that were looked at, by device and inode; a process opens one database or two.
static LOOKED_AT: Mutex<BTreeMap<(u64, u64), File>> = Mutex::new(BTreeMap::new());

/// How long a file is and how long its header says that it is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileLengths {
    found: u64,
    said: u64,
}

impl FileLengths {
    /// Whether the file is shorter than its header says. A checkpoint that another process makes at
    /// this very moment looks the same, so it is a suspicion only.
    pub fn is_short(self) -> bool {
        self.found < self.said
    }
}

/// Both lengths, as of about now.
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
        return Ok(FileLengths {
            found: file.metadata()?.len(),
            said: u64::MAX,
        });
    }
    // https://www.sqlite.org/fileformat2.html: the page size at 16, the number of pages at 28.
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    Ok(FileLengths {
        found: file.metadata()?.len(),
        said: page * u64::from(pages),
    })
}
