//! Writes the daemon's messages to standard error and, with timestamps, to its log.
//!
//! When the log reaches one mebibyte, it is renamed to `daemon.log.1` and replaces the previous
//! file of that name.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

use crate::ui::{Failure, Ui, show};
use runner_engine::files::open_with;

/// Size of the log, in bytes, at which it is rotated.
const LONGEST: u64 = 1024 * 1024;
/// The default filter. It excludes messages such as "Uninited" from the library that wakes the
/// daemon.
const DEFAULT: &str = "info,tokio_cron_scheduler=error";

#[derive(Clone, Copy, Debug)]
pub struct DaemonLog {
    ui: Ui,
}

impl DaemonLog {
    /// Installs a global `tracing` subscriber that writes to the log at `path`. `wanted` is a
    /// filter such as `debug`; the default is [`DEFAULT`].
    pub fn start(path: &Path, wanted: Option<&str>, ui: Ui) -> Result<Self, Failure> {
        let cannot = |error: io::Error| Failure::not_written(path, error);
        let filter = EnvFilter::try_new(wanted.unwrap_or(DEFAULT)).map_err(|error| {
            Failure::environment(format!("RUNNER_LOG={}: {error}", wanted.unwrap_or_default()))
        })?;
        let sink = RotatingFile::open(path).map_err(cannot)?;
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_target(false)
            .with_writer(Mutex::new(sink))
            .finish();
        tracing::subscriber::set_global_default(subscriber)
            .map_err(|error| Failure::internal(format!("cannot start the log: {error}")))?;
        Ok(Self { ui })
    }

    /// Writes a notice, which `--quiet` suppresses on standard error.
    pub fn log(self, text: &str) {
        tracing::info!("{text}");
        self.ui.info(text);
    }

    pub fn complain(self, text: &str) {
        tracing::warn!("{text}");
        show::complain(text);
    }
}

/// A log file that is rotated to `*.1` when it reaches [`LONGEST`].
struct RotatingFile {
    path: PathBuf,
    file: File,
    length: u64,
}

impl RotatingFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = open_with(File::options().create(true).append(true), path)?;
        let length = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, length })
    }
}

impl Write for RotatingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.length >= LONGEST {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            fs::rename(&self.path, &old)?;
            *self = Self::open(&self.path)?;
        }
        let written = self.file.write(bytes)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_log_replaces_the_previous_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daemon.log");
        let line = vec![b'x'; 1024];
        let mut log = RotatingFile::open(&path).unwrap();
        for _ in 0..2_500 {
            log.write_all(&line).unwrap();
        }
        let length = |path: &Path| fs::metadata(path).unwrap().len();
        assert_eq!(length(&folder.path().join("daemon.log.1")), LONGEST);
        assert_eq!(length(&path), 2_500 * 1024 - 2 * LONGEST);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
