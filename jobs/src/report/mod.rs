//! The report of a night, built only from the database and from files, so it can be rebuilt.
//!
//! A single data model is rendered in several forms. The job publishes `report.md`, `report.html`
//! and `report.json`; `runner report` rebuilds the report. Building the report never calls an AI
//! model, and the report contains nothing that is not in a database row or a file.

pub mod archive;
pub mod budget_usage;
mod by_day;
pub mod dreamscape;
pub mod fleet_usage;
mod gather;
mod html;
pub mod kind;
mod markdown;
mod model;
mod next_steps;
pub mod pending;
pub mod proposals;
pub mod refusals;
mod run_line;
#[cfg(test)]
mod sample_tests;

pub use gather::{gather, whole};
pub use html::{ArchiveEntry, NavLinks, index as html_index, render as html, render_linked};
pub use markdown::render as markdown;
pub(crate) use markdown::{code, one_line};
pub use model::{NextStep, NightReport, NotRun, NotRunReason};
pub use run_line::RunLine;

use std::path::Path;

use jiff::Timestamp;
use runner_engine::files::{DOCUMENT, read_in};
use runner_engine::outcome::Class;
use runner_engine::scope::Expect;
use serde_json::json;

use crate::{Context, Finished, JobError};

/// The folder of a project's reports.
pub const FOLDER: &str = ".runner/reports";

/// The name of the page in its night's folder.
pub const PAGE: &str = "report.html";

/// Returns the name of the folder inside [`FOLDER`] for the report of a night that opened at
/// `opened`: the night's name or, if that folder contains another night's report, the first name
/// for the same date whose folder does not. A database restored from a backup assigns the same
/// names again, and the report of a lost night must not be overwritten. This function changes
/// nothing.
pub fn folder_name(root: &Path, night: &str, opened: Timestamp) -> String {
    let date = night.get(..10).unwrap_or(night);
    let further = (2..=FURTHER).map(|number| format!("{date}-{number}"));
    std::iter::once(night.to_owned())
        .chain(further)
        .find(|name| {
            let folder = root.join(FOLDER).join(name);
            match read_in(root, folder.join("report.json"), DOCUMENT) {
                Ok(text) => serde_json::from_slice::<ReportKey>(&text)
                    .is_ok_and(|there| there.opened == opened),
                Err(_) => folder.join("report.md").symlink_metadata().is_err(),
            }
        })
        .unwrap_or_else(|| night.to_owned())
}

/// The recording key for a night's report.
const NIGHT: &str = "night";

/// Maximum number of names to try for one date.
const FURTHER: u32 = 10_000;

/// The data that distinguishes one night's report from another's.
#[derive(serde::Deserialize)]
struct ReportKey {
    opened: Timestamp,
}

/// Builds the report from the database, and returns it with the name of its folder.
fn summarize(ctx: &Context<'_>) -> Result<(NightReport, String), JobError> {
    let Some(night) = ctx.admitted.night() else {
        return Err(JobError::failed(
            Class::Internal,
            "a report needs a night, and this run has none",
        ));
    };
    let report = whole(ctx.spender.store(), night, ctx.files.root(), ctx.clock.now())?;
    let name = folder_name(ctx.files.root(), &report.night, report.opened);
    Ok((report, name))
}

/// Builds and stages the report of the night that this run belongs to.
///
/// # Errors
/// Returns an error if this run belongs to no night, if the database cannot be read, or if the
/// report cannot be staged.
pub fn run(ctx: &mut Context<'_>) -> Result<Finished, JobError> {
    let (report, name) = ctx.recording.through(NIGHT, "", || summarize(ctx))?;
    let folder = format!("{FOLDER}/{name}");
    let mut json = serde_json::to_vec_pretty(&report).map_err(|error| {
        JobError::failed(Class::Internal, format!("the report cannot be serialized: {error}"))
    })?;
    json.push(b'\n');
    ctx.files.stage(&format!("{folder}/report.json"), &json, Expect::Current)?;
    ctx.files.stage(
        &format!("{folder}/report.md"),
        markdown(&report).as_bytes(),
        Expect::Current,
    )?;
    ctx.files.stage(&format!("{folder}/{PAGE}"), html(&report).as_bytes(), Expect::Current)?;
    let mut finished = Finished { headline: report.headline(), ..Finished::default() };
    finished.facts.insert("runs".to_owned(), json!(report.runs.len()));
    finished.facts.insert("worst".to_owned(), json!(report.worst));
    finished.facts.insert("folder".to_owned(), json!(name));
    Ok(finished)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn report_of_another_night_is_never_overwritten() {
        let root = tempfile::tempdir().unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        let publish = |name: &str, opened| {
            let folder = root.path().join(FOLDER).join(name);
            fs::create_dir_all(&folder).unwrap();
            let text = json!({ "opened": at(opened), "night": name }).to_string();
            fs::write(folder.join("report.json"), text).unwrap();
        };
        let place = |night: &str, opened| folder_name(root.path(), night, at(opened));
        assert_eq!(place("2026-01-10", 1), "2026-01-10");
        publish("2026-01-10", 1);
        assert_eq!(place("2026-01-10", 1), "2026-01-10", "the night keeps its folder");
        assert_eq!(place("2026-01-10", 2), "2026-01-10-2");
        publish("2026-01-10-2", 2);
        assert_eq!(place("2026-01-10", 2), "2026-01-10-2", "the night keeps its folder");
        assert_eq!(place("2026-01-10-2", 3), "2026-01-10-3");
        // A report folder without a valid `report.json` is never reused.
        let folder = root.path().join(FOLDER).join("2026-01-10-3");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("report.md"), "kept").unwrap();
        assert_eq!(place("2026-01-10-3", 3), "2026-01-10-4");
        fs::write(folder.join("report.json"), "{").unwrap();
        assert_eq!(place("2026-01-10-3", 3), "2026-01-10-4");
    }
}
