//! `runner status`: what is going on, from one look at the ledger.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use runner_engine::ledger::{Ledger, Project};
use runner_engine::outcome::{Exit, Outcome};
use runner_jobs::{failmark, report};
use serde::Serialize;

use super::runs::word;
use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::cli::show;
use crate::daemon::client::Client;
use crate::daemon::protocol;
use crate::home::Home;
use crate::project::{self, Here};

#[derive(Debug, Serialize)]
struct StatusJson {
    ledger: String,
    daemon: Option<DaemonJson>,
    projects: Vec<ProjectJson>,
}

/// A daemon that listens.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum DaemonJson {
    Answers(protocol::Status),
    Silent { trouble: String },
}

#[derive(Debug, Serialize)]
struct ProjectJson {
    path: String,
    trouble: Option<String>,
    last_night: Option<NightJson>,
    next: Option<NextJson>,
    failmarks: Vec<MarkJson>,
    missed_this_week: Vec<String>,
    live: Vec<LiveJson>,
}

#[derive(Debug, Serialize)]
struct NightJson {
    name: String,
    headline: String,
    worst: String,
    report: Option<String>,
}

#[derive(Debug, Serialize)]
struct NextJson {
    job: String,
    at: Timestamp,
}

#[derive(Debug, Serialize)]
struct MarkJson {
    job: String,
    at: Timestamp,
    class: String,
    message: String,
    hint: String,
}

#[derive(Debug, Serialize)]
struct LiveJson {
    run: String,
    job: String,
    state: String,
    since: Timestamp,
}

/// Prints the status of the project here, or of all when here is none.
pub fn run(
    home: &Home,
    here: &Path,
    asked_for_here: bool,
    listing: Listing,
) -> Result<Exit, Failure> {
    let only = match project::find(here) {
        Ok(root) => Some(root),
        Err(failure) if asked_for_here => return Err(failure),
        Err(_) => None,
    };
    let mut status = StatusJson {
        ledger: home.ledger_path().display().to_string(),
        daemon: Client::connect(home).map(|mut daemon| match daemon.status() {
            Ok(status) => DaemonJson::Answers(status),
            Err(failure) => DaemonJson::Silent {
                trouble: failure.to_string(),
            },
        }),
        projects: Vec::new(),
    };
    if let Some(ledger) = home.ledger_to_read()? {
        for known in ledger.projects()? {
            if only.as_ref().is_none_or(|root| *root == known.path) {
                status.projects.push(one(home, &ledger, &known)?);
            }
        }
    }
    if listing.json {
        show::json(&status);
    } else if let (Some(root), true) = (&only, status.projects.is_empty()) {
        show::out(&format!(
            "{} is a project that has not run here yet; `runner night` or `runner init` makes it known\n",
            root.display()
        ));
    } else {
        show::out(&text(&status));
    }
    Ok(Exit::Done)
}

fn one(home: &Home, ledger: &Ledger, known: &Project) -> Result<ProjectJson, Failure> {
    let now = home.wall()?;
    let mut trouble = None;
    let mut failmarks = Vec::new();
    match Here::at(home, &known.path) {
        Err(_) if !known.path.is_dir() => trouble = Some("the folder is gone".to_owned()),
        Err(failure) => trouble = Some(failure.to_string()),
        Ok(here) => {
            for (name, job) in &here.config.jobs {
                if let Some(mark) = failmark::read(&known.path, &job.spec) {
                    failmarks.push(MarkJson {
                        job: name.clone(),
                        at: mark.at,
                        class: mark.class,
                        message: mark.message,
                        hint: mark.hint,
                    });
                }
            }
        }
    }
    let last_night = match ledger.nights(&known.id, 1)?.first() {
        None => None,
        Some(night) => {
            let told = report::gather(ledger, night.id, &known.path, now)?;
            let path = known
                .path
                .join(report::FOLDER)
                .join(&night.name)
                .join("report.md");
            if night.closed.is_some() && !path.is_file() {
                trouble = trouble
                    .or_else(|| Some(format!("the last night, {}, has no report", night.name)));
            }
            Some(NightJson {
                name: night.name.clone(),
                headline: told.headline(),
                worst: told.worst,
                report: path.is_file().then(|| path.display().to_string()),
            })
        }
    };
    let week = now
        .saturating_sub(SignedDuration::from_hours(7 * 24))
        .unwrap_or(now);
    let missed_this_week = ledger
        .missed_since(&known.id, week)?
        .into_iter()
        .map(|(job, outcome)| format!("{job}: {}", span(&outcome)))
        .collect();
    let next = ledger
        .jobs(&known.id)?
        .into_iter()
        .filter_map(|job| {
            Some(NextJson {
                at: job.next_due?,
                job: job.name,
            })
        })
        .min_by_key(|next| next.at);
    let live = ledger
        .live()?
        .into_iter()
        .filter(|row| row.project == known.id)
        .map(|row| LiveJson {
            run: row.id.to_string(),
            state: match &row.owner {
                Some(owner) if !owner.is_alive() => {
                    "running, but its process is gone; the next tick settles it".to_owned()
                }
                _ => word(&row).to_owned(),
            },
            since: row.started.unwrap_or(row.requested),
            job: row.job_name,
        })
        .collect();
    Ok(ProjectJson {
        path: known.path.display().to_string(),
        trouble,
        last_night,
        next,
        failmarks,
        missed_this_week,
        live,
    })
}

fn span(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Missed {
            first,
            last,
            count,
            why,
        } if *count > 1 => format!(
            "{count} times from {} to {}: {why}",
            show::moment(*first),
            show::moment(*last)
        ),
        Outcome::Missed { first, why, .. } => format!("{}: {why}", show::moment(*first)),
        other => other.to_string(),
    }
}

fn text(status: &StatusJson) -> String {
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
        out.push_str(&show::table(&rows));
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
