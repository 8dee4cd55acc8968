//! The report as Markdown, which the user reads first in the morning.

use runner_text::counted;
use std::fmt::Write as _;

use runner_engine::store::Amounts;

use super::budget_usage::{UnitUsage, format_amount};
use super::dreamscape::Dreamscape;
use super::fleet_usage::{self, FleetUsage};
use super::model::{NextStep, NightReport};
use super::proposals::ReportedProposal;
use super::run_line::RunLine;
use crate::failmark;

/// Renders the report as Markdown. Text from models or repositories is put on one line and escaped,
/// so that it adds no link, image or HTML element.
pub fn render(report: &NightReport) -> String {
    let mut out = String::new();
    // Writing into a string cannot fail.
    let _infallible = write(&mut out, report);
    out
}

fn write(out: &mut String, report: &NightReport) -> std::fmt::Result {
    head(out, report)?;
    for run in &report.runs {
        section(out, run)?;
    }
    list(out, "Missed", report.missed.iter().map(|line| one_line(line)))?;
    list(out, "By day", report.by_day.iter().map(|line| one_line(line)))?;
    list(out, "Granted", report.grants.iter().map(|line| one_line(line)))?;
    list(out, "Alerts", report.alerts.iter().map(|line| one_line(line)))?;
    let unfinished =
        |job: &String| format!("{} has no outcome yet; see `runner status`", one_line(job));
    list(out, "Unfinished", report.open.iter().map(unfinished))?;
    for scape in &report.dreamscapes {
        dreamscape(out, scape)?;
    }
    budgets(out, &report.budgets)?;
    let shared = report.fleets.iter().flat_map(FleetUsage::lines);
    list(out, "Budgets of fleets", shared.map(|line| one_line(&line)))?;
    let refused = report.refused.iter().map(|it| {
        format!("{}, by {}: {}", one_line(&it.job), it.by.describe(), one_line(&it.what))
    });
    list(out, "Refused", refused)?;
    let waiting = report.waiting.iter().map(|it| {
        let (what, why) = (one_line(&it.what), one_line(&it.why));
        format!("{}: {what}, {why} — {}", it.sort.as_str(), code(&it.command))
    });
    proposals(out, report)?;
    list(out, "Also for you", waiting)?;
    next_steps(out, &report.first)
}

/// Writes the result of the night and the table of its runs.
fn head(out: &mut String, report: &NightReport) -> std::fmt::Result {
    writeln!(out, "# Night {} — {}\n", one_line(&report.night), one_line(&report.project))?;
    writeln!(out, "**{}**\n", one_line(&report.headline()))?;
    writeln!(
        out,
        "Opened {}, reported {}. Spent {}.\n",
        report.opened.strftime("%Y-%m-%d %H:%M UTC"),
        report.closed.strftime("%Y-%m-%d %H:%M UTC"),
        spent(report)
    )?;
    if report.runs.is_empty() {
        return Ok(());
    }
    writeln!(out, "| job | outcome | took | calls | what |\n| --- | --- | ---: | ---: | --- |")?;
    for run in &report.runs {
        let on = fleet_usage::host(run).map_or_else(String::new, |host| format!(" (on {host})"));
        writeln!(
            out,
            "| {} | {} | {} s | {} | {} |",
            cell(&run.job),
            run.as_str(),
            run.spent.seconds,
            run.spent.calls,
            cell(&format!("{}{on}", run.message()))
        )?;
    }
    writeln!(out)
}

/// Writes a section of list items, or nothing if there are none.
fn list(out: &mut String, title: &str, items: impl Iterator<Item = String>) -> std::fmt::Result {
    let mut items = items.peekable();
    if items.peek().is_none() {
        return Ok(());
    }
    writeln!(out, "## {title}\n")?;
    for item in items {
        writeln!(out, "- {item}")?;
    }
    writeln!(out)
}

