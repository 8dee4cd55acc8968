//! `runner report search`: searches the reports of all nights for a string.

use runner_engine::outcome::Exit;
use runner_jobs::report::{self, archive};
use runner_text::redact::Redacted;
use serde::Serialize;

use super::ReportedProject;
use crate::commands::Cli;
use crate::ui::show::{List, Tone};
use crate::ui::{Failure, Ui, View, show};

/// Maximum number of characters to print per line.
const WIDTH: usize = 200;

/// Search the reports of all nights for a string, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner report search 'rate limit' --limit 10")]
pub(super) struct SearchArgs {
    /// The string; case is ignored
    text: String,
    /// Maximum number of lines; 0 means all
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

/// The lines that contain the string.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct FoundLines {
    lines: Vec<FoundLine>,
    /// Number of matching lines beyond the limit.
    #[serde(skip)]
    more: usize,
}

/// A line of a report.
#[derive(Debug, Serialize)]
struct FoundLine {
    night: String,
    /// The 1-based line number in the Markdown report.
    line: usize,
    text: String,
}

impl View for FoundLines {
    fn print(&self, ui: Ui) {
        if self.lines.is_empty() {
            return show::out("no report contains this text\n");
        }
        let row = |found: &FoundLine| {
            let text = Redacted::of(&found.text).head(WIDTH);
            (Tone::Plain, show::row([&found.night, &found.line.to_string(), &text]))
        };
        let rows = self.lines.iter().map(row).collect();
        List { header: &["NIGHT", "LINE", "TEXT"], toned: 0, rows }.print();
        if self.more > 0 {
            let more = show::count(self.more as u64, "more line");
            ui.info(&format!("{more}; --limit 0 shows all"));
        }
    }
}

impl SearchArgs {
    /// Prints the lines that contain the string, from the reports of all nights.
    pub(super) fn run(&self, cli: &Cli<'_>, project: &ReportedProject) -> Result<Exit, Failure> {
        let wanted = self.text.trim().to_lowercase();
        if wanted.is_empty() {
            return Err(
                Failure::usage("no search text given").hint("runner report search 'rate limit'")
            );
        }
        let limit = if self.limit == 0 { usize::MAX } else { self.limit };
        let store = cli.env.store_to_read()?;
        let now = cli.env.wall()?;
        let mut found = FoundLines { lines: Vec::new(), more: 0 };
        for night in archive::nights(store.as_ref(), &project.id, &project.root)? {
            let report = archive::report(store.as_ref(), &project.root, &night, now)?;
            let Some(report) = report else { continue };
            // Redact before searching, so that no secret or part of one can match.
            let text = Redacted::of(&report::markdown(&report));
            for (at, line) in text.lines().enumerate() {
                if !line.to_lowercase().contains(&wanted) {
                    continue;
                }
                if found.lines.len() == limit {
                    found.more += 1;
                    continue;
                }
                let (night, text) = (night.night.clone(), line.trim().to_owned());
                found.lines.push(FoundLine { night, line: at + 1, text });
            }
        }
        cli.ui.show(&found);
        Ok(Exit::Done)
    }
}
