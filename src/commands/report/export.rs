//! `runner report --export DIR`: writes the pages of all nights and an index as files.
//!
//! ```text
//! .DIR.runner-export-PID/ ──all pages, then the index──> exchanged with DIR ──> the old folder is removed
//! ```
//!
//! Readers of DIR see either the old export or the new one. This module must never replace a folder
//! that is neither empty nor an export.

use std::fs;
use std::io;
use std::path::Path;

use runner_engine::files::write_atomic;
use runner_engine::outcome::Exit;
use runner_engine::process_id::ProcessIdentity;
use runner_jobs::report::{self, ArchiveEntry, NavLinks, NightReport, archive};
use runner_text::redact::Redacted;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;

use super::ReportedProject;
use crate::commands::Cli;
use crate::ui::{Failure, Ui, View, show};

/// The file that marks a folder as an export.
const MARK: &str = ".runner-export";
/// The name of the page with all nights.
const INDEX: &str = "index.html";

/// The result of an export.
#[derive(Debug, Serialize)]
struct Exported {
    /// The path of the index.
    index: String,
    /// Number of night pages.
    pages: usize,
}

impl View for Exported {
    fn print(&self, ui: Ui) {
        ui.info(&format!("wrote {}", show::count(self.pages as u64, "page")));
        show::out(&format!("{}\n", self.index));
    }
}

/// Writes an export, and replaces an earlier one in the same folder.
pub(super) fn run(cli: &Cli<'_>, project: &ReportedProject, into: &Path) -> Result<Exit, Failure> {
    let into = cli.env.here.join(into);
    refuse_other_folder(&into)?;
    let pages = pages(cli, project)?;
    let name = into.file_name().ok_or_else(|| {
        Failure::usage("--export names no folder").hint("runner report --export nights")
    })?;
    let pid = ProcessIdentity::me().pid;
    let draft = into.with_file_name(format!(".{}.runner-export-{pid}", name.to_string_lossy()));
    let done = write_pages(&draft, project, &pages).and_then(|()| publish(&draft, &into));
    if done.is_err() {
        let _nothing_to_remove = fs::remove_dir_all(&draft);
    }
    done.map_err(|error| {
        Failure::not_written(&into, error)
            .hint("runner report --export DIR   (in a folder that you can write to)")
    })?;
    let index = into.join(INDEX).display().to_string();
    cli.ui.show(&Exported { index, pages: pages.len() });
    Ok(Exit::Done)
}

/// Refuses a path that exists and is neither an empty folder nor an export.
fn refuse_other_folder(into: &Path) -> Result<(), Failure> {
    let refused = |why: &str| {
        Err(Failure::refused(format!("{} {why}, so it is not replaced", into.display()))
            .hint("name a folder that does not exist, or an earlier export"))
    };
    match into.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::cannot_write(format!("{}: {error}", into.display()))),
        Ok(data) if data.is_symlink() => refused("is a link"),
        Ok(data) if !data.is_dir() => refused("is not a folder"),
        Ok(_) if into.join(MARK).is_file() => Ok(()),
        Ok(_) if fs::read_dir(into).is_ok_and(|mut entries| entries.next().is_none()) => Ok(()),
        Ok(_) => refused("has files that are not from an export"),
    }
}

/// A night's page.
struct ExportedPage {
    entry: ArchiveEntry,
    report: NightReport,
}

/// Reads the reports of all nights, newest first. Omits a night without a report, and a night whose
/// name cannot be a file name.
fn pages(cli: &Cli<'_>, project: &ReportedProject) -> Result<Vec<ExportedPage>, Failure> {
    let store = cli.env.store_to_read()?;
    let now = cli.env.wall()?;
    let mut pages = Vec::new();
    for night in archive::nights(store.as_ref(), &project.id, &project.root)? {
        if !is_file_name(&night.night) {
            let name = show::printable(&night.night).into_owned();
            show::notice(&format!("runner: {name:?} is left out: it is not the name of a night"));
            continue;
        }
        let Some(report) = archive::report(store.as_ref(), &project.root, &night, now)? else {
            continue;
        };
        let entry = ArchiveEntry {
            file: format!("{}.html", night.night),
            headline: report.headline(),
            worst: report.worst.clone(),
            night: night.night,
        };
        pages.push(ExportedPage { entry, report });
    }
    Ok(pages)
}

/// Returns whether a night's name is a valid file name. A folder in the project may have any name.
fn is_file_name(night: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (1..=64).contains(&night.len()) && night != "index" && night.chars().all(allowed)
}

/// Writes the pages, and then the index, into a new folder.
fn write_pages(draft: &Path, project: &ReportedProject, pages: &[ExportedPage]) -> io::Result<()> {
    fs::create_dir(draft)?;
    let write = |name: &str, text: &str| {
        write_atomic(&draft.join(name), Redacted::of(text).as_bytes(), 0o644)
            .map_err(io::Error::other)
    };
    let file = |at: usize| pages.get(at).map(|page| page.entry.file.clone());
    for (at, page) in pages.iter().enumerate() {
        // The newest night comes first.
        let links = NavLinks {
            index: INDEX.to_owned(),
            before: file(at + 1),
            after: at.checked_sub(1).and_then(file),
        };
        write(&page.entry.file, &report::render_linked(&page.report, &links))?;
    }
    let entries: Vec<ArchiveEntry> = pages.iter().map(|page| page.entry.clone()).collect();
    let name = project.root.file_name().map(|name| name.to_string_lossy().into_owned());
    write(INDEX, &report::html_index(&name.unwrap_or_default(), &entries))?;
    write(MARK, "Written by runner report --export; the next export replaces this folder.\n")
}

/// Moves the draft into place in one step, and removes the earlier export.
fn publish(draft: &Path, into: &Path) -> io::Result<()> {
    if into.symlink_metadata().is_err() {
        return Ok(renameat_with(CWD, draft, CWD, into, RenameFlags::NOREPLACE)?);
    }
    let exchange = || renameat_with(CWD, draft, CWD, into, RenameFlags::EXCHANGE);
    exchange()?;
    // The draft's path now refers to the earlier folder, which may have changed since it was
    // examined. Only an export or an empty folder is removed.
    if draft.join(MARK).is_file() {
        return fs::remove_dir_all(draft);
    }
    fs::remove_dir(draft).or_else(|error| {
        exchange()?;
        Err(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_nights_are_file_names() {
        for good in ["2026-11-21", "2026-11-21-2"] {
            assert!(is_file_name(good), "{good}");
        }
        for bad in ["", ".", "..", "../x", "a/b", "index", ".hidden", "a b", "a\u{202e}b", "ä"] {
            assert!(!is_file_name(bad), "{bad}");
        }
    }

    #[test]
    fn changed_folder_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let (draft, into) = (folder.path().join("draft"), folder.path().join("nights"));
        for (path, file) in [(&draft, MARK), (&into, "mine")] {
            fs::create_dir(path).unwrap();
            fs::write(path.join(file), "x").unwrap();
        }
        publish(&draft, &into).unwrap_err();
        assert!(into.join("mine").is_file() && draft.join(MARK).is_file());
    }
}
