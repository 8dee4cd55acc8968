//! Formats the summary of a night as Markdown or as text for a terminal.
//!
//! Text from other sources is reduced to one line, and is escaped in Markdown. In the text for a
//! terminal, commands are left unchanged.

use runner_text::counted;
use serde_json::Value;

use super::output::{Output, OutputError, SUMMARY};
use super::summary::{RunStatus, StepStatus, Summary};
use crate::dream::proposal::clean;
use crate::json::pretty;
use crate::report::{code, one_line};

/// Writes a summary as Markdown and as JSON.
///
/// # Errors
/// Returns an [`OutputError`] if a file cannot be written.
pub fn write(out: &Output, summary: &Summary) -> Result<(), OutputError> {
    // The JSON is written last, so the Markdown exists whenever the JSON exists.
    out.text(SUMMARY[1], &markdown(summary))?;
    out.text(SUMMARY[0], &pretty(summary))
}

/// Writes a summary as Markdown and as JSON under another name.
///
/// # Errors
/// Returns an [`OutputError`] if a file cannot be written.
pub fn write_as(out: &Output, name: &str, summary: &Summary) -> Result<(), OutputError> {
    out.text(&format!("{name}.md"), &markdown(summary))?;
    out.text(&format!("{name}.json"), &pretty(summary))
}

pub fn status_name(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Planned => "planned",
        RunStatus::DryRun => "dry run",
        RunStatus::Done => "done",
        RunStatus::Failed => "failed",
    }
}

pub fn markdown(summary: &Summary) -> String {
    format_summary(summary, &[], ReportForm::Markdown)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportForm {
    /// Markdown. Markup in text from other sources is escaped.
    Markdown,
    /// Text for a terminal, without markup.
    Plain,
}

/// A report being written.
struct ReportBuilder {
    out: String,
    form: ReportForm,
}

impl ReportBuilder {
    fn text(&self, text: &str) -> String {
        match self.form {
            ReportForm::Markdown => one_line(text),
            ReportForm::Plain => clean(text, 2_000),
        }
    }

    fn code(&self, text: &str) -> String {
        match self.form {
            ReportForm::Markdown => code(text),
            ReportForm::Plain => text.to_owned(),
        }
    }

    fn head(&mut self, depth: usize, text: &str) {
        let (marks, line) = (&"###"[..depth.min(3)], self.text(text));
        match (self.form, depth) {
            (ReportForm::Markdown, _) => self.out.push_str(&format!("{marks} {line}\n\n")),
            (ReportForm::Plain, _) => self.out.push_str(&format!("{line}\n\n")),
        }
    }

    fn line(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            let text = self.text(text);
            self.out.push_str(&format!("- {name}: {text}\n"));
        }
    }

    fn items<'t>(&mut self, title: &str, all: impl Iterator<Item = &'t str>) {
        let mut all = all.peekable();
        if all.peek().is_none() {
            return;
        }
        self.out.push('\n');
        self.head(2, title);
        for line in all {
            let line = self.text(line);
            self.out.push_str(&format!("- {line}\n"));
        }
    }
}

/// Formats the summary. `missing` contains the messages about its missing and unexpected fields.
pub fn format_summary(summary: &Summary, missing: &[String], form: ReportForm) -> String {
    let mut reported = ReportBuilder { out: String::new(), form };
    reported.head(1, &format!("The night: {}", status_name(summary.status)));
    if let Some(goal) = &summary.goal {
        let goal = reported.text(goal);
        reported.out.push_str(&format!("Goal: {goal}\n\n"));
    }
    reported.line("Run", &summary.run_id);
    reported.line("Began", &summary.started_at);
    reported.line("Took", &summary.duration);
    let or_none = |text: &Option<String>| text.clone().unwrap_or_default();
    reported.line("Failed because", &or_none(&summary.failure_reason));
    reported.line("Last completed step", summary.last_step().unwrap_or("none"));
    reported.line("Log", &summary.runtime.log_path);
    reported.line("Weather", &summary.dreamscape.weather);
    reported.line("Ended by plateau", &or_none(&summary.plateau_reason));
    reported.line("Ended by regression", &or_none(&summary.regression_reason));
    if summary.budget_exhausted == Some(true) {
        reported.line("Ended by", "the time limit");
    }
    if let (Some(from), Some(left)) =
        (summary.warn_only_budget_initial, summary.warn_only_remaining)
    {
        reported.line("Rescues left", &format!("{left} of {from}"));
    }
    if let Some(haul) = &summary.long_haul {
        let why = match haul.active {
            true => format!(
                "{}, because {}; ended: {}",
                counted(haul.probe_count, "probe"),
                haul.trigger_reason,
                haul.exit_reason
            ),
            false => format!("none: {}", haul.exit_reason),
        };
        reported.line("Long haul", &why);
    }
    reported.items("Degraded", summary.degraded.iter().map(String::as_str));
    packets(&mut reported, summary);
    if let Some(council) = &summary.council {
        self::council(&mut reported, council, &summary.dreamscape.council);
    }
    iterations(&mut reported, summary);
    steps(&mut reported, summary);
    reported.items("Problems with this summary", missing.iter().map(String::as_str));
    if let Some(gain) = summary.gain.as_ref().filter(|it| it.values().any(|count| *count > 0)) {
        let each: Vec<String> = gain
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(name, count)| format!("{count} {}", reported.text(name)))
            .collect();
        reported.out.push_str(&format!("\nGains: {}.\n", each.join(", ")));
    }
    if !summary.next_action.is_empty() {
        let next = reported.code(&summary.next_action);
        reported.out.push_str(&format!("\nNext: {next}\n"));
    }
    reported.out
}

