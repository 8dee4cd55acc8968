//! All nights of a project: those in the database, and those for which only the published report
//! remains. This module must never write.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use jiff::Timestamp;
use runner_engine::files::{DOCUMENT, read_in};
use runner_engine::ids::ProjectId;
use runner_engine::store::{NightId, Store, StoreError};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FOLDER, NightReport, whole};

/// A night of a project.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct ArchivedNight {
    /// The name of the night.
    pub night: String,
    /// The time at which the night opened.
    pub opened: Timestamp,
    /// The name of the worst outcome, or `None` if there is no report yet.
    pub worst: Option<String>,
    /// The one-line summary of the report, or `None` if there is no report yet.
    pub headline: Option<String>,
    /// The folder of the published report, relative to the project, or `None` if there is none yet.
    pub folder: Option<String>,
    /// The night's id in the database, if the night is still there.
    #[serde(skip)]
    pub id: Option<NightId>,
}

/// Returns the nights of a project, newest first.
///
/// # Errors
/// Returns a [`StoreError`] if the database cannot be read. A published report that cannot be read
/// is left out.
pub fn nights(
    store: Option<&Store>,
    project: &ProjectId,
    root: &Path,
) -> Result<Vec<ArchivedNight>, StoreError> {
    let known = store.map(|store| store.reported_nights(project)).transpose()?.unwrap_or_default();
    let mut folders = BTreeSet::new();
    let mut all: Vec<ArchivedNight> = Vec::with_capacity(known.len());
    for last in known {
        let reported = last.reported;
        folders.extend(reported.as_ref().map(|report| report.folder.clone()));
        all.push(ArchivedNight {
            night: last.night.name,
            opened: last.night.opens,
            worst: reported.as_ref().map(|report| report.worst.clone()),
            headline: reported.as_ref().map(|report| report.headline.clone()),
            folder: reported.map(|report| format!("{FOLDER}/{}", report.folder)),
            id: Some(last.night.id),
        });
    }
    let entries = fs::read_dir(root.join(FOLDER)).into_iter().flatten().flatten();
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        let folder = format!("{FOLDER}/{name}");
        if folders.contains(&name) {
            continue;
        }
        if let Some(report) = published(root, &folder) {
            all.push(ArchivedNight {
                night: name,
                opened: report.opened,
                headline: Some(report.headline()),
                worst: Some(report.worst),
                folder: Some(folder),
                id: None,
            });
        }
    }
    all.sort_by(|one, other| other.opened.cmp(&one.opened).then(other.night.cmp(&one.night)));
    Ok(all)
}

/// Returns the report of a night: the published one, which is the record of the night, or else a
/// new one from the database. Returns `None` if there is neither.
///
/// # Errors
/// Returns a [`StoreError`] if the database cannot be read.
pub fn report(
    store: Option<&Store>,
    root: &Path,
    night: &ArchivedNight,
    now: Timestamp,
) -> Result<Option<NightReport>, StoreError> {
    let published = night.folder.as_ref().and_then(|folder| published(root, folder));
    if let Some(report) = published.filter(|report| report.opened == night.opened) {
        return Ok(Some(report));
    }
    match (store, night.id) {
        (Some(store), Some(id)) => whole(store, id, root, now).map(Some),
        _ => Ok(None),
    }
}

/// Reads the published report in a folder of the project, or returns `None` if it cannot be read.
fn published(root: &Path, folder: &str) -> Option<NightReport> {
    let text = read_in(root, root.join(folder).join("report.json"), DOCUMENT).ok()?;
    serde_json::from_slice(&text).ok()
}
