//! `runner memory install`: prepares the store and the skill, and connects the hooks of Claude Code
//! and Codex. In the hosts' settings, this module must never change a byte outside those hooks.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runner_engine::files::{DOCUMENT, read_text_host, write_atomic};
use runner_jobs::AgentFolders;
use runner_memory::store::Location;
use runner_text::shell_word;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::MemoryCli;
use super::host_file::{self, HookEntries};
use crate::env;
use crate::hooks::scope;
use crate::ui::{Failure, Ui, View, show};

/// The text of the skill. `NAME` is replaced with the skill's name.
const SKILL: &str = include_str!("skill.md");
/// The name of the file, kept beside the store, that records the inserted strings.
const RECORD: &str = "install.json";
/// The hooks: the host's event, the name of runner's hook, and the host's time limit in seconds.
const HOOKS: [(&str, &str, u32); 5] = [
    ("SessionStart", "session-start", 2),
    ("UserPromptSubmit", "prompt-submit", 2),
    ("Stop", "stop", 10),
    ("SessionEnd", "session-end", 10),
    ("PreCompact", "pre-compact", 10),
];

/// Prepare the store and the skill, and print or make the change that connects the hooks
///
/// Without --apply or --remove, the settings of Claude Code and Codex are not changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner memory install --apply")]
pub struct InstallArgs {
    /// Add the hooks to the settings
    #[arg(long, conflicts_with = "remove")]
    apply: bool,
    /// Remove the hooks and the skill, but keep the store
    #[arg(long)]
    remove: bool,
    /// Only this program (may be repeated) [default: claude, and codex if ~/.codex exists]
    #[arg(long = "host", value_enum, value_name = "NAME")]
    hosts: Vec<HostName>,
    /// Write a plugin folder for Claude Code instead
    #[arg(long, value_name = "DIR", conflicts_with_all = ["apply", "remove", "hosts"])]
    plugin: Option<PathBuf>,
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum HostName {
    Claude,
    Codex,
}

/// The strings inserted into settings files, keyed by file path.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct InstallRecord {
    inserted: BTreeMap<String, Vec<String>>,
}

/// The record with its path.
struct RecordFile {
    path: PathBuf,
    record: InstallRecord,
}

