//! `runner completions` and `runner man`: print completion scripts and write manual pages.
//!
//! This module must never replace a file that it did not write.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use runner_engine::error_chain::whole;
use runner_engine::files::{DOCUMENT, read_no_link, write_atomic};
use runner_engine::outcome::Exit;

use super::pages::{self, MARK, Page};
use crate::ui::{Failure, Ui, show};

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: runner completions bash > ~/.local/share/bash-completion/completions/runner"
)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

impl CompletionsArgs {
    pub fn run(&self, program: &mut Command) -> Exit {
        show::own(&pages::completions(self.shell, program));
        Exit::Done
    }
}

/// Write the manual into a folder, one page per command
///
/// An existing page is replaced if this command wrote it. If any other file has the same name as a page, nothing
/// is written.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner man ~/.local/share/man/man1 && man runner-night")]
pub struct ManArgs {
    /// The folder; it is created if it does not exist
    #[arg(value_name = "DIR")]
    into: PathBuf,
}

impl ManArgs {
    /// Writes the manual pages that are missing or outdated. Writes nothing if any page's path is
    /// occupied by something that this command did not write.
    pub fn run(&self, program: &Command, ui: Ui) -> Result<Exit, Failure> {
        let into = &self.into;
        let pages = pages::manual(program)
            .map_err(|error| Failure::internal(format!("cannot create a page: {error}")))?;
        let wanted: Vec<(PathBuf, Page)> = pages
            .into_iter()
            .map(|page| (into.join(&page.name), page))
            .filter_map(|(path, page)| match ours(&path, &page.text) {
                Ok(true) => Some(Ok((path, page))),
                Ok(false) => None,
                Err(failure) => Some(Err(failure)),
            })
            .collect::<Result<_, _>>()?;
        fs::create_dir_all(into).map_err(|error| Failure::not_made(into, error))?;
        for (path, page) in &wanted {
            write_atomic(path, &page.text, 0o644).map_err(|error| {
                Failure::cannot_write(format!("cannot write {}: {}", path.display(), whole(&error)))
            })?;
            show::out(&format!("{}\n", path.display()));
        }
        if wanted.is_empty() {
            ui.info("all pages are up to date; nothing was written");
        }
        Ok(Exit::Done)
    }
}

/// Returns whether a page must be written, because it is missing or outdated.
///
/// # Errors
/// Returns an error if the path exists, but is not a readable file that `runner man` wrote.
fn ours(path: &Path, text: &[u8]) -> Result<bool, Failure> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Ok(data) if data.is_file() => match read_no_link(path, DOCUMENT) {
            Ok(found) if found == text => return Ok(false),
            Ok(found) if found.starts_with(MARK.as_bytes()) => return Ok(true),
            _ => {}
        },
        _ => {}
    }
    Err(Failure::cannot_write(format!(
        "{} already exists and was not written by runner man; nothing was written",
        path.display()
    ))
    .hint("runner man ANOTHER-FOLDER"))
}
