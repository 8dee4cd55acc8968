//! `runner config`: shows, checks and changes settings, and prints their schema.

mod change;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use runner_engine::outcome::Exit;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use toml::Value;

pub(super) use change::{ConfigFile, change, write};

use super::Cli;
use crate::commands::lifecycle::cycle_mistakes;
use crate::config::{
    self, ConfigFinding, OverrideScope, ResolvedSetting, ResolvedSettings, SettingChange,
    SettingOrigin, inline,
};
use crate::project;
use crate::setup::ticks;
use crate::ui::{Failure, Ui, View, show};

/// The order in which the tables are printed. Other tables follow.
const ORDER: [&str; 13] = [
    "project", "night", "day", "daemon", "serve", "pools", "prices", "backends", "groups",
    "defaults", "jobs", "notify", "channels",
];

/// Show the settings with their sources, check them, or change one
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner config show --origin")]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Print all resolved settings as TOML
    #[command(after_help = "Example: runner config show --origin --config night.at=23:00")]
    Show {
        /// Add the source of the value to each line: layer, file and line
        #[arg(long)]
        origin: bool,
    },
    /// Print "ok", or every mistake in the settings with its location
    #[command(after_help = "Example: runner config check || $EDITOR runner.toml")]
    Check,
    /// Print the JSON schema of runner.toml, for editors
    #[command(after_help = "Example: runner config schema > runner.schema.json")]
    Schema,
    /// Print one value; exit code 1 if it is not set
    #[command(after_help = "Example: runner config get jobs.dream.timeout")]
    Get {
        /// The dotted name of the setting
        key: String,
    },
    /// Change settings in the project's runner.toml and leave the rest of the file unchanged
    #[command(
        after_help = "Example: runner config set jobs.tidy.kind command jobs.tidy.program make"
    )]
    Set {
        /// The dotted name of the setting
        key: String,
        /// The value, as TOML or else as text: 3, 23:30, true, '["a", "b"]'
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// More names and values to change together with the first
        #[arg(num_args = 0.., value_name = "KEY VALUE")]
        more: Vec<String>,
        /// Change the user's own file, which applies to all projects
        #[arg(long)]
        user: bool,
    },
    /// Remove settings from the project's runner.toml, so that their defaults apply
    #[command(after_help = "Example: runner config unset night.at")]
    Unset {
        /// The dotted name of the setting or of a table, such as jobs.tidy
        #[arg(required = true)]
        keys: Vec<String>,
        /// Change the user's own file, which applies to all projects
        #[arg(long)]
        user: bool,
    },
    /// Open the project's runner.toml in the editor, then check and accept the settings
    ///
    /// The editor is the program in VISUAL or EDITOR, or else vi.
    #[command(after_help = "Example: EDITOR=nano runner config edit")]
    Edit {
        /// Open the user's own file, which applies to all projects
        #[arg(long)]
        user: bool,
    },
}

impl ConfigArgs {
    /// Returns the settings that `--config` may change for this command, or `None` if the command
    /// accepts no overrides.
    pub fn override_scope(&self) -> Option<OverrideScope> {
        match self.command {
            ConfigCommand::Set { .. }
            | ConfigCommand::Unset { .. }
            | ConfigCommand::Edit { .. }
            | ConfigCommand::Schema => None,
            _ => Some(OverrideScope::Look),
        }
    }

    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        match &self.command {
            ConfigCommand::Schema => {
                Ui::document(&config::schema());
                Ok(Exit::Done)
            }
            ConfigCommand::Set { key, value, more, user } => {
                let (further, rest) = more.as_chunks::<2>();
                if let [key] = rest {
                    return Err(Failure::usage(format!("{key} has no value"))
                        .hint("runner config set KEY VALUE [KEY VALUE]..."));
                }
                let set =
                    |key: &String, value: &String| SettingChange::Set(key.clone(), value.clone());
                let mut changes = vec![set(key, value)];
                changes.extend(further.iter().map(|[key, value]| set(key, value)));
                change(cli, &changes, ConfigFile::of(*user))
            }
            ConfigCommand::Unset { keys, user } => {
                let changes: Vec<_> = keys.iter().cloned().map(SettingChange::Remove).collect();
                change(cli, &changes, ConfigFile::of(*user))
            }
            ConfigCommand::Edit { user } => change::edit(cli, ConfigFile::of(*user)),
            ConfigCommand::Show { origin, .. } => {
                let settings = settings(cli)?;
                cli.ui.show(&ShownSettings { settings, origin: *origin });
                Ok(Exit::Done)
            }
            ConfigCommand::Check => check(cli),
            ConfigCommand::Get { key, .. } => {
                let value = settings(cli)?.get(key)?;
                let exit = if value.is_some() { Exit::Done } else { Exit::Failed };
                cli.ui.show(&SettingValue { value, key });
                Ok(exit)
            }
        }
    }
}

fn settings(cli: &Cli<'_>) -> Result<ResolvedSettings, Failure> {
    let file = file(cli.here)?;
    ResolvedSettings::of(&cli.env.stack(file.as_deref()))
}

