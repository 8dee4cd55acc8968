//! Overrides of a job's settings for one run, from the command line: `--set key=value`.
//!
//! Only settings that apply to a single run can be overridden. The settings that determine when and
//! how often a job runs belong to its schedule and can only be set in a file.

use toml::Table;

use super::overrides::{PARTS, SCHEDULES, insert, value};
use super::sources::{InlineSetting, Sources};
use crate::ui::Failure;

/// Applies `settings` to the table of `job` in `merged`, and adds their origin to `sources`.
///
/// # Errors
/// Returns a usage error that names the `--set` option if its key is malformed, if a single run
/// cannot change the setting, or if the setting that contains it is not a table.
pub(super) fn lay_over(
    merged: &mut Table,
    sources: &mut Sources,
    job: &str,
    settings: &[(String, String)],
) -> Result<(), Failure> {
    for (key, text) in settings {
        let refuse = |why: &str| Err(Failure::usage(format!("--set {key}: {why}")));
        let segments: Vec<&str> = key.split('.').collect();
        if segments.len() > PARTS || segments.iter().any(|segment| segment.is_empty()) {
            return refuse("expected --set KEY=VALUE, like --set budget.calls=3");
        }
        if SCHEDULES.contains(&segments[0]) {
            return Err(Failure::usage(format!(
                "--set {key}: this setting belongs to the job's schedule, so one run cannot change it"
            ))
            .hint(format!("set it under [jobs.{job}] in runner.toml")));
        }
        let path = ["jobs", job].into_iter().chain(segments.iter().copied());
        if !insert(merged, path, value(text)) {
            return refuse("the setting that contains it is not a table");
        }
        sources.given.push(InlineSetting {
            key: format!("jobs.{job}.{key}"),
            layer: "set",
            said: format!("--set {key}"),
        });
    }
    Ok(())
}