/// A program's settings and skill.
#[derive(Debug, Serialize)]
struct HostView {
    name: HostName,
    /// The program's settings file, which contains the hooks.
    settings: String,
    skill: String,
    state: HookState,
    /// The positions of the hooks that were changed or added by someone else.
    changed: Vec<String>,
    /// The hooks to add.
    hooks: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum HookState {
    Printed,
    /// The settings contain the hooks in an older form, which `--apply` replaces.
    Outdated,
    /// The settings contain hooks of runner that were changed or added by someone else.
    Changed,
    Added,
    Present,
    Removed,
    Absent,
}

#[derive(Debug, Serialize)]
struct InstallView {
    database: String,
    foreign_store: Option<String>,
    hosts: Vec<HostView>,
}

impl View for InstallView {
    fn print(&self, _: Ui) {
        let removed = |it: &HostView| matches!(it.state, HookState::Removed | HookState::Absent);
        if self.hosts.iter().all(removed) {
            for host in &self.hosts {
                let what = if host.state == HookState::Removed { "removed from" } else { "not in" };
                show::out(&format!("The hooks are {what} {}.\n", host.settings));
            }
            return show::out(&format!("The store is kept: {}\n", self.database));
        }
        show::out(&format!(
            "runner memory installed successfully!\n\nDatabase: {}\n",
            self.database
        ));
        if let Some(foreign) = &self.foreign_store {
            show::out(&format!(
                "{foreign} belongs to another program and is never changed. To copy its nodes: runner memory import {}\n",
                shell_word(foreign)
            ));
        }
        for host in &self.hosts {
            show::out(&format!("Skill: {}\n", host.skill));
        }
        for host in &self.hosts {
            let hooks = serde_json::to_string_pretty(&host.hooks).unwrap_or_default();
            show::out(&match host.state {
                HookState::Added => format!("\nThe hooks were added to {}.\n", host.settings),
                HookState::Present => format!("\nThe hooks are already in {}.\n", host.settings),
                HookState::Changed => format!(
                    "\n{}. To use the standard hooks, remove these entries, then: runner memory install --apply\n",
                    foreign_hooks(&host.settings, &host.changed)
                ),
                HookState::Outdated => format!(
                    "\nThe hooks in {} are outdated. To replace them: runner memory install --apply\n",
                    host.settings
                ),
                _ => format!(
                    "\nTo enable hooks, add to {} (or let `runner memory install --apply` add it):\n\n{hooks}\n",
                    host.settings
                ),
            });
            if host.state == HookState::Changed {
                continue;
            }
            show::out(match host.name {
                HostName::Claude => "\nThen restart Claude Code to load the new configuration.\n",
                HostName::Codex => {
                    "\nThen start codex and trust the hooks with /hooks. `codex exec` skips untrusted hooks \
                     without a message.\n"
                }
            });
        }
    }
}

impl InstallArgs {
    pub fn run(&self, on: &mut MemoryCli) -> Result<(), Failure> {
        if let Some(folder) = &self.plugin {
            return plugin(folder, on);
        }
        let folder = on.location.path.parent().unwrap_or(Path::new(".")).to_owned();
        let mut record = RecordFile::read(folder.join(RECORD))?;
        let mut hosts = self.hosts.clone();
        if hosts.is_empty() {
            hosts.push(HostName::Claude);
            if home_of(HostName::Codex)?.is_dir() {
                hosts.push(HostName::Codex);
            }
        }
        let mut view = InstallView {
            database: on.location.path.display().to_string(),
            foreign_store: on.location.foreign.as_ref().map(|path| path.display().to_string()),
            hosts: Vec::new(),
        };
        for name in hosts {
            view.hosts.push(self.host(name, &mut record, on)?);
        }
        on.ui.show(&view);
        Ok(())
    }

