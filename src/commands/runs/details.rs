//! `runner runs show`: shows all data about one run.

use jiff::Timestamp;
use runner_engine::admission::stopped;
use runner_engine::awake::SleepInhibition;
use runner_engine::outcome::{Exit, Outcome};
use runner_engine::store::{Event, RunRow, RunState};
use runner_jobs::failmark;
use runner_jobs::log_tail::LogTail;
use runner_jobs::telemetry::Tally;
use runner_text::counted;
use schemars::JsonSchema;
use serde::Serialize;

use super::{RunRecord, open, spending::RunSpending, state_name, tail, waits};
use crate::commands::Cli;
use crate::ui::{Failure, Ui, View, show};

/// Show all data about one run
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner runs show 01KA5V7Q4B")]
pub(super) struct ShowArgs {
    /// The run's id, or an unambiguous prefix of it
    run: String,
}

#[derive(Debug, JsonSchema, Serialize)]
pub(in crate::commands) struct RunDetails {
    #[serde(flatten)]
    run: RunRecord,
    /// The usage and tool counts reported by the run's backends.
    #[serde(rename = "told")]
    reported: Option<Tally>,
    #[serde(flatten)]
    spending: RunSpending,
    files: LogTail,
    #[serde(skip)]
    row: RunRow,
    /// The run's events, oldest first.
    events: Vec<Event>,
    /// Whether the circuit breaker keeps triggers from starting the job.
    #[serde(skip)]
    job_is_stopped: bool,
    #[serde(skip)]
    now: Timestamp,
}

impl ShowArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        cli.ui.show(&RunDetails::collect(cli, &self.run)?);
        Ok(Exit::Done)
    }
}

impl RunDetails {
    /// Reads the data for the run whose id begins with `run`.
    pub(super) fn collect(cli: &Cli<'_>, run: &str) -> Result<Self, Failure> {
        let (store, row) = open(cli.env, run)?;
        Ok(Self {
            run: RunRecord::of(&row),
            reported: Tally::of(&cli.env.run_folder(row.id.as_str())),
            spending: RunSpending::of(&store, &row)?,
            files: LogTail::of(&cli.env.state, &row.id),
            events: store.events_of(&row.id)?,
            job_is_stopped: stopped(store.streak(row.job)?),
            now: cli.env.wall()?,
            row,
        })
    }
}

impl View for RunDetails {
    fn print(&self, _ui: Ui) {
        show::out(&self.text(show::table));
    }
}

impl RunDetails {
    /// Formats all data about the run, using `table` to lay out the rows.
    pub(super) fn text(&self, table: fn(&[Vec<String>]) -> String) -> String {
        let mut rows = self.state();
        rows.extend(self.usage());
        let row = &self.row;
        // A run without a result has the reason for its outcome as its headline.
        let why = row.outcome().and_then(Outcome::why);
        if !row.summary.headline.is_empty() && why != Some(row.summary.headline.as_str()) {
            rows.push(show::row(["headline", &row.summary.headline]));
        }
        rows.extend(row.summary.lines.iter().map(|line| show::row(["", line])));
        if let Some(tally) = &self.reported {
            rows.extend(tool_counts(tally).iter().map(|(name, value)| show::row([name, value])));
        }
        rows.extend(row.summary.artifacts.iter().map(|path| show::row(["published", path])));
        if let Some(outcome) =
            row.outcome().filter(|it| it.class().is_some() && self.job_is_stopped)
        {
            let hint = failmark::hint(outcome);
            let text = format!("{hint}; then `runner jobs reset {}`", row.job_name);
            rows.push(show::row(["to do", &text]));
        }
        rows.extend(self.events.iter().map(|event| show::row([&event.kind, &event.detail])));
        rows.extend(self.files.folder.iter().map(|folder| show::row(["folder", folder])));
        table(&rows) + &tail::text(&self.files, &row.id)
    }

    /// Returns the rows about the run's request and state.
    fn state(&self) -> Vec<Vec<String>> {
        let row = &self.row;
        let state = row.outcome().map_or_else(|| state_name(row).to_owned(), Outcome::to_string);
        let mut rows = vec![
            show::row(["run", row.id.as_str()]),
            show::row(["job", &format!("{} ({})", row.job_name, row.kind)]),
            show::row(["state", &state]),
            show::row(["attempt", &row.attempt.to_string()]),
            show::row(["due", &show::format_time(row.due)]),
            show::row(["origin", row.origin.as_str()]),
        ];
        let mut pair = |name: &str, value: &str| rows.push(show::row([name, value]));
        if matches!(row.state, RunState::Queued { .. }) {
            pair("queued", &waits(row, self.now));
        }
        if row.priority != 0 {
            pair("priority", &row.priority.to_string());
        }
        for (key, value) in &row.settings {
            pair("set", &format!("{key} = {value}"));
        }
        if let Some(why) = row.cancel().filter(|_| row.outcome().is_none()) {
            pair("asked to end", why);
        }
        if let Some(at) = row.started() {
            pair("started", &show::format_time(at));
        }
        if let Some(at) = row.finished() {
            pair("finished", &show::format_time(at));
        }
        if let Some(owner) = row.owner() {
            pair("process", &owner.to_string());
        }
        rows
    }

    /// Returns the rows about the resources that the run used.
    fn usage(&self) -> Vec<Vec<String>> {
        let row = &self.row;
        let mut rows = vec![show::row(["model calls", &row.model_calls.to_string()])];
        if row.started().is_some() {
            rows.extend(self.spending.lines());
        }
        let awake = row.summary.awake.as_ref().map(SleepInhibition::to_string);
        for (name, value) in [
            ("backend", &row.summary.backend),
            ("sandbox", &row.summary.containment),
            ("sleep", &awake.unwrap_or_default()),
        ] {
            if !value.is_empty() {
                rows.push(show::row([name, value]));
            }
        }
        rows
    }
}

/// Formats the usage and tool counts that the backends reported.
fn tool_counts(tally: &Tally) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let usage = &tally.usage;
    let mut used = format!(
        "{} in ({} cached), {} out",
        counted(usage.input_tokens, "token"),
        usage.cached_input_tokens,
        usage.output_tokens
    );
    if let Some(cost) = usage.cost_micros {
        used.push_str(&format!(", ${}.{:06}", cost / 1_000_000, cost % 1_000_000));
    }
    if tally.unstated > 0 {
        used.push_str(&format!("; {} of {} reported no usage", tally.unstated, tally.asked));
    }
    lines.push(("reported usage", used));
    if !tally.tools.is_empty() {
        let tools = tally.tools.iter().map(|(name, count)| format!("{name} ×{count}"));
        let mut tools = tools.collect::<Vec<_>>().join(", ");
        if tally.tools_failed > 0 {
            tools.push_str(&format!("; {} failed", tally.tools_failed));
        }
        lines.push(("tools", tools));
    }
    lines
}