/// Writes a list of the first proposals awaiting a decision, and a list of the first ideas that may
/// be done or duplicates. Each list ends with the number of items left out, if any.
fn proposals(out: &mut String, report: &NightReport) -> std::fmt::Result {
    const SHOWN: usize = 10;
    let (waiting, perhaps): (Vec<_>, Vec<_>) = report
        .proposals
        .iter()
        .filter(|it| it.waits() || it.is_perhaps())
        .partition(|it| it.waits());
    let lines = |found: Vec<&ReportedProposal>, unlisted: usize| {
        let more = found.len().saturating_sub(SHOWN) + unlisted;
        let lines: Vec<String> = found.into_iter().take(SHOWN).map(proposal).collect();
        let more = (more > 0).then(|| format!("{more} more — {}", code("runner dream list")));
        lines.into_iter().chain(more)
    };
    // The report leaves out the last proposals, so they are counted in the list that contains the
    // last proposal of the report.
    let (more_waiting, more_perhaps) = match report.proposals.last() {
        Some(last) if last.waits() => (report.more_proposals, 0),
        Some(last) if last.is_perhaps() => (0, report.more_proposals),
        _ => (0, 0),
    };
    list(out, "Proposals to review", lines(waiting, more_waiting))?;
    list(out, "Perhaps done or a duplicate", lines(perhaps, more_perhaps))
}

fn proposal(it: &ReportedProposal) -> String {
    let age = it.age().map_or_else(String::new, |age| format!(", has waited for {age}"));
    let targets = it.targets.iter().map(|path| code(path)).collect::<Vec<_>>().join(" into ");
    let what = if it.is_perhaps() { it.status.as_str() } else { it.action.as_str() };
    format!("{what} {targets}{age} — {}", code(&it.command("show")))
}

fn budgets(out: &mut String, budgets: &[UnitUsage]) -> std::fmt::Result {
    if budgets.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "## Budgets\n\n| of the night | spent | planned at most | limit | left |\n\
         | --- | ---: | ---: | ---: | ---: |"
    )?;
    for it in budgets {
        let amount = |amount: Option<u64>| {
            amount.map_or_else(|| "—".to_owned(), |amount| format_amount(&it.unit, amount))
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            cell(&it.unit),
            format_amount(&it.unit, it.spent),
            format_amount(&it.unit, it.planned),
            amount(it.limit()),
            amount(it.left)
        )?;
    }
    writeln!(out)
}

fn next_steps(out: &mut String, steps: &[NextStep]) -> std::fmt::Result {
    if steps.is_empty() {
        return Ok(());
    }
    writeln!(out, "## Do this first\n")?;
    for (at, it) in steps.iter().enumerate() {
        let (what, why, command) = (one_line(&it.what), one_line(&it.why), code(&it.command));
        writeln!(out, "{}. {what}: {why}\n   {command}", at + 1)?;
    }
    writeln!(out)
}

fn dreamscape(out: &mut String, scape: &Dreamscape) -> std::fmt::Result {
    writeln!(out, "## The dreamscape of {}\n", one_line(&scape.job))?;
    if let Some(why) = &scape.missing {
        return writeln!(out, "None: {}\n", one_line(why));
    }
    for point in &scape.land {
        let fitness = point
            .fitness
            .map_or_else(|| "not measured".to_owned(), |it| format!("fitness {it:.3}"));
        writeln!(
            out,
            "- iteration {}: {fitness} ({:+.3}), {}",
            point.index,
            point.delta,
            one_line(&point.status)
        )?;
    }
    for (name, text) in [("ended", &scape.ended), ("tension", &scape.tension)] {
        if let Some(text) = text {
            writeln!(out, "- {name}: {}", one_line(text))?;
        }
    }
    for line in &scape.degraded {
        writeln!(out, "- degraded: {}", one_line(line))?;
    }
    for (mark, voices) in scape.council.iter().flat_map(|it| {
        [
            ("", &it.voices),
            (", no answer", &it.unheard),
            (", a wildcard that is not counted", &it.wildcards),
        ]
    }) {
        for it in voices {
            let kind = match it.kind.is_empty() {
                true => String::new(),
                false => format!(" would {} ({})", one_line(&it.kind), one_line(&it.confidence)),
            };
            let (who, action) = (one_line(&it.runner), one_line(&it.action));
            writeln!(out, "- councillor {who}{mark}{kind}: {action}")?;
        }
    }
    for packet in &scape.packets {
        writeln!(
            out,
            "- packet {}, {}: {} — {}",
            packet.rank,
            one_line(&packet.severity),
            one_line(&packet.title),
            code(&packet.command)
        )?;
    }
    writeln!(out)
}

