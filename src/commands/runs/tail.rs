//! Formats the tail of a run's log and output, and its models' replies.

use runner_engine::ids::RunId;
use runner_jobs::log_tail::LogTail;

use crate::ui::show;

/// Maximum number of characters to print per reply.
const REPLY: usize = 2_000;

/// Formats the files and the replies, each below a heading.
pub(super) fn text(tail: &LogTail, run: &RunId) -> String {
    let mut text = String::new();
    let log = format!("last lines of the log (all: runner logs {run})");
    for (heading, lines) in [
        (log.as_str(), &tail.log),
        ("last lines of stdout", &tail.stdout),
        ("last lines of stderr", &tail.stderr),
    ] {
        if !lines.is_empty() {
            text.push_str(&format!("\n{heading}:\n"));
            text.extend(lines.iter().map(|line| format!("  {}\n", show::printable(line))));
        }
    }
    for reply in &tail.replies {
        text.push_str(&format!("\nreply of {}:\n", reply.backend));
        let shown: String = reply.text.chars().take(REPLY).collect();
        text.extend(shown.lines().map(|line| format!("  {}\n", show::printable(line))));
        if shown.len() < reply.text.len() {
            text.push_str("  … (the whole reply: runner runs show --json)\n");
        }
    }
    text
}