/// Returns the path of the project's file, or `None` if the folder is outside any project. A
/// missing folder is an error.
fn file(here: &Path) -> Result<Option<PathBuf>, Failure> {
    if !here.is_dir() {
        return project::find(here).map(|root| Some(root.join(project::FILE)));
    }
    Ok(project::find(here).ok().map(|root| root.join(project::FILE)))
}

struct ShownSettings {
    settings: ResolvedSettings,
    /// Whether to show the source of each setting.
    origin: bool,
}

/// A setting with its source, for JSON.
#[derive(JsonSchema, Serialize)]
pub(in crate::commands) struct SourcedSetting<'a> {
    /// The value, of any type.
    #[schemars(with = "serde_json::Value")]
    value: &'a Value,
    #[serde(flatten)]
    origin: &'a SettingOrigin,
}

/// The settings with their sources, keyed by name, as they appear in the JSON output.
pub(super) type SourcedSettings<'a> = BTreeMap<String, SourcedSetting<'a>>;

impl Serialize for ShownSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.origin {
            return self.settings.table.serialize(serializer);
        }
        serializer.collect_map(self.settings.entries.iter().map(|entry| {
            let ResolvedSetting { value, origin, .. } = entry;
            (entry.name(), SourcedSetting { value, origin })
        }))
    }
}

impl View for ShownSettings {
    fn print(&self, _ui: Ui) {
        show::out(&self.toml());
    }
}

impl ShownSettings {
    /// Formats the settings as valid TOML, with one header per table.
    fn toml(&self) -> String {
        let rank = |entry: &ResolvedSetting| {
            let top = ORDER.iter().position(|name| *name == entry.path[0]);
            (top.unwrap_or(ORDER.len()), entry.path[..entry.path.len() - 1].to_vec())
        };
        let mut entries: Vec<&ResolvedSetting> = self.settings.entries.iter().collect();
        entries.sort_by_cached_key(|entry| rank(entry));
        let mut text = String::new();
        for table in
            entries.chunk_by(|a, b| a.path[..a.path.len() - 1] == b.path[..b.path.len() - 1])
        {
            let first = table[0].name_of_table();
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&format!("[{first}]\n"));
            let lines: Vec<Vec<String>> = table
                .iter()
                .map(|entry| {
                    let mut line = vec![format!("{} = {}", entry.own_name(), inline(&entry.value))];
                    if self.origin {
                        line.push(format!("# {}", entry.origin));
                    }
                    line
                })
                .collect();
            text.push_str(&show::unwrapped_table(&lines));
        }
        text
    }
}

#[derive(Serialize)]
struct ConfigCheck {
    ok: bool,
    /// The reasons why jobs would not start on time, or why a table has no effect.
    warnings: Vec<String>,
    mistakes: Vec<ConfigFinding>,
    /// The mistakes in lifecycle jobs' cycles, each with its file and line.
    cycles: Vec<String>,
}

impl View for ConfigCheck {
    fn print(&self, _ui: Ui) {
        if self.ok {
            show::out("ok\n");
        }
        for warning in &self.warnings {
            show::complain(&format!("warning: {warning}"));
        }
        for mistake in &self.mistakes {
            show::complain(&mistake.failure.message());
        }
        for mistake in &self.cycles {
            show::complain(&format!("error: {mistake}\nfix: runner lifecycle check"));
        }
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct SettingValue<'a> {
    value: Option<Value>,
    #[serde(skip)]
    key: &'a str,
}

impl View for SettingValue<'_> {
    fn print(&self, ui: Ui) {
        match &self.value {
            None => ui.info(&format!("{} is not set", self.key)),
            Some(Value::String(text)) => show::out(&format!("{text}\n")),
            Some(value) => show::out(&format!("{}\n", inline(value))),
        }
    }
}

/// Returns a warning if the settings are valid and the user's file configures a fleet, but this
/// build does not support fleets.
fn absent_fleets(cli: &Cli<'_>, valid: bool) -> Option<String> {
    if cfg!(feature = "fleet") || !valid {
        return None;
    }
    let config = config::load(&cli.env.stack(None)).ok()?;
    let fleet = config.fleets.keys().next()?;
    let (what, hint) = crate::fleet::ABSENT;
    Some(format!("[fleet.{fleet}] has no effect: {what}\nfix: {hint}"))
}

fn check(cli: &Cli<'_>) -> Result<Exit, Failure> {
    let file = file(cli.here)?;
    let mistakes = config::mistakes(&cli.env.stack(file.as_deref()));
    let mut exit = mistakes.first().map_or(Exit::Done, |first| first.failure.exit);
    let mut cycles = Vec::new();
    let warnings = match (&file, mistakes.is_empty()) {
        (Some(_), true) => {
            let config = config::load(&cli.env.stack(file.as_deref()))?;
            cycles = project::find(cli.here)
                .map_or_else(|_| Vec::new(), |root| cycle_mistakes(&root, &config));
            ticks::disagreements(cli.env, &config)
        }
        _ => Vec::new(),
    };
    let warnings = warnings.iter().map(|it| format!("{}\nfix: {}", it.what, it.hint));
    let warnings = warnings.chain(absent_fleets(cli, mistakes.is_empty())).collect();
    if !cycles.is_empty() {
        exit = Exit::Configuration;
    }
    cli.ui.show(&ConfigCheck { ok: exit == Exit::Done, warnings, mistakes, cycles });
    Ok(exit)
}
