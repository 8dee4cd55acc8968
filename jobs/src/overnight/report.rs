//! The report of a night for people: the summary as markdown. Reads nothing but the summary.

use super::output::{Output, OutputError, SUMMARY, pretty};
use super::summary::{Status, StepStatus, Summary};

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
    let mut out = format!("# The night: {}\n\n", word(summary.status));
    if let Some(goal) = &summary.goal {
        out.push_str(&format!("Goal: {goal}\n\n"));
    }
    let mut line = |name: &str, text: &str| {
        if !text.is_empty() {
            out.push_str(&format!("- {name}: {text}\n"));
        }
    };
    line("Run", &summary.run_id);
    line("Began", &summary.started_at);
    line("Took", &summary.duration);
    line(
        "Failed because",
        summary.failure_reason.as_deref().unwrap_or(""),
    );
    line("Last completed step", summary.last_step().unwrap_or("none"));
    line("Log", &summary.runtime.log_path);
    line("Weather", &summary.dreamscape.weather);
    line(
        "Ended by plateau",
        summary.plateau_reason.as_deref().unwrap_or(""),
    );
    line(
        "Ended by regression",
        summary.regression_reason.as_deref().unwrap_or(""),
    );
    if summary.budget_exhausted == Some(true) {
        line("Ended by", "its time");
    }
    if let (Some(from), Some(left)) = (
        summary.warn_only_budget_initial,
        summary.warn_only_remaining,
    ) {
        line("Rescues left", &format!("{left} of {from}"));
    }
    if !summary.degraded.is_empty() {
        out.push_str("\n## Less than was wanted\n\n");
        for line in &summary.degraded {
            out.push_str(&format!("- {line}\n"));
        }
    }
    if let Some(packets) = summary.morning_packets.as_ref().filter(|it| !it.is_empty()) {
        out.push_str("\n## Begin with\n");
        for packet in packets {
            out.push_str(&format!(
                "\n{}. **{}** ({}, {})\n   {}\n",
                packet.rank, packet.title, packet.severity, packet.kind, packet.why_now
            ));
            for line in &packet.evidence {
                out.push_str(&format!("   - {line}\n"));
            }
            out.push_str(&format!("   `{}`\n", packet.morning_command));
        }
    }
    if !summary.iterations.is_empty() {
        out.push_str(
            "\n## Iterations\n\n| | status | fitness | change |\n| --- | --- | --- | --- |\n",
        );
        for iteration in &summary.iterations {
            let status = serde_json::to_value(iteration.status).unwrap_or_default();
            let after = iteration.fitness_after.as_ref();
            out.push_str(&format!(
                "| {} | {} | {} | {:+} |\n",
                iteration.index,
                status.as_str().unwrap_or_default(),
                after.map_or_else(String::new, |it| it.composite.to_string()),
                iteration.fitness_delta
            ));
        }
    }
    out.push_str("\n## Steps\n\n");
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
        out.push_str(&format!("- {}: {word}{note}\n", step.name));
    }
    if let Some(gain) = summary
        .gain
        .as_ref()
        .filter(|it| it.values().any(|count| *count > 0))
    {
        let each: Vec<String> = gain
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        out.push_str(&format!("\nThe night brought: {}.\n", each.join(", ")));
    }
    if !summary.next_action.is_empty() {
        out.push_str(&format!("\nNext: `{}`\n", summary.next_action));
    }
    out
}
