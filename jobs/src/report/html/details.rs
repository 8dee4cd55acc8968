//! The lower half of the page: budget usage, refusals, the sandbox of the runs, alerts and grants.

use runner_text::counted;
use std::collections::BTreeMap;

use super::write::{Page, put};
use crate::report::budget_usage::{UnitUsage, format_amount};
use crate::report::model::NightReport;
use crate::report::run_line::RunLine;

/// Number of refusals that are shown; the rest is folded.
const UNFOLDED: usize = 15;
/// Beginning of the text with which a run states that its program had no sandbox.
const OFF: &str = "sandbox off";
/// Beginning of a run's line that names a gap in its sandbox.
const GAP: &str = "not held by its sandbox: ";

/// Writes the lower half of the page.
pub(super) fn write(page: &mut Page, report: &NightReport) {
    budgets(page, report);
    refused(page, report);
    held(page, report);
    alerts(page, report);
}

/// Counts the runs that started a program with its sandbox off.
pub(super) fn unconfined(report: &NightReport) -> usize {
    let off = |run: &&RunLine| run.containment.starts_with(OFF);
    report.runs.iter().filter(off).count()
}

fn budgets(page: &mut Page, report: &NightReport) {
    put!(page, "<section id=\"budgets\">\n<h2>Budgets</h2>\n");
    if report.budgets.is_empty() {
        put!(page, "<p class=\"faint\">Nothing was spent, and the night has no limits.</p>\n");
    } else {
        put!(
            page,
            "<div class=\"wide\"><table><thead><tr><th>of the night</th><th>spent</th><th>planned</th>",
            "<th>limit</th><th>left</th><th></th></tr></thead>\n<tbody>\n"
        );
        report.budgets.iter().for_each(|it| account(page, it));
        put!(
            page,
            "</tbody></table></div>\n<p class=\"faint\">Planned is what the runs reserved before they began; \
             the limit is <code>[night.budget]</code>. Day and pools: <code>runner budget</code></p>\n"
        );
    }
    if !report.grants.is_empty() {
        put!(page, "<h3>Granted besides</h3>\n<ul>");
        for line in &report.grants {
            put!(page, "<li>", line, "</li>\n");
        }
        put!(page, "</ul>\n");
    }
    put!(page, "</section>\n");
}

fn account(page: &mut Page, it: &UnitUsage) {
    let bound = it.cap.map(|cap| cap.saturating_add(it.granted));
    let amount = |amount: Option<u64>| {
        amount.map_or_else(|| "—".to_owned(), |amount| format_amount(&it.unit, amount))
    };
    put!(
        page,
        "<tr><th scope=\"row\">",
        it.unit,
        "</th><td>",
        format_amount(&it.unit, it.spent),
        "</td><td>",
        format_amount(&it.unit, it.planned),
        "</td><td>",
        amount(bound)
    );
    if it.granted > 0 {
        put!(page, " <small>(", format_amount(&it.unit, it.granted), " granted)</small>");
    }
    put!(page, "</td><td>", amount(it.left), "</td><td class=\"bar\">");
    if let Some(bound) = bound.filter(|bound| *bound > 0) {
        // The width in units of the picture, which is a hundred units wide.
        let part = |amount: u64| (u128::from(amount) * 100 / u128::from(bound)).min(100);
        let full = it.spent >= bound;
        put!(
            page,
            "<svg viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"",
            part(it.spent),
            " % spent\"><rect class=\"rail\" width=\"100\" height=\"8\"/><rect class=\"held\" width=\"",
            part(it.planned),
            "\" height=\"8\"/><rect class=\"",
            if full { "over" } else { "used" },
            "\" width=\"",
            part(it.spent),
            "\" height=\"8\"/></svg>"
        );
    }
    put!(page, "</td></tr>\n");
}

fn refused(page: &mut Page, report: &NightReport) {
    put!(page, "<section id=\"refused\">\n<h2>What was refused</h2>\n");
    if report.refused.is_empty() {
        put!(
            page,
            "<p class=\"faint\">Nothing was refused by a guard, by a budget or by the check of a reply.</p>\n"
        );
    }
    let (shown, folded) = report.refused.split_at(report.refused.len().min(UNFOLDED));
    for (at, these) in [shown, folded].into_iter().enumerate() {
        if these.is_empty() {
            continue;
        }
        if at > 0 {
            put!(page, "<details class=\"more\"><summary>", these.len(), " more</summary>");
        }
        put!(page, "<ul class=\"refused\">\n");
        for it in these {
            put!(
                page,
                "<li><span class=\"badge warn\">",
                it.by.describe(),
                "</span> <b>",
                it.job,
                "</b> ",
                it.what,
                "</li>\n"
            );
        }
        put!(page, "</ul>\n");
        if at > 0 {
            put!(page, "</details>\n");
        }
    }
    put!(page, "</section>\n");
}

/// Writes which sandbox held the runs, and whether the host stayed awake: each distinct answer
/// once, with its jobs.
fn held(page: &mut Page, report: &NightReport) {
    put!(page, "<section id=\"sandbox\">\n<h2>Sandbox and wakefulness</h2>\n<dl class=\"held\">");
    let mut levels: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut gaps: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut awake: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for run in &report.runs {
        if !run.containment.is_empty() {
            levels.entry(&run.containment).or_default().push(&run.job);
        }
        for gap in run.lines.iter().filter_map(|line| line.strip_prefix(GAP)) {
            gaps.entry(gap).or_default().push(&run.job);
        }
        if let Some(kept) = &run.awake {
            awake.entry(kept.to_string()).or_default().push(&run.job);
        }
    }
    if levels.is_empty() {
        put!(page, "<dt>sandbox</dt><dd class=\"faint\">no run started a program</dd>");
    }
    for (level, jobs) in &levels {
        let off = level.starts_with(OFF);
        put!(page, "<dt", if off { " class=\"bad\"" } else { "" }, ">", level, "</dt><dd>");
        names(page, jobs);
    }
    for (gap, jobs) in &gaps {
        put!(page, "<dt class=\"warn\">not enforced: ", gap, "</dt><dd>");
        names(page, jobs);
    }
    if awake.is_empty() {
        put!(page, "<dt>keep-awake</dt><dd class=\"faint\">no run asked for it</dd>");
    }
    for (kept, jobs) in &awake {
        put!(page, "<dt>", kept, "</dt><dd>");
        names(page, jobs);
    }
    put!(page, "</dl>\n</section>\n");
}

/// Writes the first few of some job names, each once.
fn names(page: &mut Page, jobs: &[&str]) {
    let mut jobs = jobs.to_vec();
    jobs.sort_unstable();
    jobs.dedup();
    for (at, job) in jobs.iter().take(8).enumerate() {
        put!(page, if at == 0 { "" } else { ", " }, job);
    }
    if jobs.len() > 8 {
        put!(page, " and ", counted(jobs.len() - 8, "more job"));
    }
    put!(page, "</dd>");
}

fn alerts(page: &mut Page, report: &NightReport) {
    put!(page, "<section id=\"alerts\">\n<h2>Alerts</h2>\n");
    if report.alerts.is_empty() {
        put!(page, "<p class=\"faint\">No alert was sent.</p>\n");
    } else {
        put!(page, "<ul>");
        for line in &report.alerts {
            put!(page, "<li>", line, "</li>\n");
        }
        put!(page, "</ul>\n");
    }
    put!(page, "</section>\n");
}
