//! Notices when sessions of coding agents become idle or end, and has them analyzed.
//!
//! The daemon and `runner tick` call this module at each tick, and it records an occurrence for
//! each new state of the sessions. The session-end hook calls it for the session that ended. This
//! module reads at most the beginning of a transcript, to find the transcript's project. It must
//! never record an occurrence if all events have been analyzed.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use jiff::Timestamp;
use runner_engine::digest::Digest;
use runner_engine::store::{NewOccurrence, Origin, Project, RunFilter, Store};
use runner_jobs::sessions::sources::{Source, SourcePlaces, is_named, wanted_sources};
use runner_jobs::sessions::{SessionsSpec, due};

use crate::env::{self, Env};
use crate::project;
use crate::project::projection::Projection;
use crate::ui::Failure;

/// The priority of an occurrence, which is below the default priority of other work.
const PRIORITY: i32 = -10;

/// Records an occurrence for each job, in any project, that has sessions to analyze. Returns the
/// errors of individual jobs.
pub fn enqueue(home: &Env, store: &mut Store) -> Result<Vec<String>, Failure> {
    let mut troubles = Vec::new();
    let kept = store.projections(None)?;
    for project in store.projects()? {
        let projection = kept.get(&project.id).and_then(|text| Projection::read(text));
        for (job, spec) in projection.map(|it| it.sessions).unwrap_or_default() {
            if let Err(failure) = of_job(home, store, &project, (&job, &spec)) {
                troubles.push(format!("{job}: {failure}"));
            }
        }
    }
    Ok(troubles)
}

/// Records one occurrence if any of a project's sessions are due.
fn of_job(
    home: &Env,
    store: &mut Store,
    project: &Project,
    (job, spec): (&str, &SessionsSpec),
) -> Result<(), Failure> {
    let now = home.wall()?;
    let agents = env::agent_folders();
    let waiting = due(SourcePlaces::of(&project.path, &agents, spec), spec, now);
    if waiting.is_empty() {
        return Ok(());
    }
    // A job that waits, for example during a pause, needs only one run.
    let id = store.job(&project.id, job)?.id;
    let queued = RunFilter {
        job: Some(id),
        outcome: Some("queued".to_owned()),
        limit: 1,
        ..RunFilter::default()
    };
    if !store.runs(&queued)?.is_empty() {
        return Ok(());
    }
    let key = key(&waiting, now);
    let new = NewOccurrence {
        origin: Origin::Event,
        priority: Some(PRIORITY),
        ..NewOccurrence::manual(id, key, now)
    };
    store.enqueue(&new, now, None, now)?;
    Ok(())
}

/// Starts the analysis of a session that has ended, if its project has a job for it. The agent's
/// program waits only briefly for its hook, so the analysis is a process that outlives this one.
///
/// # Errors
/// Returns an error if the database cannot be read or the process cannot be started.
pub fn analyze_ended(home: &Env, root: &Path, session: &str) -> Result<(), Failure> {
    let Some(id) = project::id_at(root) else { return Ok(()) };
    let Some(store) = home.store_to_read()? else { return Ok(()) };
    let kept = store.projections(Some(&id))?;
    let projection = kept.get(&id).and_then(|text| Projection::read(text));
    let jobs = projection.map(|it| it.sessions).unwrap_or_default();
    let agents = env::agent_folders();
    let now = home.wall()?;
    // A session without a prompt has no transcript.
    let known = jobs.values().any(|spec| {
        let places = SourcePlaces::of(root, &agents, spec);
        !wanted_sources(places, now, &|source| is_named(&source.id, session)).is_empty()
    });
    if !known {
        return Ok(());
    }
    let mut command = Command::new(env::executable()?);
    let (name, folder) = home.state_variable();
    command.arg0("runner").args(["--quiet", "sessions", "end", "--", session]).env(name, folder);
    command.current_dir(root).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = command.spawn().map(drop);
    started.map_err(|error| Failure::environment(format!("cannot start the analysis: {error}")))
}

/// Returns the key of an occurrence. The key depends on the state of the sessions and on the hour,
/// so each state has at most one occurrence per hour, no matter how many processes tick. If all
/// attempts for a state die, the state is analyzed again in a later hour, even without new events.
fn key(waiting: &[Source], now: Timestamp) -> String {
    let state: Vec<String> =
        waiting.iter().map(|it| format!("{} {} {}", it.id, it.size, it.modified)).collect();
    let hour = now.as_second().div_euclid(3_600);
    format!("sessions {}", Digest::of(format!("{hour}\n{}", state.join("\n")).as_bytes()).short())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_one_key_per_hour() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let source = |size| {
            let id = "one".to_owned();
            vec![Source {
                id,
                path: "one.jsonl".into(),
                size,
                modified: at(100),
                agents: Vec::new(),
            }]
        };
        let first = key(&source(10), at(3_600));
        assert_eq!(key(&source(10), at(7_199)), first);
        assert_ne!(key(&source(11), at(3_600)), first);
        assert_ne!(key(&source(10), at(7_200)), first);
    }
}
