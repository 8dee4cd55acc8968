//! How things stand, for people.

use super::{DaemonJson, StatusJson};
use crate::cli::show;

pub(super) fn text(status: &StatusJson) -> String {
    if status.projects.is_empty() {
        return format!(
            "no project yet; `runner init` makes one of the folder you are in\n{}",
            daemon(status.daemon.as_ref())
        );
    }
    let mut out = String::new();
    for project in &status.projects {
        out.push_str(&format!("{}\n", project.path));
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut row = |name: &str, value: String| rows.push(vec![format!("  {name}"), value]);
        if let Some(trouble) = &project.trouble {
            row("TROUBLE", trouble.clone());
        }
        for mark in &project.failmarks {
            row(
                "FAILED",
                format!(
                    "{} ({}): {} — {}",
                    mark.job, mark.class, mark.message, mark.hint
                ),
            );
        }
        for missed in &project.missed_this_week {
            row("missed", missed.clone());
        }
        match &project.last_night {
            None => row("last night", "none yet".to_owned()),
            Some(night) => row("last night", format!("{}: {}", night.name, night.headline)),
        }
        match &project.next {
            None if status.paused.is_some() || !project.paused.is_empty() => {
                row("next due", "nothing while it is paused".to_owned());
            }
            None => row("next due", "nothing; no job has a clock".to_owned()),
            Some(next) => row(
                "next due",
                format!("{} at {}", next.job, show::moment(next.at)),
            ),
        }
        for live in &project.live {
            row(
                "live",
                format!(
                    "{} {} since {} (run {})",
                    live.job,
                    live.state,
                    show::moment(live.since),
                    live.run
                ),
            );
        }
        for waiting in &project.queued.next {
            row(
                "queued",
                format!("{}: {} (run {})", waiting.job, waiting.why, waiting.run),
            );
        }
        let shown = project.queued.next.len();
        if project.queued.count > shown {
            row("", format!("and {} more", project.queued.count - shown));
        }
        for pause in &project.paused {
            row(
                "paused",
                format!(
                    "{} {}",
                    pause.job.as_deref().unwrap_or_default(),
                    pause.words()
                ),
            );
        }
        for stopped in &project.stopped {
            row(
                "STOPPED",
                format!(
                    "{0}: {1} in a row; `runner ack {0}`, or `runner run {0}` when it succeeds, starts it again",
                    stopped.job,
                    match stopped.failures_in_a_row {
                        1 => "1 failure".to_owned(),
                        n => format!("{n} failures"),
                    }
                ),
            );
        }
        out.push_str(&show::table(&rows));
    }
    if let Some(pause) = &status.paused {
        out.push_str(&format!("everything is paused {}\n", pause.words()));
    }
    out.push_str(&daemon(status.daemon.as_ref()));
    out
}

fn daemon(found: Option<&DaemonJson>) -> String {
    match found {
        None => "no daemon\n".to_owned(),
        Some(DaemonJson::Silent { trouble }) => format!("daemon: {trouble}\n"),
        Some(DaemonJson::Answers(status)) => format!(
            "daemon: pid {} since {}, {} runs live{}\n",
            status.pid,
            show::moment(status.since),
            status.live.len(),
            if status.draining {
                ", about to end"
            } else {
                ""
            }
        ),
    }
}
