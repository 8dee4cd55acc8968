//! The `runner overnight setup` command: adds the job to `runner.toml` and then sets up the host's
//! timer as `runner setup` does.

use std::fs;
use std::path::Path;

use runner_engine::files::{DOCUMENT, beneath, read_text_in, write_atomic};
use runner_engine::outcome::Exit;

use crate::cli::args::{Listing, SetupArgs};
use crate::cli::{Failure, Ui};
use crate::commands::{config as config_command, setup};
use crate::config::{self, Edit};
use crate::env::Env;
use crate::project::{FILE, LoadedProject};

/// Path of the file with the generated instructions.
const ASSISTANCE: &str = ".agentops/generated/dream/overnight.md";

/// The options of `overnight setup`.
pub(super) struct SetupRequest<'a> {
    /// Whether to carry out the setup rather than only show it.
    pub apply: bool,
    pub scheduler: &'a str,
    /// The time of day at which the job is due.
    pub at: Option<&'a str>,
    /// The backends that are asked for a report.
    pub runners: &'a [String],
}

/// Shows the missing parts of the setup, or carries them out.
pub(super) fn run(
    home: &Env,
    here: &Path,
    wish: &SetupRequest<'_>,
    listing: Listing,
    ui: Ui,
) -> Result<Exit, Failure> {
    let project = LoadedProject::load(home, here)?;
    let path = project.root.join(FILE);
    let old = read_text_in(&project.root, FILE, DOCUMENT)
        .map_err(|error| Failure::environment(format!("{}: {error}", path.display())))?;
    let mut text = old.clone();
    for (key, value) in wanted(&project, wish)? {
        let edit = Edit { key: &key, value: &value, file: &path, user: false };
        text = config::edit_text(&home.user_config, &edit, Some(text))?.1;
    }
    if wish.apply && text != old {
        config_command::write(&path, &old, &text)?;
    }
    if !listing.json {
        let lines: Vec<&str> = text
            .lines()
            .skip_while(|line| *line != "[jobs.overnight]")
            .take_while(|line| !line.is_empty())
            .collect();
        let verb = match (text != old, wish.apply) {
            (false, _) => "is already in",
            (true, true) => "is now in",
            (true, false) => "would be written to",
        };
        ui.info(&format!("{}\n  {verb} {}\n", lines.join("\n"), path.display()));
    }
    if wish.apply {
        assist(&project.root)?;
    }
    let args = SetupArgs {
        scheduler: wish.scheduler.to_owned(),
        at: None,
        runner: Vec::new(),
        job: Vec::new(),
        apply: wish.apply,
        remove: false,
        all: false,
        status: false,
        verify: false,
        wake: false,
        listing,
    };
    if wish.scheduler == "manual" && wish.apply {
        return Ok(Exit::Done);
    }
    setup::run(home, here, &args, ui)
}

/// Returns the job's settings to write, by key. Settings that already have the value are left out.
fn wanted(
    project: &LoadedProject,
    wish: &SetupRequest<'_>,
) -> Result<Vec<(String, String)>, Failure> {
    let mut all = Vec::new();
    let there = project.config.jobs.contains_key("overnight");
    if !there {
        all.push(("kind", "overnight".to_owned()));
    }
    match wish.at {
        Some(at) => all.push(("trigger", format!("daily {at}"))),
        None if !there => all.push(("trigger", "night".to_owned())),
        None => {}
    }
    if !there {
        all.push(("keep_awake", "true".to_owned()));
    }
    if !wish.runners.is_empty() {
        super::known(&project.config, wish.runners).map_err(Failure::configuration)?;
        let names: Vec<String> = wish.runners.iter().map(|it| format!("{it:?}")).collect();
        all.push(("runners", format!("[{}]", names.join(", "))));
    }
    Ok(all.into_iter().map(|(key, value)| (format!("jobs.overnight.{key}"), value)).collect())
}

/// Writes the instructions for the person who set up the night.
fn assist(root: &Path) -> Result<(), Failure> {
    let cannot = |why: String| Failure::cannot_write(format!("{ASSISTANCE}: {why}"));
    let path = beneath(root, Path::new(ASSISTANCE)).map_err(|error| cannot(error.to_string()))?;
    let text = "# The night over the corpus\n\nSet up by `runner overnight setup --apply`. No program runs anything in this file.\n\n\
                - Check whether this machine will wake for it: `runner doctor`\n- Run one now: `runner overnight start`\n\
                - Read the last one: `runner overnight report`\n- Remove the timer: `runner setup --remove`\n";
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| cannot(error.to_string()))?;
    }
    write_atomic(&path, text.as_bytes(), 0o644).map_err(|error| cannot(error.source.to_string()))
}
