//! Stores the redacted output of a job's program in the run's folder as it arrives.
//!
//! A failed write must never block the program. The error is reported at the end.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use runner_engine::process::Stream;
use runner_text::redact::{Redactor, StreamRedactor};

use crate::JobError;

/// The names of the two files in a run's folder.
pub const FILES: [&str; 2] = ["stdout", "stderr"];

/// Both output streams of a program.
pub(crate) struct Output {
    streams: [OutputFile; 2],
}

struct OutputFile {
    path: PathBuf,
    file: File,
    redactor: StreamRedactor,
    failed: Option<std::io::Error>,
}

impl Output {
    /// Creates or truncates both files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be created.
    pub(crate) fn begin(folder: &Path, redactor: &Redactor) -> Result<Self, JobError> {
        let one = |name: &str| {
            let path = folder.join(name);
            match File::create(&path) {
                Ok(file) => {
                    Ok(OutputFile { path, file, redactor: redactor.stream(), failed: None })
                }
                Err(source) => Err(cannot(path, source)),
            }
        };
        Ok(Self { streams: [one(FILES[0])?, one(FILES[1])?] })
    }

    /// Redacts and stores the next bytes of a stream.
    pub(crate) fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let one = match stream {
            Stream::Stdout => &mut self.streams[0],
            Stream::Stderr => &mut self.streams[1],
        };
        let text = one.redactor.push(bytes);
        one.keep(&text);
    }

    /// Stores the text that the redactors are still holding back.
    ///
    /// # Errors
    /// Returns an error if any write failed, now or earlier.
    pub(crate) fn finish(self) -> Result<(), JobError> {
        for mut one in self.streams {
            let text = one.redactor.finish();
            one.keep(&text);
            if let Some(source) = one.failed {
                return Err(cannot(one.path, source));
            }
        }
        Ok(())
    }
}

impl OutputFile {
    fn keep(&mut self, text: &str) {
        if self.failed.is_none() && !text.is_empty() {
            self.failed = self.file.write_all(text.as_bytes()).err();
        }
    }
}

fn cannot(path: PathBuf, source: std::io::Error) -> JobError {
    JobError::Io { doing: "write", path, source }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn output_is_redacted_and_stored_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let redactor = Redactor::new(vec!["hunter2hunter2".to_owned()]);
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let mut output = Output::begin(folder.path(), &redactor).unwrap();
        output.take(Stream::Stdout, b"one\ntwo hunter2");
        output.take(Stream::Stderr, b"\xff oops\n");
        assert_eq!(read("stdout"), "one\n", "a complete line is written at once");
        output.take(Stream::Stdout, b"hunter2\nthree");
        assert!(read("stdout").starts_with("one\ntwo ") && !read("stdout").contains("hunter2"));
        output.finish().unwrap();
        assert!(read("stdout").ends_with("\nthree"));
        assert_eq!(read("stderr"), "\u{fffd} oops\n");
    }
}
