//! `runner board history`: lists the changes to the board.

use runner_engine::outcome::Exit;
use runner_jobs::lifecycle::board::{self, HistoryEvent, HistoryRecord};
use runner_text::counted;
use serde::Serialize;

use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

/// The changes to the board, newest first.
#[derive(Serialize)]
#[serde(transparent)]
struct BoardHistory<'a>(Vec<&'a HistoryRecord>);

impl View for BoardHistory<'_> {
    fn print(&self, _ui: Ui) {
        if self.0.is_empty() {
            show::out("the board has not been changed yet\n");
        }
        for record in &self.0 {
            let of = match (&record.entry, record.agent.as_str()) {
                (Some(entry), "") => format!(" of entry {entry}"),
                (Some(entry), agent) => format!(" of {agent}'s entry {entry}"),
                (None, "") => String::new(),
                (None, agent) => format!(" for {agent}"),
            };
            let what = match record.what {
                HistoryEvent::Apply => "verdicts",
                HistoryEvent::Pick => "picked",
                HistoryEvent::Add => "added",
                HistoryEvent::Done => "done",
            };
            show::out(&format!("{}  {what}{of}\n", show::format_time(record.ts)));
            for line in board::lines(std::slice::from_ref(*record)) {
                show::out(&format!("  {}\n", safe::line(&line)));
            }
        }
    }
}

/// Lists the last `limit` changes to the board, or all changes if `limit` is 0.
pub fn history(cli: &Cli<'_>, here: &LoadedProject, limit: usize) -> Result<Exit, Failure> {
    let history = board::history(&here.root)
        .map_err(|error| Failure::environment(format!("cannot read {}: {error}", board::PATH)))?;
    if history.unreadable > 0 {
        show::complain(&format!(
            "{} has {} that could not be parsed",
            board::PATH,
            counted(history.unreadable, "line")
        ));
    }
    let most = if limit == 0 { usize::MAX } else { limit };
    cli.ui.show(&BoardHistory(history.records.iter().rev().take(most).collect()));
    Ok(Exit::Done)
}