    fn host(
        &self,
        name: HostName,
        record: &mut RecordFile,
        on: &MemoryCli,
    ) -> Result<HostView, Failure> {
        let home = home_of(name)?;
        let settings = home.join(match name {
            HostName::Claude => "settings.json",
            HostName::Codex => "hooks.json",
        });
        let key = settings.display().to_string();
        let entries = entries(name)?;
        let skill = skill_file(&home, &on.location);
        let text = read(&settings)?;
        // The recorded hooks can be removed only if they have not changed since they were inserted.
        let rest = record.inserted(&key).and_then(|it| host_file::remove(&text, it));
        let mut changed = Vec::new();
        let state = match (self.apply, self.remove) {
            (_, true) => {
                let state = remove_hooks(&settings, &text, rest.as_deref())?;
                record.set(&key, None)?;
                remove_skill(&skill)?;
                state
            }
            _ if host_file::is_complete(&text, &entries) => HookState::Present,
            (true, _) => {
                // Recorded hooks that differ, such as those of a moved program, are replaced.
                let rest = rest.as_deref().unwrap_or(&text);
                refuse_own(&key, rest, "runner memory install --apply")?;
                let (with, inserted) = host_file::insert(rest, &entries).map_err(|why| {
                    Failure::data(format!("{key}: {why}")).hint(format!(
                        "repair {key}, or add the hooks manually: runner memory install"
                    ))
                })?;
                // The record is written first, so that hooks in the settings are always recorded.
                record.set(&key, Some(inserted))?;
                make_folder(&home)?;
                write_settings(&settings, &with)
                    .map_err(|it| Failure::not_written(&settings, it))?;
                HookState::Added
            }
            _ if rest.is_some() => HookState::Outdated,
            _ => {
                // Settings that cannot be parsed contain no hooks that would run.
                changed = host_file::own_hooks(&text).unwrap_or_default();
                if changed.is_empty() { HookState::Printed } else { HookState::Changed }
            }
        };
        if !self.remove {
            write(&skill, &skill_text(&skill))?;
        }
        let hooks: serde_json::Map<String, Value> =
            entries.into_iter().map(|(event, entry)| (event.to_owned(), json!([entry]))).collect();
        let skill = skill.display().to_string();
        Ok(HostView {
            name,
            settings: key,
            skill,
            state,
            changed,
            hooks: json!({ "hooks": hooks }),
        })
    }
}

/// Replaces the settings with `rest`, which lacks the recorded hooks, or deletes the file if `rest`
/// is empty. Without `rest`, there are no hooks to remove.
fn remove_hooks(settings: &Path, text: &str, rest: Option<&str>) -> Result<HookState, Failure> {
    let key = settings.display().to_string();
    refuse_own(&key, rest.unwrap_or(text), "runner memory install --remove")?;
    let Some(rest) = rest else { return Ok(HookState::Absent) };
    let done = match rest.is_empty() {
        true => fs::remove_file(settings),
        false => write_settings(settings, rest),
    };
    done.map_err(|error| Failure::not_written(settings, error))?;
    Ok(HookState::Removed)
}

/// Returns an error if settings contain hooks of the memory that were changed or that runner did
/// not insert, or if the settings are not JSON.
fn refuse_own(key: &str, text: &str, command: &str) -> Result<(), Failure> {
    let own = host_file::own_hooks(text).map_err(|why| {
        Failure::data(format!("{key} is not JSON: {why}"))
            .hint(format!("repair {key}, then {command}"))
    })?;
    if own.is_empty() {
        return Ok(());
    }
    let failure = Failure::data(foreign_hooks(key, &own));
    Err(failure.hint(format!("remove these entries from {key}, then {command}")))
}

/// Describes the hooks in a settings file that were changed or added by someone else.
fn foreign_hooks(settings: &str, positions: &[String]) -> String {
    let positions = positions.join(", ");
    format!(
        "{settings} contains hooks of runner that were changed or added by someone else: {positions}"
    )
}

impl RecordFile {
    fn read(path: PathBuf) -> Result<Self, Failure> {
        let record = match read(&path)? {
            text if text.is_empty() => InstallRecord::default(),
            text => serde_json::from_str(&text)
                .map_err(|error| Failure::data(format!("{}: {error}", path.display())))?,
        };
        Ok(Self { path, record })
    }

    fn inserted(&self, key: &str) -> Option<&Vec<String>> {
        self.record.inserted.get(key)
    }