fn packets(reported: &mut ReportBuilder, summary: &Summary) {
    let Some(packets) = summary.morning_packets.as_ref().filter(|it| !it.is_empty()) else {
        return;
    };
    reported.out.push('\n');
    reported.head(2, "Begin with");
    for packet in packets {
        let title = reported.text(&packet.title);
        let title = match reported.form {
            ReportForm::Markdown => format!("**{title}**"),
            ReportForm::Plain => title,
        };
        let (severity, kind) = (reported.text(&packet.severity), reported.text(&packet.kind));
        let why = reported.text(&packet.why_now);
        reported
            .out
            .push_str(&format!("{}. {title} ({severity}, {kind})\n   {why}\n", packet.rank));
        for line in &packet.evidence {
            let line = reported.text(line);
            reported.out.push_str(&format!("   - {line}\n"));
        }
        if !packet.morning_command.is_empty() {
            let command = reported.code(&packet.morning_command);
            reported.out.push_str(&format!("   {command}\n"));
        }
    }
}

/// Writes the council's result. A part that is missing or malformed is left out, because the
/// summary may come from another program.
fn council(reported: &mut ReportBuilder, council: &Value, words: &str) {
    reported.out.push('\n');
    reported.head(2, "The council");
    reported.line("In short", words);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    reported.line("Tension", &text(&council["tension"]));
    for position in council["positions"].as_array().into_iter().flatten() {
        for voice in position["voices"].as_array().into_iter().flatten() {
            let name = reported.text(&text(&voice["runner"]));
            let would = format!(
                "would {} ({}): {}",
                text(&position["recommended_kind"]),
                text(&voice["confidence"]),
                text(&voice["recommended_first_action"])
            );
            reported.line(&name, &would);
        }
    }
    for one in council["unheard"].as_array().into_iter().flatten() {
        let name = reported.text(&text(&one["runner"]));
        reported.line(&name, &format!("no answer, {}", text(&one["why"])));
    }
    for one in council["wildcards"].as_array().into_iter().flatten() {
        let name = reported.text(&text(&one["runner"]));
        reported.line(&format!("Wildcard of {name}, not counted"), &text(&one["text"]));
    }
}

fn iterations(reported: &mut ReportBuilder, summary: &Summary) {
    if summary.iterations.is_empty() {
        return;
    }
    reported.out.push('\n');
    reported.head(2, "Iterations");
    if reported.form == ReportForm::Markdown {
        reported.out.push_str("| | status | fitness | change |\n| --- | --- | --- | --- |\n");
    }
    for iteration in &summary.iterations {
        let status = serde_json::to_value(iteration.status).unwrap_or_default();
        let status = status.as_str().unwrap_or_default();
        let after = iteration.fitness_after.as_ref();
        let after = after.map_or_else(
            || "-".to_owned(),
            |it| it.composite.map_or_else(|| "unknown".to_owned(), |it| it.to_string()),
        );
        let (index, delta) = (iteration.index, iteration.fitness_delta);
        reported.out.push_str(&match reported.form {
            ReportForm::Markdown => format!("| {index} | {status} | {after} | {delta:+} |\n"),
            ReportForm::Plain => format!("{index:>3}  {after:<8} {delta:<+10} {status}\n"),
        });
    }
}

fn steps(reported: &mut ReportBuilder, summary: &Summary) {
    if summary.steps.is_empty() {
        return;
    }
    reported.out.push('\n');
    reported.head(2, "Steps");
    for step in &summary.steps {
        let word = match step.status {
            StepStatus::Planned => "not begun",
            StepStatus::Done => "done",
            StepStatus::SoftFail => "failed; the night continued",
            StepStatus::Failed => "failed",
            StepStatus::Skipped => "skipped",
        };
        let note = step.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
        let name = reported.text(&step.name);
        reported.line(&name, &format!("{word}{note}"));
    }
}
