//! Reads the last lines of a run's log and output, and its models' replies, for a user who is
//! investigating an outcome. No decision may depend on them.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use runner_backends::replay::file;
use runner_engine::files::open_host;
use runner_engine::ids::RunId;
use runner_engine::recover::RUNS;
use runner_text::redact::Redacted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::output;
use crate::recording;

/// The name of the log in a run's folder.
pub const LOG: &str = "log";

/// Maximum number of lines per file, and of characters per line.
const LINES: usize = 8;
const WIDTH: usize = 400;
/// Maximum number of bytes to read from the end of each file.
const READ: u64 = 16 * 1024;

/// The last lines of a run's files, all of them redacted.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct LogTail {
    /// The run's folder, if it still exists.
    pub folder: Option<String>,
    pub log: Vec<String>,
    /// The last lines of the program's output.
    pub stdout: Vec<String>,
    pub stderr: Vec<String>,
    /// The replies in the run's recording.
    pub replies: Vec<ModelReply>,
}

/// A backend's reply.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ModelReply {
    /// The name of the backend.
    pub backend: String,
    pub text: String,
}

impl LogTail {
    /// Reads the files of a run from the state folder. A file that cannot be read has no lines.
    pub fn of(state: &Path, run: &RunId) -> Self {
        let folder = state.join(RUNS).join(run.as_str());
        let recording = state.join(recording::FOLDER).join(recording::name_of(run));
        let exchanges = file::exchanges(&recording).unwrap_or_default();
        let replies = exchanges.into_iter().filter_map(|exchange| {
            let text = Redacted::of(&exchange.reply?.text).into_string();
            Some(ModelReply { backend: exchange.backend, text })
        });
        Self {
            log: last_lines(&folder.join(LOG)),
            stdout: last_lines(&folder.join(output::FILES[0])),
            stderr: last_lines(&folder.join(output::FILES[1])),
            folder: folder.is_dir().then(|| folder.display().to_string()),
            replies: replies.collect(),
        }
    }
}

fn last_lines(path: &Path) -> Vec<String> {
    let Ok((bytes, is_whole)) = open_host(path).and_then(end_of) else { return Vec::new() };
    // A secret may span several lines, so the text is redacted before it is split.
    let text = Redacted::of(&String::from_utf8_lossy(&bytes));
    // The read may begin in the middle of a line.
    let lines: Vec<&str> = text.lines().skip(usize::from(!is_whole)).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| Redacted::of(line).head(WIDTH).into_string()).collect()
}

/// Returns the end of a file, and whether it is the whole file.
fn end_of(mut file: File) -> io::Result<(Vec<u8>, bool)> {
    let start = file.metadata()?.len().saturating_sub(READ);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(READ).read_to_end(&mut bytes)?;
    Ok((bytes, start == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    #[test]
    fn only_whole_last_lines_are_shown() {
        let state = tempfile::tempdir().unwrap();
        let run = RunId::new(Timestamp::UNIX_EPOCH);
        assert_eq!(LogTail::of(state.path(), &run), LogTail::default());
        let folder = state.path().join(RUNS).join(run.as_str());
        std::fs::create_dir_all(&folder).unwrap();
        let lines: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
        std::fs::write(folder.join(LOG), lines).unwrap();
        let long = "x".repeat(usize::try_from(READ).unwrap());
        std::fs::write(folder.join("stdout"), format!("{long}{long}\nend\u{1b}[31m")).unwrap();
        std::fs::write(folder.join("stderr"), "key sk-ant-api03-0123456789abcdefghij\n").unwrap();
        let tail = LogTail::of(state.path(), &run);
        let expected: Vec<String> = (19_992..20_000).map(|line| format!("line {line}")).collect();
        assert_eq!(tail.log, expected);
        assert_eq!(tail.stdout, ["end[31m"]);
        assert!(!tail.stderr[0].contains("0123456789"), "{:?}", tail.stderr);
        assert_eq!(tail.folder.as_deref(), folder.to_str());
    }
}
