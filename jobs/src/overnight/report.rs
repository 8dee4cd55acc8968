//! The report of a night for people: the summary as markdown, or for a terminal. Reads nothing but the
//! summary; text from elsewhere is never obeyed by whatever shows it.

use runner_text::counted;
use serde_json::Value;

use super::output::{Output, OutputError, SUMMARY, pretty};
use super::summary::{Status, StepStatus, Summary};
use crate::dream::proposal::clean;
use crate::report::{code, one_line};

/// Writes a summary in both forms.
///
/// # Errors
/// [`OutputError`].
pub fn write(out: &Output, summary: &Summary) -> Result<(), OutputError> {
    // The JSON last: where it is, the other is too.
    out.text(SUMMARY[1], &markdown(summary))?;
    out.text(SUMMARY[0], &pretty(summary))
}

/// Writes both forms under another name.
///
/// # Errors
/// [`OutputError`].
pub fn write_as(out: &Output, name: &str, summary: &Summary) -> Result<(), OutputError> {
    out.text(&format!("{name}.md"), &markdown(summary))?;
    out.text(&format!("{name}.json"), &pretty(summary))
}

/// The word for a status.
pub fn word(status: Status) -> &'static str {
    match status {
        Status::Planned => "planned",
        Status::DryRun => "dry run",
        Status::Done => "done",
        Status::Failed => "failed",
    }
}

/// The summary as markdown.
pub fn markdown(summary: &Summary) -> String {
    told(summary, &[], Form::Markdown)
}

/// How a report is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By a program that knows markdown: no text from elsewhere has a mark that it obeys.
    Markdown,
    /// On a terminal, without marks.
    Plain,
}

/// A report under way.
struct Told {
    out: String,
    form: Form,
}

impl Told {
    fn text(&self, text: &str) -> String {
        match self.form {
            Form::Markdown => one_line(text),
            Form::Plain => clean(text, 2_000),
        }
    }

    fn code(&self, text: &str) -> String {
        match self.form {
            Form::Markdown => code(text),
            Form::Plain => text.to_owned(),
        }
    }

