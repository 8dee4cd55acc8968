//! Writes the log of one run to a file in the run's private folder, and redacts it line by line.
//!
//! `RUNNER_LOG` (as in `RUNNER_LOG=debug`) or `-v` sets the level; the default is `info`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use runner_engine::files::open_with;
use runner_text::redact::Redacted;
use tracing_subscriber::EnvFilter;

/// The name of the log file in a run's folder.
pub const FILE: &str = "log";

/// Sends all subsequent trace events to the run's log.
pub fn start(folder: &Path, verbose: u8, wanted: Option<&str>) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut options = File::options();
    let file = open_with(options.create(true).append(true), folder.join(FILE))?;
    let level = match verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    let filter = match wanted {
        None => EnvFilter::new(level),
        Some(wanted) => EnvFilter::try_new(wanted)
            .map_err(|error| io::Error::other(format!("RUNNER_LOG={wanted}: {error}")))?,
    };
    let sink = Mutex::new(RedactedLines { file, line: Vec::new() });
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_target(false)
        .with_writer(sink)
        .finish();
    tracing::subscriber::set_global_default(subscriber).map_err(io::Error::other)
}

/// A writer that writes whole lines and redacts the secrets in each.
struct RedactedLines {
    file: File,
    line: Vec<u8>,
}

impl Write for RedactedLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.line.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line);
            self.file.write_all(Redacted::of(&text).as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
