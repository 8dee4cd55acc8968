//! Where a project keeps what its lifecycle reads and writes, and whether entries are committed:
//! `[lifecycle]`.

use runner_engine::publish::RelPath;
use runner_jobs::lifecycle::Files;
use runner_jobs::reserved::{NEVER, reserved};
use toml::Table;

use super::section::Section;
use super::sources::{ConfigMistake, Sources};

/// Reads the table, whose every key the embedded default states.
pub(super) fn read(mut table: Table, sources: &Sources) -> Result<Files, ConfigMistake> {
    let mut section = Section::of("lifecycle", &mut table, sources);
    let known = Files::default();
    let files = Files {
        steps: section.parsed("steps", private)?.unwrap_or(known.steps),
        daydreams: (section.parsed("daydreams", of_project)?).unwrap_or(known.daydreams),
        commit: section.flag("commit")?.unwrap_or(known.commit),
        push: section.flag("push")?.unwrap_or(known.push),
    };
    section.finish()?;
    Ok(files)
}

/// Checks that a path lies in the project and in none of the reserved places.
fn of_project(text: &str) -> Result<String, String> {
    RelPath::new(text).map_err(|error| error.to_string())?;
    match reserved(text, &NEVER) {
        Some(never) => Err(format!("{text:?} lies in {never}, which is not its place")),
        None => Ok(text.to_owned()),
    }
}

/// Checks that a file's name begins with an underscore, which keeps it out of every page and
/// commit.
fn private(text: &str) -> Result<String, String> {
    RelPath::new(text).map_err(|error| error.to_string())?;
    let name = text.rsplit('/').next().unwrap_or(text);
    if !name.starts_with('_') || reserved(text, &[".git"]).is_some() {
        return Err(format!("{text:?}: its name must begin with an underscore"));
    }
    Ok(text.to_owned())
}
