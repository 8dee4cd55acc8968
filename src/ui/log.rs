//! Writes a run's log to a file in the run's folder, redacted line by line.
//!
//! `RUNNER_LOG` sets the level, as in `RUNNER_LOG=debug`. If it is not set, `-v` raises the level
//! from `info`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use runner_engine::files::open_with;
use runner_text::redact::Redacted;
use tracing_subscriber::EnvFilter;

/// The name of the log file in a run's folder.
pub const FILE: &str = runner_jobs::log_tail::LOG;

/// Installs a global `tracing` subscriber that writes to the run's log.
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

/// Buffers text until a line is complete, then redacts the line and writes it.
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
