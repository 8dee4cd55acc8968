//! The runs of the night. Runs that did not succeed come first and are unfolded; each other run is
//! one line.

use super::tone;
use super::write::{Page, put};
use crate::failmark;
use crate::report::budget_usage::{format_amount, time};
use crate::report::model::NightReport;
use crate::report::proposals::shell_word;
use crate::report::run_line::RunLine;
use runner_text::counted;

/// Number of rows of one colour that are shown; the rest is folded.
const UNFOLDED: usize = 12;
/// Number of failures that are shown unfolded.
const OPENED: usize = 3;
/// Maximum number of lines that are shown for a run: `LINES`, or `LINES_OF_MANY` in a page of more
/// than `FEW` runs. The run's log contains all lines.
const LINES: usize = 40;
const FEW: usize = 50;
const LINES_OF_MANY: usize = 5;

/// Writes the section of the runs.
pub(super) fn write(page: &mut Page, report: &NightReport) {
    put!(page, "<section id=\"runs\">\n<h2>What ran</h2>\n");
    if report.runs.is_empty() {
        put!(page, "<p class=\"faint\">Nothing ran in this night.</p>\n");
    }
    let lines = if report.runs.len() > FEW { LINES_OF_MANY } else { LINES };
    let mut opened = OPENED;
    for (tones, title) in [
        (&["bad"][..], "did not succeed"),
        (&["warn"][..], "degraded or deferred"),
        (&["good"][..], "succeeded"),
        (&["calm"][..], "did not need to run"),
    ] {
        let these: Vec<&RunLine> =
            report.runs.iter().filter(|run| tones.contains(&tone(run.as_str()))).collect();
        let (shown, folded) = these.split_at(these.len().min(UNFOLDED));
        for run in shown {
            let open = opened > 0
                && (tones[0] == "bad" || report.runs.len() == 1 && report.proposals.is_empty());
            opened -= usize::from(open);
            one(page, run, open, lines);
        }
        if !folded.is_empty() {
            put!(
                page,
                "<details class=\"more\"><summary>",
                folded.len(),
                " more ",
                title,
                "</summary>\n"
            );
            for run in folded {
                one(page, run, false, lines);
            }
            put!(page, "</details>\n");
        }
    }
    for (lines, title, why) in [
        (&report.open, "Unfinished", "had no outcome yet when this report was made"),
        (&report.missed, "Missed", ""),
        (&report.by_day, "By day", ""),
    ] {
        if !lines.is_empty() {
            put!(page, "<h3>", title, "</h3>\n<ul>");
            for line in lines {
                put!(page, "<li>", line, " ", why, "</li>\n");
            }
            put!(page, "</ul>\n");
        }
    }
    put!(page, "</section>\n");
}

fn one(page: &mut Page, run: &RunLine, open: bool, most: usize) {
    put!(
        page,
        "<details class=\"row\"",
        if open { " open" } else { "" },
        "><summary><span class=\"badge ",
        tone(run.as_str()),
        "\">",
        run.as_str(),
        "</span><span class=\"name\">",
        run.job
    );
    if run.attempt > 1 {
        put!(page, " <small>attempt ", run.attempt, "</small>");
    }
    put!(page, "</span><span class=\"told\">", run.message(), "</span><span class=\"cost\">");
    put!(page, time(run.spent.seconds));
    if run.spent.calls > 0 {
        let calls = usize::try_from(run.spent.calls).unwrap_or(usize::MAX);
        put!(page, " · ", counted(calls, "call"));
    }
    if run.spent.micros > 0 {
        put!(page, " · ", format_amount("money", run.spent.micros));
    }
    put!(page, "</span></summary>\n<div class=\"body\">");
    if let Some(outcome) = &run.outcome {
        if let Some(why) = outcome.why().filter(|why| *why != run.headline) {
            put!(page, "<p>", outcome.as_str(), ": ", why, "</p>");
        }
        if let Some(class) = outcome.class() {
            put!(page, "<p><b>", class, ".</b> To do: ", failmark::hint(outcome), ".</p>");
        }
    }
    if !run.lines.is_empty() {
        put!(page, "<ul>");
        for line in run.lines.iter().take(most) {
            put!(page, "<li>", line, "</li>");
        }
        put!(page, "</ul>");
        if run.lines.len() > most {
            put!(
                page,
                "<p class=\"faint\">and ",
                counted(run.lines.len() - most, "more line"),
                "</p>"
            );
        }
    }
    put!(page, "<dl>");
    if !run.artifacts.is_empty() {
        put!(page, "<dt>published</dt><dd>");
        for path in run.artifacts.iter().take(most) {
            put!(page, "<code>", path, "</code> ");
        }
        if run.artifacts.len() > most {
            put!(page, "and ", run.artifacts.len() - most, " more");
        }
        put!(page, "</dd>");
    }
    for (name, value) in [("backend", &run.backend), ("sandbox", &run.containment)] {
        if !value.is_empty() {
            put!(page, "<dt>", name, "</dt><dd>", value, "</dd>");
        }
    }
    if let Some(awake) = &run.awake {
        put!(page, "<dt>host</dt><dd>", awake, "</dd>");
    }
    for (count, what) in [
        (run.unstated_calls, "without a reported usage: charged as reserved"),
        (run.unpriced_calls, "have no known price: charged as reserved"),
    ] {
        if count > 0 {
            put!(page, "<dt>calls</dt><dd>", count, " ", what, "</dd>");
        }
    }
    put!(
        page,
        "<dt>more</dt><dd><code>runner runs show ",
        shell_word(&run.run),
        "</code></dd></dl></div></details>\n"
    );
}
