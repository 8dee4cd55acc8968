//! `runner overnight setup`: adds the job to `runner.toml` and sets up the host's scheduler as
//! `runner setup` does.

use std::fs;
use std::path::Path;

use runner_engine::files::{DOCUMENT, beneath, read_text_in, write_atomic};
use runner_engine::outcome::Exit;

use crate::commands::setup::{SetupArgs, SetupFile};
use crate::commands::{Cli, config as config_command};
use crate::config::{self, Edit, SettingChange};
use crate::project::{FILE, LoadedProject, trust};
use crate::ui::Failure;

/// The folder for the instructions and reference copies, inside the project.
const FOLDER: &str = ".agentops/generated/dream";

/// Write an overnight job into runner.toml and set up the host's scheduler to tick; without
/// --apply, show the changes
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner overnight setup --at 02:30 --apply")]
pub(super) struct OvernightSetupArgs {
    /// Make the changes [default: show them]
    #[arg(long)]
    apply: bool,
    /// The host scheduler
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = ["manual", "launchd", "cron", "systemd", "task-scheduler", "auto"])]
    scheduler: String,
    /// The time of day at which the job is due [default: with the project's night]
    #[arg(long, value_name = "HH:MM")]
    at: Option<String>,
    /// A backend to ask for a short report (may be repeated)
    #[arg(long, value_name = "NAME")]
    runner: Vec<String>,
}

impl OvernightSetupArgs {
    pub(super) fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let project = LoadedProject::load(cli.env, cli.here)?;
        let path = project.root.join(FILE);
        let old = read_text_in(&project.root, FILE, DOCUMENT)
            .map_err(|error| Failure::unreadable(&path, error))?;
        let changes = self.wanted(&project)?;
        let changes: Vec<SettingChange> =
            changes.into_iter().map(|(key, value)| SettingChange::Set(key, value)).collect();
        let edit = Edit { changes: &changes, file: &path, user: false };
        let text = config::edit(&cli.env.user_config, &edit, Some(old.clone()))?.1;
        if self.apply && text != old {
            let write = || config_command::write(&path, &old, &text);
            trust::accepted_change(cli.env, &project.root, || {
                write().map(|()| ((), text.clone()))
            })?;
        }
        let lines: Vec<&str> = text
            .lines()
            .skip_while(|line| *line != "[jobs.overnight]")
            .take_while(|line| !line.is_empty())
            .collect();
        let verb = match (text != old, self.apply) {
            (false, _) => "is already in",
            (true, true) => "is now in",
            (true, false) => "would be written to",
        };
        cli.ui.info(&format!("{}\n  {verb} {}\n", lines.join("\n"), path.display()));
        let mut setup = SetupArgs::of(self.scheduler.clone());
        if !self.apply {
            return setup.run(cli);
        }
        let (files, of_this_system) = setup.files(cli)?;
        assist(&project.root, &files)?;
        if !of_this_system {
            let files = files.iter().map(|file| format!("  {FOLDER}/{}\n", name_of(file)));
            cli.ui.info(&format!(
                "{} is not available on this system; nothing was registered. Its files:\n{}",
                self.scheduler,
                files.collect::<String>().trim_end()
            ));
            return Ok(Exit::Done);
        }
        if self.scheduler == "manual" {
            return Ok(Exit::Done);
        }
        setup.apply = true;
        setup.run(cli)
    }

    /// Returns the settings to write, each with its key. If the job already exists, omits the
    /// defaults for a new job.
    fn wanted(&self, project: &LoadedProject) -> Result<Vec<(String, String)>, Failure> {
        let mut all = Vec::new();
        let there = project.config.jobs.contains_key("overnight");
        if !there {
            all.push(("kind", "overnight".to_owned()));
        }
        match &self.at {
            Some(at) => all.push(("trigger", format!("daily {at}"))),
            None if !there => all.push(("trigger", "night".to_owned())),
            None => {}
        }
        if !there {
            all.push(("keep_awake", "true".to_owned()));
        }
        if !self.runner.is_empty() {
            super::known(&project.config, &self.runner).map_err(Failure::configuration)?;
            let names: Vec<String> = self.runner.iter().map(|it| format!("{it:?}")).collect();
            all.push(("runners", format!("[{}]", names.join(", "))));
        }
        Ok(all.into_iter().map(|(key, value)| (format!("jobs.overnight.{key}"), value)).collect())
    }
}

/// Returns the file's name in [`FOLDER`].
fn name_of(file: &SetupFile) -> &str {
    file.path.rsplit(['/', '\\']).next().unwrap_or(&file.path)
}

/// Writes instructions for the user, and copies of the host scheduler's files for reference.
/// Nothing runs these copies.
fn assist(root: &Path, files: &[SetupFile]) -> Result<(), Failure> {
    let guide = "# The night over the corpus\n\nSet up by `runner overnight setup --apply`. The files in this folder are copies \
                 for reference: no program runs them.\n\n\
                 - Check whether this machine will wake for it: `runner doctor`\n\
                 - Run a night now: `runner overnight start`\n\
                 - Read the last night's report: `runner overnight report`\n\
                 - Remove the timer: `runner setup --remove`\n";
    let own = files.iter().map(|file| (name_of(file), file.text.as_str()));
    for (name, text) in own.chain([("overnight.md", guide)]) {
        let path = Path::new(FOLDER).join(name);
        let cannot = |why: String| Failure::cannot_write(format!("{}: {why}", path.display()));
        let at = beneath(root, &path).map_err(|error| cannot(error.to_string()))?;
        if let Some(folder) = at.parent() {
            fs::create_dir_all(folder).map_err(|error| cannot(error.to_string()))?;
        }
        write_atomic(&at, text.as_bytes(), 0o644)
            .map_err(|error| cannot(error.source.to_string()))?;
    }
    Ok(())
}