/// Describes the night's spending, and the number of calls that did not report their usage.
fn spent(report: &NightReport) -> String {
    let unstated: u64 = report.runs.iter().map(|run| run.unstated_calls).sum();
    let mut text = amounts(report.spent);
    if unstated > 0 {
        text.push_str(&format!(
            "; {} without a reported usage, counted as reserved",
            calls(unstated)
        ));
    }
    text
}

fn section(out: &mut String, run: &RunLine) -> std::fmt::Result {
    let attempt =
        if run.attempt > 1 { format!(", attempt {}", run.attempt) } else { String::new() };
    writeln!(out, "## {} ({}{attempt})\n", one_line(&run.job), run.as_str())?;
    if !run.headline.is_empty() {
        writeln!(out, "{}\n", one_line(&run.headline))?;
    }
    if let Some(outcome) = &run.outcome
        && let Some(why) = outcome.why()
        && why != run.headline
    {
        let class = outcome.class().map_or_else(String::new, |class| format!(" ({class})"));
        writeln!(out, "{}{class}: {}\n", outcome.as_str(), one_line(why))?;
    }
    if let Some(outcome) = &run.outcome
        && outcome.class().is_some()
    {
        writeln!(out, "To do: {}\n", failmark::hint(outcome))?;
    }
    for line in &run.lines {
        writeln!(out, "- {}", one_line(line))?;
    }
    if !run.lines.is_empty() {
        writeln!(out)?;
    }
    if !run.artifacts.is_empty() {
        let names = run.artifacts.iter().map(|path| code(path)).collect::<Vec<_>>();
        writeln!(out, "Published: {}\n", names.join(", "))?;
    }
    let mut facts = vec![format!("run {}", code(&run.run))];
    if run.unstated_calls > 0 {
        facts.push(format!(
            "usage of {} not reported: charged as reserved",
            calls(run.unstated_calls)
        ));
    }
    if run.unpriced_calls > 0 {
        facts.push(format!("price of {} unknown: charged as reserved", calls(run.unpriced_calls)));
    }
    if run.limited_calls > 0 {
        facts.push(format!(
            "reported cost of {} exceeds the amount left: charged the amount left",
            calls(run.limited_calls)
        ));
    }
    for (name, value) in [("backend", &run.backend), ("sandbox", &run.containment)] {
        if !value.is_empty() {
            facts.push(format!("{name}: {}", one_line(value)));
        }
    }
    if let Some(awake) = &run.awake {
        facts.push(one_line(&awake.to_string()));
    }
    writeln!(out, "{}\n", facts.join(" · "))
}

/// Formats amounts without ideas and amounts of zero. If nothing remains, the result is `0 s`.
pub(crate) fn amounts(spent: Amounts) -> String {
    let mut parts = Vec::new();
    if spent.calls > 0 {
        parts.push(calls(spent.calls));
    }
    if spent.tokens > 0 {
        parts.push(counted(spent.tokens, "token"));
    }
    if spent.micros > 0 {
        let cents = spent.micros.div_ceil(10_000);
        parts.push(format!("${}.{:02}", cents / 100, cents % 100));
    }
    if spent.seconds > 0 || parts.is_empty() {
        parts.push(format!("{} s", spent.seconds));
    }
    parts.join(", ")
}

fn calls(count: u64) -> String {
    counted(count, "model call")
}

