//! Formats the status for users. Problems come first, and the serious ones are in capitals.

use super::model::{BudgetStatus, DaemonState, MissedTimes, Pause, ProjectStatus, Status};
use crate::commands::pause::describe_end;
use crate::ui::show::Tone;
use crate::ui::{Ui, View, safe, show};
use runner_engine::store::FOREVER;

type Rows = Vec<Vec<String>>;

impl View for Status {
    fn print(&self, _ui: Ui) {
        show::out(&text(self));
    }
}

/// Formats the status for users.
pub(super) fn text(status: &Status) -> String {
    parts(status, show::table).into_iter().map(|(_, text)| text).collect()
}

/// Formats the status as lines that are not wrapped, with the tone of each.
pub(super) fn lines(status: &Status) -> Vec<(Tone, String)> {
    let parts = parts(status, show::unwrapped_table).into_iter();
    let lines = parts.flat_map(|(problems, text)| {
        let tone = move |at| if at < problems { Tone::Bad } else { Tone::Plain };
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.into_iter().enumerate().map(move |(at, line)| (tone(at), line))
    });
    lines.collect()
}

/// Formats the parts of the status, each with the number of problem lines at its beginning.
fn parts(status: &Status, table: fn(&[Vec<String>]) -> String) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    if status.projects.is_empty() {
        let text = "no projects yet; `runner init` makes a git repository a project\n";
        out.push((0, text.to_owned()));
    }
    if status.projects.len() > 1 {
        out.push((0, format!("{}\n", show::count(status.projects.len() as u64, "project"))));
    }
    if let Some(trouble) = &status.ticks.trouble {
        out.push((1, format!("NO TICKS: {trouble}\n")));
    }
    if status.sandbox.is_none() {
        let text =
            "NO SANDBOX: job programs are refused here; `runner doctor` shows how to fix it\n";
        out.push((1, text.to_owned()));
    }
    for project in &status.projects {
        out.push((0, format!("{}\n", project.path)));
        out.push((problems(project).len(), table(&rows(status, project))));
    }
    if let Some(pause) = &status.paused {
        out.push((0, format!("everything is paused {}\n", describe_pause(pause))));
    }
    for fleet in &status.fleets {
        let problems = usize::from(fleet.silent().next().is_some());
        out.push((problems, format!("fleet {}: {}\n", fleet.fleet, fleet.line(status.now))));
    }
    if let Some(sandbox) = &status.sandbox {
        out.push((0, format!("sandbox {sandbox}\n")));
    }
    out.push((0, daemon(status)));
    out
}

fn rows(status: &Status, project: &ProjectStatus) -> Rows {
    let mut rows = problems(project);
    if project.standing == "new" {
        if project.trouble.is_none() {
            let text = "not registered yet; `runner night` or `runner init` registers the project";
            rows.push(show::row(["  new", text]));
        }
        return rows;
    }
    rows.extend(schedule(status, project));
    rows.extend(activity(project));
    rows
}

/// Returns the rows about problems.
fn problems(project: &ProjectStatus) -> Rows {
    let mut rows = Rows::new();
    let mut row = |name: &str, value: String| rows.push(vec![format!("  {name}"), value]);
    if let Some(trouble) = &project.trouble {
        let mut name = "TROUBLE";
        for line in trouble.lines() {
            row(name, line.to_owned());
            name = "";
        }
    }
    for mark in &project.failmarks {
        row("FAILED", format!("{} ({}): {} — {}", mark.job, mark.class, mark.message, mark.hint));
    }
    for event in &project.critical_events {
        let show = format!("`runner curator events show {}`", event.id);
        let (source, what) = (safe::line(&event.source), safe::line(&event.what));
        row("CRITICAL", format!("{source}: {what}; {show}"));
    }
    for stopped in &project.stopped {
        row(
            "STOPPED",
            format!(
                "{0}: {1}; `runner jobs reset {0}` or a successful `runner run {0}` lets the schedule start the job again",
                stopped.job,
                show::count(u64::from(stopped.failures_in_a_row), "consecutive failure")
            ),
        );
    }
    for starved in &project.starved {
        row(
            "STARVED",
            format!(
                "{}: the last {} scheduled times were each replaced by the next, and none finished; set a longer interval, or overlap = \"skip\"",
                starved.job, starved.replaced_in_a_row
            ),
        );
    }
    let reported = project.alerts.iter().filter(|alert| !alert.silenced).count();
    if reported > 0 {
        row("alerts", format!("{reported} open; `runner alerts` lists them"));
    }
    for missed in &project.missed_this_week {
        row("missed", format!("{}: {}", missed.job, span(missed)));
    }
    rows
}

