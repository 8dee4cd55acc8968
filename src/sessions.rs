//! Notices that sessions of coding agents have become idle, and records an occurrence for each new
//! state of them.
//!
//! The daemon and `runner tick` call this module at each tick. It looks at the names and the times
//! of files only. It must never open a transcript, and never record an occurrence without new
//! events.

use jiff::Timestamp;
use runner_engine::digest::Digest;
use runner_engine::store::{NewOccurrence, Origin, Project, Store};
use runner_jobs::sessions::sources::{Source, SourcePlaces};
use runner_jobs::sessions::{SessionsSpec, due};

use crate::env::Env;
use crate::project::projection::Projection;
use crate::ui::Failure;

/// The priority of an occurrence. The work may wait for everything else.
const PRIORITY: i32 = -10;

/// Records the occurrences of all projects. Returns the errors of single jobs.
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

/// Records one occurrence if sessions of a project are due.
fn of_job(
    home: &Env,
    store: &mut Store,
    project: &Project,
    (job, spec): (&str, &SessionsSpec),
) -> Result<(), Failure> {
    let folder = home.folder().ok();
    let places = SourcePlaces {
        root: &project.path,
        home: folder.as_deref(),
        folders: &spec.transcripts,
        steps: &spec.steps,
    };
    let now = home.wall()?;
    let waiting = due(places, spec, now);
    if waiting.is_empty() {
        return Ok(());
    }
    let key = key(&waiting, now);
    let new = NewOccurrence {
        origin: Origin::Event,
        priority: Some(PRIORITY),
        ..NewOccurrence::manual(store.job(&project.id, job)?.id, key, now)
    };
    store.enqueue(&new, now, None, now)?;
    Ok(())
}

/// Returns the key of an occurrence. It names the state of the sessions, so each state has one
/// occurrence however many processes tick. It also names the hour: if all attempts for a state died,
/// the state is analyzed in a later hour, even if the sessions have no new events.
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
    fn each_state_has_one_key_in_an_hour() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let source = |size| {
            let id = "one".to_owned();
            vec![Source { id, path: "one.jsonl".into(), size, modified: at(100) }]
        };
        let first = key(&source(10), at(3_600));
        assert_eq!(key(&source(10), at(7_199)), first);
        assert_ne!(key(&source(11), at(3_600)), first);
        assert_ne!(key(&source(10), at(7_200)), first);
    }
}
