//! The curators' runs outside nights since the previous night, so that the morning report includes
//! the work done by day.
//!
//! Skipped and deferred runs are left out, because such a run occurs every few minutes.

use jiff::Timestamp;
use runner_engine::outcome::Outcome;
use runner_engine::store::{Night, RunFilter, RunState, Store, StoreError};
use runner_text::counted;

use crate::curator::KIND;

/// Number of a job's most recent runs to examine. A day with one run a minute is below this limit.
const RUNS: u32 = 2_000;
/// Maximum number of lines to return. One more line gives the number of lines left out.
const LINES: usize = 200;
/// Number of nights to search for the preceding night.
const NIGHTS: u32 = 1_000;

/// Returns a line for each run, followed by the lines of the run's own report.
///
/// # Errors
/// Returns a [`StoreError`] if the database cannot be read.
pub(super) fn runs_by_day(
    store: &Store,
    night: &Night,
    until: Timestamp,
) -> Result<Vec<String>, StoreError> {
    let nights = store.nights(&night.project, NIGHTS)?;
    let before = nights.iter().find(|it| (it.opens, it.id) < (night.opens, night.id));
    let from = before.map_or(Timestamp::MIN, |it| it.closed.unwrap_or(it.opens));
    let mut runs = Vec::new();
    for job in store.jobs(&night.project)? {
        if job.kind == KIND {
            runs.extend(store.runs(&RunFilter {
                job: Some(job.id),
                limit: RUNS,
                ..RunFilter::default()
            })?);
        }
    }
    runs.retain(|run| {
        let within = run.finished().is_some_and(|at| at > from && at <= until);
        let did = !matches!(
            run.outcome(),
            None | Some(Outcome::Skipped { .. } | Outcome::Deferred { .. })
        );
        run.night.is_none() && matches!(run.state, RunState::Settled { .. }) && within && did
    });
    runs.sort_by(|a, b| (a.finished(), a.id.as_str()).cmp(&(b.finished(), b.id.as_str())));
    let mut lines = Vec::new();
    for run in runs {
        let (Some(at), Some(outcome)) = (run.finished(), run.outcome()) else {
            continue;
        };
        let what = match (run.summary.headline.as_str(), outcome.why()) {
            ("", why) => why.unwrap_or_default().to_owned(),
            (headline, Some(why)) if why != headline => format!("{headline}; {why}"),
            (headline, _) => headline.to_owned(),
        };
        let at = at.strftime("%Y-%m-%d %H:%M UTC");
        lines.push(format!("{at} {}, {}: {what}", run.job_name, outcome.as_str()));
        lines.extend(run.summary.lines);
    }
    let more = lines.len().saturating_sub(LINES);
    if more > 0 {
        lines.truncate(LINES);
        lines.push(format!("and {}; see `runner runs`", counted(more as u64, "more line")));
    }
    Ok(lines)
}
