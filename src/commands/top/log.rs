//! Reads the tail of a run's log and of its program's output, which grow as the run proceeds.

use std::path::Path;

use crate::follow::{self, FileTail, Stopped};

/// Maximum number of bytes to read from each file at once. Earlier bytes are skipped, so reading a
/// log of several gigabytes costs no more than reading a short one.
const END: u64 = 128 * 1024;

/// Reads the log and the output of one run.
pub(super) struct LogReader {
    files: Vec<FileTail>,
}

impl LogReader {
    /// Creates a reader for the files in a run's folder.
    pub(super) fn new(folder: &Path) -> Self {
        Self { files: follow::FILES.map(|(name, _)| FileTail::new(folder.join(name), 0)).into() }
    }

    /// Returns the new lines of all files, as `runner logs --follow` prints them.
    ///
    /// # Errors
    /// Returns a description of the problem if a file cannot be read.
    pub(super) fn read(&mut self) -> Result<String, String> {
        let mut new = String::new();
        for (which, file) in self.files.iter_mut().enumerate() {
            file.skip_to_last(END);
            let done = file.read(&mut |text, _| {
                new.push_str(&follow::shown(which, text));
                Ok(())
            });
            if let Err(Stopped::Log(error)) = done {
                return Err(format!("cannot read {}: {error}", file.path.display()));
            }
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Seek as _, SeekFrom, Write as _};

    use super::*;

    #[test]
    fn only_end_of_long_log_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut reader = LogReader::new(folder.path());
        assert_eq!(reader.read(), Ok(String::new()), "there is no log yet");
        let path = folder.path().join("log");
        let mut file = fs::File::create(&path).unwrap();
        // A sparse file of 10 GB uses almost no disk space.
        file.set_len(10_000_000_000).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"end of a cut line\nfirst\nlast\n").unwrap();
        assert_eq!(reader.read().unwrap(), "first\nlast\n");
        file.write_all(b"new\nunfinished").unwrap();
        assert_eq!(reader.read().unwrap(), "new\n");
        file.write_all(b" line\n").unwrap();
        assert_eq!(reader.read().unwrap(), "unfinished line\n");
        let many: String = (0..100_000).map(|line| format!("line {line}\n")).collect();
        file.write_all(many.as_bytes()).unwrap();
        let seen = reader.read().unwrap();
        assert!(seen.len() < 140_000 && seen.ends_with("line 99999\n"), "{}", seen.len());
        assert!(seen.starts_with("line "), "{:?}", seen.lines().next());
    }
}
