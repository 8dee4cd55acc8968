//! `runner status`: what is going on, from one look at the ledger.

mod queue;
mod text;

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use runner_engine::admission::stopped;
use runner_engine::ledger::{FOREVER, JobRow, Ledger, Project};
use runner_engine::outcome::{Exit, Outcome};
use runner_engine::schedule::Trigger;
use runner_jobs::{failmark, report};
use serde::Serialize;

use super::pause::{limited, until_words};
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
    /// Everything is held.
    paused: Option<PausedJson>,
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
    queued: queue::QueuedJson,
    paused: Vec<PausedJson>,
    stopped: Vec<StoppedJson>,
}

/// A pause that lasts.
#[derive(Debug, Serialize)]
struct PausedJson {
    /// Absent: everything.
    job: Option<String>,
    /// Absent: until somebody ends it.
    until: Option<Timestamp>,
}

impl PausedJson {
    fn words(&self) -> String {
        until_words(self.until.unwrap_or(FOREVER), self.job.as_deref())
    }
}

/// A job that clocks no longer start.
#[derive(Debug, Serialize)]
struct StoppedJson {
    job: String,
    failures_in_a_row: u32,
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
        paused: None,
        projects: Vec::new(),
    };
    if let Some(ledger) = home.ledger_to_read()? {
        status.paused = ledger.paused_until(home.wall()?)?.map(|until| PausedJson {
            job: None,
            until: limited(until),
        });
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
        show::out(&text::text(&status));
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
    let jobs = ledger.jobs(&known.id)?;
    let held = ledger.paused_until(now)?;
    // One that outlasts the pause of everything is the job's own.
    let own = |job: &JobRow| {
        job.paused_until
            .filter(|until| *until > now && held.is_none_or(|all| *until > all))
    };
    let paused = jobs
        .iter()
        .filter_map(|job| {
            Some(PausedJson {
                until: limited(own(job)?),
                job: Some(job.name.clone()),
            })
        })
        .collect();
    let mut stopped_jobs = Vec::new();
    for job in jobs.iter().filter(|job| job.enabled) {
        let streak = ledger.streak(job.id)?;
        let failures_in_a_row = streak.failures;
        if stopped(streak) && job.schedule.trigger != Trigger::Manual {
            stopped_jobs.push(StoppedJson {
                job: job.name.clone(),
                failures_in_a_row,
            });
        }
    }
    let live_rows = ledger.live()?;
    let queued = queue::queued(ledger, known, &jobs, &live_rows, now)?;
    let next = jobs
        .into_iter()
        .filter(|job| job.paused_until.is_none_or(|until| until <= now))
        .filter_map(|job| {
            Some(NextJson {
                at: job.next_due?,
                job: job.name,
            })
        })
        .min_by_key(|next| next.at);
    let live = live_rows
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
        queued,
        paused,
        stopped: stopped_jobs,
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
