//! The first screen: the result, the cost, the refusals, the waiting items, and the next steps.

use runner_engine::outcome::Outcome;

use super::tone;
use super::write::{Page, put};
use crate::dream::proposal::clean;
use crate::report::budget_usage::{UnitUsage, format_amount, time};
use crate::report::model::NightReport;
use runner_text::counted;

/// Maximum length of a reason on the first screen, in characters.
const REASON: usize = 140;

/// Writes the first screen.
pub(super) fn write(page: &mut Page, report: &NightReport) {
    let (tone, verdict) = verdict(report);
    put!(
        page,
        "<header>\n<p class=\"where\">",
        report.project,
        "</p>\n<h1>Night ",
        report.night,
        "</h1>\n<p class=\"verdict ",
        tone,
        "\"><span class=\"dot\"></span>",
        verdict,
        "</p>\n<p class=\"when\">opened <time datetime=\"",
        report.opened,
        "\">",
        report.opened.strftime("%Y-%m-%d %H:%M UTC"),
        "</time>, reported <time datetime=\"",
        report.closed,
        "\">",
        report.closed.strftime("%Y-%m-%d %H:%M UTC"),
        "</time></p>\n</header>\n"
    );
    put!(page, "<section class=\"cards\" aria-label=\"Overview of the night\">\n");
    worked(page, report);
    cost(page, report);
    refused(page, report);
    waits(page, report);
    put!(page, "</section>\n");
    first(page, report);
}

/// Returns the colour of the whole night and one sentence about it.
fn verdict(report: &NightReport) -> (&'static str, String) {
    let count = |tones: &[&str]| {
        let all = report.last_attempts();
        all.filter(|run| tones.contains(&tone(run.as_str()))).count()
    };
    let (bad, all) = (count(&["bad"]), count(&["good", "warn", "bad", "calm"]));
    if all == 0 && report.open.is_empty() {
        return match report.missed.is_empty() {
            true => ("calm", "Nothing was due.".to_owned()),
            false => ("warn", "Nothing ran, and something was missed.".to_owned()),
        };
    }
    if bad > 0 && bad == all {
        let what = if all == 1 { "It" } else { "Everything" };
        return ("bad", format!("{what} failed."));
    }
    if bad > 0 {
        return ("bad", format!("{bad} of {all} did not succeed."));
    }
    if !report.open.is_empty() {
        return ("warn", format!("{} unfinished when this report was made.", report.open.len()));
    }
    match (count(&["warn"]), count(&["good"])) {
        (0, 0) => ("calm", "Nothing had to be done.".to_owned()),
        (0, _) if report.missed.is_empty() => ("good", "It all worked.".to_owned()),
        (0, _) => ("warn", "What ran worked, but something was missed.".to_owned()),
        (_, 0) => {
            ("warn", "Nothing succeeded completely: what ran was degraded or deferred.".to_owned())
        }
        (some, _) => (
            "warn",
            format!(
                "It worked, except for {} that ended degraded or deferred.",
                counted(some, "job")
            ),
        ),
    }
}

fn worked(page: &mut Page, report: &NightReport) {
    put!(page, "<a class=\"card\" href=\"#runs\"><h2>Did it work?</h2>\n<p class=\"big\">");
    let mut words: Vec<(&str, usize)> = Vec::new();
    for run in report.last_attempts() {
        match words.iter_mut().find(|(word, _)| *word == run.as_str()) {
            Some((_, count)) => *count += 1,
            None => words.push((run.as_str(), 1)),
        }
    }
    words.sort_by_key(|(word, _)| match tone(word) {
        "bad" => 0,
        "good" => 1,
        "warn" => 2,
        _ => 3,
    });
    for (word, count) in &words {
        put!(page, "<span class=\"badge ", tone(word), "\">", count, " ", word, "</span> ");
    }
    if !report.open.is_empty() {
        put!(page, "<span class=\"badge warn\">", report.open.len(), " unfinished</span> ");
    }
    if !report.missed.is_empty() {
        put!(page, "<span class=\"badge warn\">", report.missed.len(), " missed</span> ");
    }
    if words.is_empty() && report.open.is_empty() {
        put!(page, "nothing was due");
    }
    put!(page, "</p>");
    if let Some((job, why)) = short(report) {
        put!(page, "<p class=\"because\">", job, ": ", why, "</p>");
    }
    put!(page, "</a>\n");
}

/// Returns the worst run and its own reason, if the night was less than complete.
fn short(report: &NightReport) -> Option<(&str, String)> {
    let of = |wanted: &str| report.last_attempts().find(|run| tone(run.as_str()) == wanted);
    let run = of("bad").or_else(|| of("warn"))?;
    let why = run.outcome.as_ref().and_then(Outcome::why)?;
    Some((run.job.as_str(), clean(why, REASON)))
}

