//! `runner sessions show`: shows the findings about a session.

use runner_engine::outcome::Exit;
use runner_jobs::sessions::record::{Ending, SessionRecord};
use serde::Serialize;

use crate::commands::Cli;
use crate::project::LoadedProject;
use crate::ui::{Failure, Ui, View, safe, show};

#[derive(Serialize)]
#[serde(transparent)]
struct SessionView(SessionRecord);

impl View for SessionView {
    fn print(&self, _ui: Ui) {
        show::out(&page(&self.0));
    }
}

pub(super) fn run(
    cli: &Cli<'_>,
    project: &LoadedProject,
    wanted: Option<&str>,
) -> Result<Exit, Failure> {
    let (spec, _) = super::settings(project);
    let folder = super::load(cli, project, &spec);
    for problem in &folder.problems {
        show::complain(problem);
    }
    let mut records = folder.in_order();
    records.retain(|record| wanted.is_none_or(|wanted| record.session.starts_with(wanted)));
    let exact = records.iter().find(|record| Some(record.session.as_str()) == wanted);
    let found = match (wanted, exact, records.as_slice()) {
        (_, Some(record), _) | (Some(_), None, [record]) | (None, None, [.., record]) => *record,
        (Some(wanted), None, []) => {
            return Err(Failure::data(format!("no analyzed session begins with {wanted:?}"))
                .hint("runner sessions list"));
        }
        (None, None, []) => {
            return Err(
                Failure::data("no session has been analyzed").hint("runner sessions analyze")
            );
        }
        (Some(wanted), None, several) => {
            let count = several.len();
            return Err(Failure::usage(format!("{wanted:?} matches {count} sessions"))
                .hint("runner sessions list"));
        }
    };
    cli.ui.show(&SessionView(found.clone()));
    Ok(Exit::Done)
}

fn page(record: &SessionRecord) -> String {
    let mut page = String::new();
    let mut row = |name: &str, value: String| {
        page.push_str(&format!("{name:<10} {}\n", safe::line(&value)));
    };
    let ending = match record.ending {
        Ending::Clean => "clean",
        Ending::Interrupted => "interrupted",
    };
    row("session", record.session.clone());
    row("path", record.path.clone());
    if let Some(branch) = &record.branch {
        row("branch", branch.clone());
    }
    if let Some(ended_at) = record.ended_at {
        let minutes = record.duration_s() / 60;
        row("ended", format!("{}, {ending}, after {minutes} min", show::format_time(ended_at)));
    }
    let (turns, calls) =
        (show::count(record.turns.into(), "prompt"), show::count(record.calls.into(), "call"));
    row("work", format!("{turns}, {calls}, {} failed, {} denied", record.failed, record.denied));
    let tally = &record.tally;
    row(
        "lines",
        format!(
            "{} in all: {} read, {} in another format, {} damaged, {} too long, {} unfinished, {} blank",
            tally.lines,
            tally.read,
            tally.foreign,
            tally.bad,
            tally.too_long,
            tally.torn,
            tally.blank
        ),
    );
    if let Some(line) = record.shared_until.filter(|line| *line > 0) {
        let text = format!("lines 1 to {line} also belong to another session and count only there");
        row("shared", text);
    }
    page + &findings(record)
}

/// Formats the findings and the active files, one per line.
fn findings(record: &SessionRecord) -> String {
    let mut page = String::new();
    let mut row = |name: &str, value: String| {
        page.push_str(&format!("{name:<10} {}\n", safe::line(&value)));
    };
    let found = &record.findings;
    for span in &found.phase_arc {
        let trust = found.trust.iter().find(|point| point.line == span.line);
        let trust = trust
            .map_or_else(String::new, |it| format!(", trust {}, focus {}", it.trust, it.focus));
        let calls = show::count(span.calls.into(), "call");
        row("phase", format!("{} from line {}: {calls}{trust}", span.phase.as_str(), span.line));
    }
    for error in &found.errors {
        let state = if error.resolved { "resolved" } else { "open" };
        let lines = cited(&error.evidence);
        row(
            "error",
            format!("{} ×{} {state}: {} ({lines})", error.trigger, error.count, error.signature),
        );
    }
    for repair in &found.repairs {
        row(
            "repair",
            format!(
                "{}: {} ({})",
                repair.trigger,
                repair.steps.join("; "),
                cited(&repair.evidence)
            ),
        );
    }
    for it in &found.loops {
        let state = if it.resolved { "resolved" } else { "unresolved" };
        row(
            "loop",
            format!("{} ×{} {state}: {} ({})", it.rule, it.count, it.what, cited(&it.evidence)),
        );
    }
    for it in &found.conventions {
        row(
            "convention",
            format!("{}: {} of {}", it.pattern, it.matches, it.matches + it.exceptions),
        );
    }
    for pair in &found.co_change {
        row(
            "together",
            format!("{} and {}, in {} turns", pair.files[0], pair.files[1], pair.turns),
        );
    }
    for used in &found.commands {
        let what = [used.tool.as_str(), used.subject.as_str()].join(" ");
        let rule = used
            .rule
            .as_ref()
            .map_or_else(String::new, |rule| format!("; always denied; rule to add: {rule}"));
        row("used", format!("{} ×{}, {} failed{rule}", what.trim(), used.count, used.failed));
    }
    for it in &found.injections {
        row(
            "context",
            format!(
                "line {}: {} of {} named files touched, trust {:+}, focus {:+}, debt {:+}",
                it.line,
                it.files_touched,
                it.files_named,
                it.trust_delta,
                it.focus_delta,
                it.debt_delta
            ),
        );
    }
    for file in &record.active_files {
        row("active", file.clone());
    }
    page
}

fn cited(lines: &[u64]) -> String {
    let lines: Vec<String> = lines.iter().map(u64::to_string).collect();
    format!("line {}", lines.join(", "))
}
