//! The `runner report` command: builds a night's report again from the database and the night's
//! artifacts.
//!
//! ```text
//! night ──> report::whole ──> markdown | page | JSON on standard output
//!                        └──> --open: the page in a file ──> the host's opener
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use runner_engine::files::{DOCUMENT, read_text_in, write_atomic};
use runner_engine::outcome::Exit;
use runner_engine::store::{Night, Store};
use runner_jobs::report;

use crate::cli::report::ReportArgs;
use crate::cli::show;
use crate::cli::{Failure, Ui};
use crate::env::{self, Env};
use crate::project::LoadedProject;

/// The program that opens a page on this host.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Prints a report, or opens its page.
pub fn run(home: &Env, here: &Path, args: &ReportArgs, ui: Ui) -> Result<Exit, Failure> {
    let project = LoadedProject::load(home, here)?;
    let none = || Failure::data("there was no night here yet").hint("runner night");
    let store = home.store_to_read()?.ok_or_else(none)?;
    let nights = store.nights(&project.id, 400)?;
    let found = match &args.night {
        None => nights.first().ok_or_else(none)?,
        Some(name) => nights.iter().find(|night| night.name == *name).ok_or_else(|| {
            let known = nights
                .iter()
                .take(5)
                .map(|night| night.name.as_str())
                .collect::<Vec<_>>()
                .join(", ");
            Failure::data(format!("no night {name:?} here; the last ones: {known}"))
        })?,
    };
    let reported = report::whole(&store, found.id, &project.root, home.wall()?)?;
    let form = args.form;
    if form.json {
        show::json(&reported);
    } else if form.html {
        show::out(&report::html(&reported));
    } else if form.open {
        return open(home, &project, &store, found, &report::html(&reported), ui);
    } else {
        show::out(&report::markdown(&reported));
    }
    Ok(Exit::Done)
}

/// Opens a page with the host's program for web pages.
fn open(
    home: &Env,
    project: &LoadedProject,
    store: &Store,
    night: &Night,
    page: &str,
    ui: Ui,
) -> Result<Exit, Failure> {
    let path = at_hand(home, project, store, night, page)?;
    let by_hand = format!("open it manually: {}", path.display());
    show::out(&format!("{}\n", path.display()));
    let Some(opener) = env::host_program(OPENER) else {
        return Err(Failure::unavailable(format!(
            "{OPENER} was not found, so the page cannot be opened; {by_hand}"
        ))
        .hint("apt-get install xdg-utils   (or your system's way)"));
    };
    ui.info(&format!("{} opens it", opener.display()));
    let ended = Command::new(&opener).arg(&path).status();
    match ended {
        Ok(status) if status.success() => Ok(Exit::Done),
        Ok(status) => Err(Failure::unavailable(format!(
            "{} could not open the page ({status}); {by_hand}",
            opener.display()
        ))),
        Err(error) => {
            Err(Failure::unavailable(format!("{}: {error}; {by_hand}", opener.display())))
        }
    }
}

/// Returns a file with the page: the night's published report if its content is the same, otherwise
/// a file in runner's own folder. Viewing must not overwrite a published report, which is the
/// record of the night.
fn at_hand(
    home: &Env,
    project: &LoadedProject,
    store: &Store,
    night: &Night,
    page: &str,
) -> Result<PathBuf, Failure> {
    let folder = store.report_folder(night.id)?;
    let published = project
        .root
        .join(report::FOLDER)
        .join(folder.as_ref().unwrap_or(&night.name))
        .join(report::PAGE);
    if read_text_in(&project.root, &published, DOCUMENT).is_ok_and(|there| there == page) {
        return Ok(published);
    }
    let folder = home.state.join("pages");
    let path = folder.join(format!("{}-{}.html", project.id, night.name));
    std::fs::create_dir_all(&folder)
        .map_err(|error| error.to_string())
        .and_then(|()| {
            write_atomic(&path, page.as_bytes(), 0o600).map_err(|error| error.to_string())
        })
        .map_err(|error| {
            Failure::cannot_write(format!("cannot write {}: {error}", path.display()))
        })?;
    Ok(path)
}