/// Returns the rows about the last night, the next run and the budgets.
fn schedule(status: &Status, project: &ProjectStatus) -> Rows {
    let mut rows = Rows::new();
    let mut row = |name: &str, value: String| rows.push(vec![format!("  {name}"), value]);
    match &project.last_night {
        None => row("last night", "none yet".to_owned()),
        Some(night) => {
            let state = if night.closed { "" } else { "in progress; " };
            row("last night", format!("{}: {state}{}", night.name, night.headline));
            if let Some(report) = &night.report {
                row("report", report.clone());
            }
        }
    }
    let proposals = project.proposals;
    if proposals.count > 0 {
        let since = proposals.oldest.map_or_else(String::new, |oldest| {
            format!(", the oldest since {}", show::format_time_in(oldest, &project.zone))
        });
        let count = show::count(proposals.count as u64, "proposal");
        row("waiting", format!("{count} to decide on{since}; `runner dream review`"));
    }
    if proposals.perhaps > 0 {
        let count = show::count(proposals.perhaps as u64, "idea");
        row("perhaps", format!("{count} perhaps done or a duplicate; `runner dream list`"));
    }
    match &project.next {
        None if project.is_unusable => row("next due", "nothing until this is fixed".to_owned()),
        None if status.paused.is_some() || !project.paused.is_empty() => {
            row("next due", "nothing during the pause".to_owned());
        }
        None if !project.stopped.is_empty() => {
            row("next due", "nothing; each job with a schedule is stopped".to_owned());
        }
        None => row("next due", "nothing; no job has a schedule".to_owned()),
        Some(next) => row(
            "next due",
            format!("{} at {}", next.job, show::format_time_in(next.at, &next.zone)),
        ),
    }
    let night = project.budget.night.as_ref();
    if let Some(left) = night.and_then(left) {
        row("night left", left);
    }
    if let Some(left) = left(&project.budget.day) {
        row("day left", left);
    }
    rows
}

/// Returns the rows about live, queued and paused jobs.
fn activity(project: &ProjectStatus) -> Rows {
    let mut rows = Rows::new();
    let mut row = |name: &str, value: String| rows.push(vec![format!("  {name}"), value]);
    for live in &project.live {
        row(
            "live",
            format!(
                "{} {} since {} (run {})",
                live.job,
                live.state,
                show::format_time_in(live.since, &project.zone),
                live.run
            ),
        );
    }
    for lock in &project.locks {
        row(
            "locked",
            format!(
                "{} by PID {} since {} (run {})",
                lock.job,
                lock.pid,
                show::format_time_in(lock.since, &project.zone),
                lock.run
            ),
        );
    }
    for waiting in &project.queued.next {
        row("queued", format!("{}: {} (run {})", waiting.job, waiting.why, waiting.run));
    }
    let shown = project.queued.next.len();
    if project.queued.count > shown {
        row("", format!("and {} more", project.queued.count - shown));
    }
    for pause in &project.paused {
        row(
            "paused",
            format!("{} {}", pause.job.as_deref().unwrap_or_default(), describe_pause(pause)),
        );
    }
    rows
}

/// Formats the remaining amount of each limited unit with its limit, or returns `None` if no unit
/// is limited.
fn left(budget: &BudgetStatus) -> Option<String> {
    let (cap, left) = (budget.limit(), &budget.left);
    let mut parts = Vec::new();
    for (unit, cap, left) in [
        ("calls", cap.calls, left.calls),
        ("tokens", cap.tokens, left.tokens),
        ("ideas", cap.ideas, left.ideas),
    ] {
        if let (Some(cap), Some(left)) = (cap, left) {
            parts.push(format!("{left} of {cap} {unit}"));
        }
    }
    if let (Some(cap), Some(left)) = (cap.micros, left.micros) {
        parts.push(format!("{} of {}", dollars(left), dollars(cap)));
    }
    if let (Some(cap), Some(left)) = (cap.seconds, left.seconds) {
        parts.push(format!("{} of {} min", left / 60, cap / 60));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn dollars(micros: u64) -> String {
    format!("${}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000)
}

fn span(missed: &MissedTimes) -> String {
    let first = show::format_time_in(missed.first, &missed.zone);
    match missed.count {
        1 => format!("{first}: {}", missed.why),
        count => format!(
            "{count} times from {first} to {}: {}",
            show::format_time_in(missed.last, &missed.zone),
            missed.why
        ),
    }
}

fn describe_pause(pause: &Pause) -> String {
    match (pause.until, &pause.zone) {
        (Some(until), Some(zone)) => format!("until {}", show::format_time_in(until, zone)),
        (until, _) => describe_end(until.unwrap_or(FOREVER), pause.job.as_deref()),
    }
}

fn daemon(status: &Status) -> String {
    let live = show::count(status.live_runs as u64, "run");
    match &status.daemon {
        None => {
            let ticked = match status.ticks.last {
                Some(last) if status.ticks.trouble.is_none() => {
                    format!("; last tick {}", show::format_time(last))
                }
                _ => String::new(),
            };
            format!("no daemon{ticked}\n")
        }
        Some(DaemonState::Silent { trouble }) => format!("daemon: {trouble}\n"),
        Some(DaemonState::Answers(daemon)) => {
            // The total also counts runs started by an earlier daemon, a host timer or a user.
            let others = status.live_runs.saturating_sub(daemon.live.len());
            let others = match others {
                0 => String::new(),
                _ => format!(" ({others} not started by the daemon)"),
            };
            let draining = if daemon.draining { "; shutting down, starts nothing new" } else { "" };
            format!(
                "daemon: pid {} since {}, {live} live{others}{draining}\n",
                daemon.pid,
                show::format_time(daemon.since),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runner_engine::store::{Amounts, Budget};

    #[test]
    fn only_limited_units_have_a_remaining_amount() {
        let none =
            BudgetStatus::of("d".into(), Budget::default(), Amounts::default(), Amounts::default());
        assert_eq!(left(&none), None);
        let cap = Budget {
            calls: Some(10),
            micros: Some(2_000_000),
            seconds: Some(5_400),
            ..Budget::default()
        };
        let used = Amounts { calls: 12, micros: 1_234_567, seconds: 60, ..Amounts::default() };
        assert_eq!(
            left(&BudgetStatus::of("d".into(), cap, Amounts::default(), used)).unwrap(),
            "0 of 10 calls, $0.76 of $2.00, 89 of 90 min"
        );
    }
}
