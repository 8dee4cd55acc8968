//! `runner config`: shows, checks and changes settings, and prints their schema.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use runner_engine::error_chain::whole;
use runner_engine::files::{DOCUMENT, read_no_link, write_atomic};
use runner_engine::outcome::Exit;
use serde::{Serialize, Serializer};
use toml::Value;

use super::Cli;
use crate::config::{
    self, ConfigFinding, Edit, OverrideScope, ResolvedSetting, ResolvedSettings, SettingOrigin,
    inline,
};
use crate::daemon::client;
use crate::env::Env;
use crate::project::{self, trust};
use crate::setup::ticks;
use crate::tick;
use crate::ui::{Failure, Ui, View, show};

/// The order in which the tables are printed.
const ORDER: [&str; 12] = [
    "project", "night", "day", "daemon", "pools", "prices", "backends", "groups", "defaults",
    "jobs", "notify", "channels",
];

/// Show the settings with their sources, check them, or change one
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner config show --origin")]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

/// Shows, checks and changes the settings.
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
    /// Change one setting in the project's runner.toml and keep every other byte of the file
    #[command(after_help = "Example: runner config set night.at 23:30")]
    Set {
        /// The dotted name of the setting
        key: String,
        /// The value, as TOML or else as text: 3, 23:30, true, '["a", "b"]'
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Change the user's own file, which applies to all projects
        #[arg(long)]
        user: bool,
    },
}

impl ConfigArgs {
    /// Returns the settings that `--config` may change for this command, or `None` if it uses none.
    pub fn override_scope(&self) -> Option<OverrideScope> {
        match self.command {
            ConfigCommand::Set { .. } | ConfigCommand::Schema => None,
            _ => Some(OverrideScope::Look),
        }
    }

    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        match &self.command {
            ConfigCommand::Schema => {
                Ui::document(&config::schema());
                Ok(Exit::Done)
            }
            ConfigCommand::Set { key, value, user } => {
                let file = if *user { ConfigFile::User } else { ConfigFile::Project };
                set(cli, key, value, file)
            }
            ConfigCommand::Show { origin, .. } => {
                let settings = settings(cli)?;
                cli.ui.show(&ShownSettings { settings, origin: *origin });
                Ok(Exit::Done)
            }
            ConfigCommand::Check => {
                let file = file(cli.here)?;
                let mistakes = config::mistakes(&cli.env.stack(file.as_deref()));
                let exit = mistakes.first().map_or(Exit::Done, |first| first.failure.exit);
                let warnings = match (&file, mistakes.is_empty()) {
                    (Some(_), true) => {
                        let config = config::load(&cli.env.stack(file.as_deref()))?;
                        ticks::disagreements(cli.env, &config)
                    }
                    _ => Vec::new(),
                };
                let warnings =
                    warnings.iter().map(|it| format!("{}\nfix: {}", it.what, it.hint)).collect();
                cli.ui.show(&ConfigCheck { ok: mistakes.is_empty(), warnings, mistakes });
                Ok(exit)
            }
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

/// Returns the path of the project's file, or `None` outside of a project.
fn file(here: &Path) -> Result<Option<PathBuf>, Failure> {
    // A missing folder is an error, but a folder outside of any project is not.
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
#[derive(Serialize)]
struct SourcedSetting<'a> {
    value: &'a Value,
    #[serde(flatten)]
    origin: &'a SettingOrigin,
}

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
            text.push_str(&show::table(&lines));
        }
        text
    }
}

#[derive(Serialize)]
struct ConfigCheck {
    ok: bool,
    /// The reasons why jobs would not be started on time.
    warnings: Vec<String>,
    mistakes: Vec<ConfigFinding>,
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

/// The configuration file to edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigFile {
    Project,
    User,
}

pub(super) fn set(
    cli: &Cli<'_>,
    key: &str,
    value: &str,
    file: ConfigFile,
) -> Result<Exit, Failure> {
    let user = file == ConfigFile::User;
    let path = if user {
        // A symbolic link is kept, and its target is edited.
        let named = &cli.env.user_config;
        fs::canonicalize(named).unwrap_or_else(|_| named.clone())
    } else {
        project::find(cli.here)?.join(project::FILE)
    };
    let wanted = Edit { key, value, file: &path, user };
    let own = if user { &path } else { &cli.env.user_config };
    let (old, new, rest) = config::edit(own, &wanted)?;
    if rest > 0 {
        show::complain(&format!(
            "{rest} {} in the settings: nothing starts until {} fixed\n  to see: runner config check",
            if rest == 1 { "mistake remains" } else { "mistakes remain" },
            if rest == 1 { "it is" } else { "they are" },
        ));
    }
    if old == new {
        cli.ui.info(&format!("{key} already has this value; nothing was written"));
        return Ok(Exit::Done);
    }
    let write = || write(&path, &old, &new);
    match user {
        true => write()?,
        false => trust::accepted_change(cli.env, &project::find(cli.here)?, write)?,
    }
    cli.ui.info(&format!("set {key} in {}", path.display()));
    // The remaining mistakes were reported above, and every tick reports them again.
    if let (0, Err(failure)) = (rest, register(cli.env)) {
        show::complain(&format!("the change takes effect at the next tick: {}", failure.message()));
    }
    Ok(Exit::Done)
}

/// Applies a changed schedule immediately instead of at the next tick.
fn register(home: &Env) -> Result<(), Failure> {
    // Without a database, no schedule is registered yet.
    if home.store_to_read()?.is_none() {
        return Ok(());
    }
    tick::reread(home, &mut home.store()?)?;
    client::wake(home);
    Ok(())
}

/// Replaces the file's text and keeps its permissions. Fails if the text is no longer `old`.
pub(super) fn write(path: &Path, old: &str, new: &str) -> Result<(), Failure> {
    let cannot =
        |why: String| Failure::cannot_write(format!("cannot write {}: {why}", path.display()));
    let there = match read_no_link(path, DOCUMENT) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(cannot(error.to_string())),
    };
    const MARK: &[u8] = "\u{feff}".as_bytes();
    let mark: &[u8] = if there.starts_with(MARK) { MARK } else { &[] };
    if there[mark.len()..] != *old.as_bytes() {
        return Err(Failure::later(format!(
            "{} was changed in the meantime; nothing was written",
            path.display()
        ))
        .hint("run the command again"));
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| cannot(error.to_string()))?;
    }
    let mode = fs::metadata(path).map_or(0o644, |data| data.permissions().mode() & 0o7777);
    write_atomic(path, &[mark, new.as_bytes()].concat(), mode)
        .map_err(|error| cannot(whole(&error)))
}