    fn head(&mut self, depth: usize, text: &str) {
        let (marks, line) = (&"###"[..depth.min(3)], self.text(text));
        match (self.form, depth) {
            (Form::Markdown, _) => self.out.push_str(&format!("{marks} {line}\n\n")),
            (Form::Plain, _) => self.out.push_str(&format!("{line}\n\n")),
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

/// The summary in a form; `missing` is what it does not say, or says in another form.
pub fn told(summary: &Summary, missing: &[String], form: Form) -> String {
    let mut told = Told {
        out: String::new(),
        form,
    };
    told.head(1, &format!("The night: {}", word(summary.status)));
    if let Some(goal) = &summary.goal {
        let goal = told.text(goal);
        told.out.push_str(&format!("Goal: {goal}\n\n"));
    }
    told.line("Run", &summary.run_id);
    told.line("Began", &summary.started_at);
    told.line("Took", &summary.duration);
    let or_none = |text: &Option<String>| text.clone().unwrap_or_default();
    told.line("Failed because", &or_none(&summary.failure_reason));
    told.line("Last completed step", summary.last_step().unwrap_or("none"));
    told.line("Log", &summary.runtime.log_path);
    told.line("Weather", &summary.dreamscape.weather);
    told.line("Ended by plateau", &or_none(&summary.plateau_reason));
    told.line("Ended by regression", &or_none(&summary.regression_reason));
    if summary.budget_exhausted == Some(true) {
        told.line("Ended by", "its time");
    }
    if let (Some(from), Some(left)) = (
        summary.warn_only_budget_initial,
        summary.warn_only_remaining,
    ) {
        told.line("Rescues left", &format!("{left} of {from}"));
    }
    if let Some(haul) = &summary.long_haul {
        let why = match haul.active {
            true => format!(
                "{}, because {}; ended: {}",
                counted(haul.probe_count, "probe"),
                haul.trigger_reason,
                haul.exit_reason
            ),
            false => format!("not needed: {}", haul.exit_reason),
        };
        told.line("Second look", &why);
    }
    told.items(
        "Less than was wanted",
        summary.degraded.iter().map(String::as_str),
    );
    packets(&mut told, summary);
    if let Some(council) = &summary.council {
        self::council(&mut told, council, &summary.dreamscape.council);
    }
    iterations(&mut told, summary);
    steps(&mut told, summary);
    told.items(
        "What this summary does not say",
        missing.iter().map(String::as_str),
    );
    if let Some(gain) = summary
        .gain
        .as_ref()
        .filter(|it| it.values().any(|count| *count > 0))
    {
        let each: Vec<String> = gain
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(name, count)| format!("{count} {}", told.text(name)))
            .collect();
        told.out
            .push_str(&format!("\nThe night brought: {}.\n", each.join(", ")));
    }
    if !summary.next_action.is_empty() {
        let next = told.code(&summary.next_action);
        told.out.push_str(&format!("\nNext: {next}\n"));
    }
    told.out
}

fn packets(told: &mut Told, summary: &Summary) {
    let Some(packets) = summary.morning_packets.as_ref().filter(|it| !it.is_empty()) else {
        return;
    };
    told.out.push('\n');
    told.head(2, "Begin with");
    for packet in packets {
        let title = told.text(&packet.title);
        let title = match told.form {
            Form::Markdown => format!("**{title}**"),
            Form::Plain => title,
        };
        let (severity, kind) = (told.text(&packet.severity), told.text(&packet.kind));
        let why = told.text(&packet.why_now);
        told.out.push_str(&format!(
            "{}. {title} ({severity}, {kind})\n   {why}\n",
            packet.rank
        ));
        for line in &packet.evidence {
            let line = told.text(line);
            told.out.push_str(&format!("   - {line}\n"));
        }
        if !packet.morning_command.is_empty() {
            let command = told.code(&packet.morning_command);
            told.out.push_str(&format!("   {command}\n"));
        }
    }
}

/// Who said what, as far as a summary has it; of another program's, what has the same names.
fn council(told: &mut Told, council: &Value, words: &str) {
    told.out.push('\n');
    told.head(2, "The council");
    told.line("In short", words);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    told.line("Tension", &text(&council["tension"]));
    for position in council["positions"].as_array().into_iter().flatten() {
        for voice in position["voices"].as_array().into_iter().flatten() {
            let name = told.text(&text(&voice["runner"]));
            let would = format!(
                "would {} ({}): {}",
                text(&position["recommended_kind"]),
                text(&voice["confidence"]),
                text(&voice["recommended_first_action"])
            );
            told.line(&name, &would);
        }
    }
    for one in council["unheard"].as_array().into_iter().flatten() {
        let name = told.text(&text(&one["runner"]));
        told.line(&name, &format!("not heard, {}", text(&one["why"])));
    }
    for one in council["wildcards"].as_array().into_iter().flatten() {
        let name = told.text(&text(&one["runner"]));
        told.line(
            &format!("Wildcard of {name}, in no count"),
            &text(&one["text"]),
        );
    }
}

fn iterations(told: &mut Told, summary: &Summary) {
    if summary.iterations.is_empty() {
        return;
    }
    told.out.push('\n');
    told.head(2, "Iterations");
    if told.form == Form::Markdown {
        told.out
            .push_str("| | status | fitness | change |\n| --- | --- | --- | --- |\n");
    }
    for iteration in &summary.iterations {
        let status = serde_json::to_value(iteration.status).unwrap_or_default();
        let status = status.as_str().unwrap_or_default();
        let after = iteration.fitness_after.as_ref();
        let after = after.map_or_else(|| "-".to_owned(), |it| it.composite.to_string());
        let (index, delta) = (iteration.index, iteration.fitness_delta);
        told.out.push_str(&match told.form {
            Form::Markdown => format!("| {index} | {status} | {after} | {delta:+} |\n"),
            Form::Plain => format!("{index:>3}  {after:<8} {delta:<+10} {status}\n"),
        });
    }
}

fn steps(told: &mut Told, summary: &Summary) {
    if summary.steps.is_empty() {
        return;
    }
    told.out.push('\n');
    told.head(2, "Steps");
    for step in &summary.steps {
        let word = match step.status {
            StepStatus::Planned => "not begun",
            StepStatus::Done => "done",
            StepStatus::SoftFail => "failed, the night went on",
            StepStatus::Failed => "failed",
            StepStatus::Skipped => "skipped",
        };
        let note = step
            .note
            .as_ref()
            .map_or_else(String::new, |note| format!(": {note}"));
        let name = told.text(&step.name);
        told.line(&name, &format!("{word}{note}"));
    }
}
