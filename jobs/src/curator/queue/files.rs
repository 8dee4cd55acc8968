//! Reads the worker's small files without following links, and appends complete lines to them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use super::LARGEST;
use runner_engine::files::{Refused, open_no_link, open_with_no_link};

/// Returns whether a file has the name of a job file.
pub(super) fn is_job(name: &OsStr) -> bool {
    let name = name.to_str().unwrap_or_default();
    name.ends_with(".json") && !name.starts_with('.')
}

/// Returns the sorted names of the job files in a folder. A missing folder is treated as empty.
pub(in crate::curator) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        if is_job(&name) {
            names.extend(name.into_string().ok());
        }
    }
    names.sort();
    Ok(names)
}

/// Reads at most [`LARGEST`] + 1 bytes of a plain file, or returns `None` if the file does not
/// exist. A file that must not be opened yields empty content, which is not a valid job. The file
/// is therefore moved to `failed/` and does not block the others.
pub(in crate::curator) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match open_no_link(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.get_ref().is_some_and(|inner| inner.is::<Refused>()) => {
            return Ok(Some(Vec::new()));
        }
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

pub(in crate::curator) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Appends complete lines to a file, and first terminates an unfinished last line. The caller must
/// hold the lock.
pub(in crate::curator) fn append(path: &Path, lines: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.create(true).append(true).read(true);
    let mut file = open_with_no_link(&mut options, path)?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    if length > 0 {
        let mut last = [0];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut last, length - 1)?;
        if last != *b"\n" {
            bytes.push(b'\n');
        }
    }
    bytes.extend_from_slice(lines);
    file.write_all(&bytes)?;
    file.sync_data()
}