/// Puts foreign text on one line. Escapes the characters that begin a link, an image, code or an
/// HTML element, and replaces those that a terminal would interpret or that hide text.
pub(crate) fn one_line(text: &str) -> String {
    let parts = text.split(['\n', '\r']).map(str::trim);
    let line = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    let mut out = String::with_capacity(line.len());
    let marker = block_marker(&line);
    for (at, c) in line.char_indices() {
        if Some(at) == marker {
            out.push('\\');
        }
        match c {
            '<' => out.push_str("&lt;"),
            // An existing backslash is escaped too; otherwise it would cancel the escape of the
            // next character.
            '[' | ']' | '`' | '\\' => out.extend(['\\', c]),
            '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}'
            | '\u{feff}' => {
                out.push('\u{fffd}');
            }
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Returns where a backslash keeps Markdown from reading the line as a heading, a quote, a list item,
/// a rule or a fence. Returns `None` if no backslash is needed.
fn block_marker(line: &str) -> Option<usize> {
    let ends = |rest: &str| rest.is_empty() || rest.starts_with([' ', '\t']);
    let number = line.bytes().take_while(u8::is_ascii_digit).count();
    if let Some(rest) = line[number..].strip_prefix(['.', ')']) {
        return (1..10).contains(&number).then_some(number).filter(|_| ends(rest));
    }
    let first = line.chars().next().filter(|c| "#>-+*=~_".contains(*c))?;
    let rest = line.trim_start_matches(first);
    (first == '>' || ends(rest) || line.starts_with("~~~")).then_some(0)
}

/// Formats foreign text as code: on one line, in a fence that is longer than any run of backticks
/// in the text.
pub(crate) fn code(text: &str) -> String {
    let shown: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let longest = shown.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let room = if longest > 0 { " " } else { "" };
    format!("{fence}{room}{shown}{room}{fence}")
}

fn cell(text: &str) -> String {
    one_line(text).replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use runner_engine::outcome::{Class, Outcome};
    use serde_json::Map;

    fn line(job: &str, outcome: Outcome) -> RunLine {
        RunLine {
            run: "01".into(),
            occurrence: String::new(),
            job: job.into(),
            kind: "command".into(),
            attempt: 1,
            outcome: Some(outcome),
            started: None,
            finished: None,
            spent: Amounts { calls: 1, micros: 12_345, ..Amounts::default() },
            unstated_calls: 1,
            unpriced_calls: 0,
            limited_calls: 0,
            headline: "did | it\nall".into(),
            lines: vec!["one\n# two ![x](http://evil.example) <img src=x>".into()],
            facts: Map::new(),
            artifacts: vec!["out/a.json".into()],
            backend: "builtin".into(),
            containment: "in-process".into(),
            sandbox: None,
            gaps: vec![],
            refused: vec![],
            failed_tools: 0,
            awake: None,
            files: None,
        }
    }

    #[test]
    fn untrusted_text_cannot_break_the_markdown() {
        let report = NightReport {
            schema_version: 1,
            night: "2026-11-21".into(),
            project: "demo".into(),
            opened: Timestamp::UNIX_EPOCH,
            closed: Timestamp::UNIX_EPOCH,
            worst: "failed".into(),
            spent: Amounts { calls: 2, micros: 24_690, seconds: 3, ..Amounts::default() },
            runs: vec![
                line("dream", Outcome::Succeeded),
                line("tidy", Outcome::Failed { class: Class::Crash, why: "exit 3".into() }),
            ],
            open: vec![],
            missed: vec!["tidy at noon".into()],
            grants: vec!["1 model call for the night, by ann: more".into()],
            alerts: vec!["dream: failure".into()],
            ..crate::report::sample_tests::night(vec![])
        };
        let text = render(&report);
        assert!(
            text.starts_with("# Night 2026-11-21 — demo\n\n**1 succeeded, 1 failed**\n"),
            "{text}"
        );
        assert!(
            text.contains(
                "Spent 2 model calls, $0.03, 3 s; 2 model calls without a reported usage"
            ),
            "{text}"
        );
        assert!(text.contains("did \\| it all"), "{text}");
        assert!(
            text.contains("- one # two !\\[x\\](http://evil.example) &lt;img src=x>\n"),
            "{text}"
        );
        assert!(text.contains("## Granted\n\n- 1 model call for"), "{text}");
        assert!(text.contains("failed (crash): exit 3"), "{text}");
    }

    #[test]
    fn left_out_proposals_are_counted_in_the_list_that_was_cut() {
        use crate::report::sample_tests::{night, proposal};
        let counted = |change: fn(&mut ReportedProposal)| {
            let mut last = proposal(2, "b");
            change(&mut last);
            let report = NightReport {
                proposals: vec![proposal(1, "a"), last],
                more_proposals: 7,
                ..night(vec![])
            };
            let text = render(&report);
            let after =
                |title: &str| text.split_once(title).map_or("", |(_, rest)| rest).to_owned();
            let waiting = after("## Proposals to review").contains("7 more")
                && !after("## Perhaps done").contains("7 more");
            (waiting, after("## Perhaps done").contains("7 more"))
        };
        assert_eq!(counted(|_| {}), (true, false));
        assert_eq!(counted(|it| it.action = crate::dream::proposal::Action::Keep), (false, true));
        assert_eq!(counted(|it| it.decided = Some("accepted".into())), (false, false));
    }
}