    /// Records the strings inserted into a file, or records that there are none.
    fn set(&mut self, key: &str, inserted: Option<Vec<String>>) -> Result<(), Failure> {
        match inserted {
            Some(inserted) => self.record.inserted.insert(key.to_owned(), inserted),
            None => self.record.inserted.remove(key),
        };
        write(&self.path, &show::json_line(&self.record))
    }
}

/// Returns the folder that contains a program's settings.
pub fn home_of(name: HostName) -> Result<PathBuf, Failure> {
    let AgentFolders { claude, codex } = env::agent_folders();
    let (folder, usual, variable) = match name {
        HostName::Claude => (claude, ".claude", "CLAUDE_CONFIG_DIR"),
        HostName::Codex => (codex, ".codex", "CODEX_HOME"),
    };
    // The program resolves a relative path in each folder in which it is started.
    if let Some(path) = env::setting(variable).map(PathBuf::from).filter(|it| it.is_relative()) {
        let what = format!("{variable} must be an absolute path, but is {}", path.display());
        let path = std::path::absolute(&path).unwrap_or(path);
        let fix = format!("export {variable}={}", shell_word(path.display()));
        return Err(Failure::environment(what).hint(fix));
    }
    folder.map_or_else(|| Ok(scope::user_home()?.join(usual)), Ok)
}

/// Returns the hooks for a program. Claude Code starts a command with `args` without a shell; Codex
/// does not support `args`.
fn entries(name: HostName) -> Result<HookEntries, Failure> {
    let program = env::program()?.display().to_string();
    let hook = |(event, hook, timeout): (&'static str, &str, u32)| {
        let command = match name {
            HostName::Claude => {
                json!({ "type": "command", "command": program, "args": ["hook", hook], "timeout": timeout })
            }
            HostName::Codex => {
                let quoted = program.replace('\'', "'\\''");
                let command = format!("'{quoted}' hook {hook} --host codex");
                json!({ "type": "command", "command": command, "timeout": timeout })
            }
        };
        let entry = match name {
            HostName::Claude => json!({ "matcher": "", "hooks": [command] }),
            HostName::Codex => json!({ "hooks": [command] }),
        };
        (event, entry)
    };
    Ok(HOOKS.map(hook).into())
}

/// Returns the path of the skill, which is named `ctx` unless another program has a skill of that
/// name or a store.
fn skill_file(home: &Path, location: &Location) -> PathBuf {
    let usual = home.join("skills/ctx/SKILL.md");
    let taken = read(&usual).map_or(true, |text| !text.is_empty() && !is_own_skill(&text));
    match taken || location.foreign.is_some() {
        true => home.join("skills/runner-memory/SKILL.md"),
        false => usual,
    }
}

fn is_own_skill(text: &str) -> bool {
    text.contains("`runner memory")
}

fn skill_text(path: &Path) -> String {
    let name = path.parent().and_then(|folder| folder.file_name());
    SKILL.replace("NAME", &name.unwrap_or_default().to_string_lossy())
}

fn remove_skill(path: &Path) -> Result<(), Failure> {
    if read(path)? != skill_text(path) {
        return Ok(());
    }
    fs::remove_file(path).map_err(|error| Failure::not_written(path, error))?;
    // A folder that contains other files is kept.
    let _kept = path.parent().map(fs::remove_dir);
    Ok(())
}

/// Writes a plugin folder for Claude Code.
fn plugin(folder: &Path, on: &MemoryCli) -> Result<(), Failure> {
    let hooks: serde_json::Map<String, Value> = entries(HostName::Claude)?
        .into_iter()
        .map(|(event, entry)| (event.to_owned(), json!([entry])))
        .collect();
    let manifest = json!({
        "name": "runner-memory",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "Notes from coding sessions for later sessions",
    });
    let skill = folder.join("skills/ctx/SKILL.md");
    let text = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default() + "\n";
    write(&folder.join(".claude-plugin/plugin.json"), &text(&manifest))?;
    write(&folder.join("hooks/hooks.json"), &text(&json!({ "hooks": hooks })))?;
    write(&skill, &skill_text(&skill))?;
    on.ui.show(&PluginView { plugin: folder.display().to_string() });
    Ok(())
}

#[derive(Debug, Serialize)]
struct PluginView {
    plugin: String,
}

impl View for PluginView {
    fn print(&self, _: Ui) {
        show::out(&format!(
            "The plugin is in {0}. To use it: claude --plugin-dir {0}\n",
            self.plugin
        ));
    }
}

/// Reads a file of at most [`DOCUMENT`] bytes. Returns an empty string for a missing file.
fn read(path: &Path) -> Result<String, Failure> {
    match read_text_host(path, DOCUMENT) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Failure::unreadable(path, error)),
    }
}

fn make_folder(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::not_made(folder, error))
}

/// Writes one of runner's own files, and creates its folder if necessary.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    make_folder(path.parent().unwrap_or(Path::new("/")))?;
    write_atomic(path, text.as_bytes(), 0o644).map_err(|it| Failure::cannot_write(it.to_string()))
}

/// Writes a settings file. Follows a symbolic link, and keeps the permissions of an existing file.
fn write_settings(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mode = fs::metadata(&real).map_or(0o600, |data| data.permissions().mode());
    write_atomic(&real, text.as_bytes(), mode).map_err(|error| error.source)
}
