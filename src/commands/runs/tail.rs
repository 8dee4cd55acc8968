//! The last lines of a run's log and output, and the replies of its models.

use std::path::Path;

use runner_engine::files::{RECORD, read_host};
use runner_engine::ids::RunId;
use runner_jobs::output;
use runner_jobs::recording::Recording;
use runner_text::redact::Redacted;
use serde::Serialize;

use crate::env::Env;
use crate::ui::{log, show};

/// The number of lines of each file.
const LINES: usize = 8;
/// Maximum number of characters of a shown reply.
const REPLY: usize = 2_000;

/// The last lines of a run's files.
#[derive(Debug, Serialize)]
pub(super) struct LogTail {
    /// The run's folder, if it still exists.
    folder: Option<String>,
    /// The last lines of the log, and of the program's output.
    log: Vec<String>,
    stdout: Vec<String>,
    stderr: Vec<String>,
    /// The text of each reply that the run's recording has, redacted and unparsed.
    replies: Vec<ModelReply>,
}

#[derive(Debug, Serialize)]
struct ModelReply {
    backend: String,
    text: String,
}

impl LogTail {
    pub(super) fn of(home: &Env, run: &RunId) -> Self {
        let folder = home.run_folder(run.as_str());
        let recording = Recording::read(&home.recording(run)).ok();
        let replies = recording.into_iter().flat_map(|it| it.asked).filter_map(|exchange| {
            Some(ModelReply { backend: exchange.backend, text: exchange.reply?.text })
        });
        Self {
            log: last_lines(&folder.join(log::FILE)),
            stdout: last_lines(&folder.join(output::FILES[0])),
            stderr: last_lines(&folder.join(output::FILES[1])),
            folder: folder.is_dir().then(|| folder.display().to_string()),
            replies: replies.collect(),
        }
    }

    /// Returns the row about the run's folder.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        self.folder.iter().map(|folder| show::row(["folder", folder])).collect()
    }

    /// Formats the files and the replies, each below a heading.
    pub(super) fn text(&self, run: &RunId) -> String {
        let mut text = String::new();
        let log = format!("last lines of the log (all: runner logs {run})");
        for (heading, lines) in [
            (log.as_str(), &self.log),
            ("last lines of stdout", &self.stdout),
            ("last lines of stderr", &self.stderr),
        ] {
            if !lines.is_empty() {
                text.push_str(&format!("\n{heading}:\n"));
                text.extend(lines.iter().map(|line| format!("  {}\n", show::printable(line))));
            }
        }
        for reply in &self.replies {
            text.push_str(&format!("\nreply of {}:\n", reply.backend));
            let whole = Redacted::of(&reply.text);
            let shown = whole.clone().head(REPLY);
            text.extend(shown.lines().map(|line| format!("  {}\n", show::printable(line))));
            if shown != whole {
                text.push_str("  … (the whole reply: runner runs show --json)\n");
            }
        }
        text
    }
}

fn last_lines(path: &Path) -> Vec<String> {
    let Ok(bytes) = read_host(path, RECORD) else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].iter().map(|line| (*line).to_owned()).collect()
}