fn cost(page: &mut Page, report: &NightReport) {
    put!(page, "<a class=\"card\" href=\"#budgets\"><h2>What did it cost?</h2>\n<p class=\"big\">");
    let spent = report.spent;
    put!(page, format_amount("money", spent.micros), "</p><p>");
    let calls = usize::try_from(spent.calls).unwrap_or(usize::MAX);
    put!(page, counted(calls, "model call"));
    if spent.tokens > 0 {
        put!(page, " · ", format_amount("tokens", spent.tokens), " tokens");
    }
    put!(page, " · ", time(spent.seconds), "</p>");
    let unstated: u64 = report.runs.iter().map(|run| run.unstated_calls).sum();
    if unstated > 0 {
        put!(
            page,
            "<p class=\"warn\">",
            unstated,
            " of them did not report their usage: counted as reserved</p>"
        );
    }
    if let Some(left) = left(report) {
        put!(page, "<p class=\"faint\">left of the night's budget: ", left, "</p>");
    }
    put!(page, "</a>\n");
}

/// Describes what is left of the units that the night limits, money first.
fn left(report: &NightReport) -> Option<String> {
    let of = |unit: &str| {
        let bounded = |it: &&UnitUsage| it.unit == unit;
        let account = report.budgets.iter().find(bounded)?;
        let text = format_amount(unit, account.left?);
        Some(match unit {
            "money" => text,
            _ => format!("{text} {unit}"),
        })
    };
    let all: Vec<String> = ["money", "calls", "tokens"].into_iter().filter_map(of).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn refused(page: &mut Page, report: &NightReport) {
    put!(page, "<a class=\"card\" href=\"#refused\"><h2>What was refused?</h2>\n<p class=\"big\">");
    match report.refused.len() {
        0 => {
            put!(page, "nothing</p>");
        }
        count => {
            put!(page, counted(count, "thing"), "</p><p>");
            let mut by: Vec<(&str, usize)> = Vec::new();
            for refusal in &report.refused {
                let words = refusal.by.describe();
                match by.iter_mut().find(|(word, _)| *word == words) {
                    Some((_, count)) => *count += 1,
                    None => by.push((words, 1)),
                }
            }
            for (at, (words, count)) in by.iter().enumerate() {
                put!(page, if at == 0 { "" } else { " · " }, count, " by ", words);
            }
            put!(page, "</p>");
        }
    }
    if super::details::unconfined(report) > 0 {
        put!(page, "<p class=\"bad\">something ran with the sandbox off</p>");
    }
    put!(page, "</a>\n");
}

fn waits(page: &mut Page, report: &NightReport) {
    let proposals = report.proposals.iter().filter(|it| it.waits()).count();
    let packets: usize = report.dreamscapes.iter().map(|it| it.packets.len()).sum();
    put!(
        page,
        "<a class=\"card\" href=\"",
        if proposals == 0 && packets > 0 { "#packets-0" } else { "#proposals" },
        "\"><h2>What is waiting for me?</h2>\n<p class=\"big\">"
    );
    let others = report.waiting.len();
    match (proposals, packets) {
        (0, 0) if others > 0 => {
            put!(page, counted(others, "thing"), " to look at</p>");
        }
        (0, 0) => {
            put!(page, "nothing</p>");
        }
        (0, packets) => {
            put!(page, counted(packets, "morning packet"), "</p>");
        }
        (proposals, packets) => {
            let more = if report.more_proposals > 0 { "+" } else { "" };
            put!(
                page,
                proposals,
                more,
                if proposals == 1 { " proposal" } else { " proposals" },
                "</p>"
            );
            if packets > 0 {
                put!(page, "<p>and ", counted(packets, "morning packet"), "</p>");
            }
        }
    }
    if others > 0 && proposals + packets > 0 {
        put!(page, "<p>", counted(others, "more thing"), " to look at</p>");
    }
    let sent = report.alerts.len();
    if sent > 0 {
        put!(page, "<p>", counted(sent, "alert"), "</p>");
    }
    put!(page, "</a>\n");
}

fn first(page: &mut Page, report: &NightReport) {
    put!(page, "<section id=\"first\">\n<h2>Do this first</h2>\n");
    if report.first.is_empty() {
        put!(page, "<p class=\"faint\">Nothing is waiting for you.</p>\n</section>\n");
        return;
    }
    put!(page, "<ol class=\"moves\">\n");
    for it in &report.first {
        put!(
            page,
            "<li><p class=\"what\">",
            it.what,
            "</p><p class=\"why\">",
            it.why,
            "</p><code class=\"command\">",
            it.command,
            "</code></li>\n"
        );
    }
    put!(page, "</ol>\n</section>\n");
}
