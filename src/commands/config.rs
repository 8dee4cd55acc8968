//! `runner config`: shows the settings, checks them, describes them, and changes one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use runner_engine::error_chain::whole;
use runner_engine::files::{DOCUMENT, read_no_link, write_atomic};
use runner_engine::outcome::Exit;
use serde_json::{Map, Value, json};

use crate::cli::args::ConfigCommand;
use crate::cli::show;
use crate::cli::{Failure, Ui};
use crate::config::{self, Edit, View, ViewEntry, inline};
use crate::daemon::client;
use crate::env::Env;
use crate::project;
use crate::tick;

/// The order in which the tables are printed.
const ORDER: [&str; 12] = [
    "project", "night", "day", "daemon", "pools", "prices", "backends", "groups", "defaults",
    "jobs", "notify", "channels",
];

/// Carries out one of the `config` commands.
pub fn run(home: &Env, here: &Path, command: &ConfigCommand, ui: Ui) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Schema => {
            show::json(&config::schema());
            Ok(Exit::Done)
        }
        ConfigCommand::Set { key, value, user } => set(home, here, key, value, *user, ui),
        ConfigCommand::Show { origin, listing } => {
            let file = file(here)?;
            let view = View::of(&home.stack(file.as_deref()))?;
            match (listing.json, origin) {
                (true, false) => show::json(&view.table),
                (true, true) => show::json(&origins(&view)),
                (false, origin) => show::out(&toml(&view, *origin)),
            }
            Ok(Exit::Done)
        }
        ConfigCommand::Check { listing } => {
            let file = file(here)?;
            let mistakes = config::mistakes(&home.stack(file.as_deref()));
            if listing.json {
                show::json(&json!({ "ok": mistakes.is_empty(), "mistakes": mistakes }));
            } else if mistakes.is_empty() {
                show::out("ok\n");
            } else {
                for mistake in &mistakes {
                    show::complain(&mistake.failure.message());
                }
            }
            Ok(mistakes.first().map_or(Exit::Done, |first| first.failure.exit))
        }
        ConfigCommand::Get { key, listing } => {
            let file = file(here)?;
            let view = View::of(&home.stack(file.as_deref()))?;
            let Some(value) = view.get(key)? else {
                if listing.json {
                    show::json(&Value::Null);
                }
                ui.info(&format!("{key} is not set"));
                return Ok(Exit::Failed);
            };
            if listing.json {
                show::json(&value);
            } else {
                let text = value.as_str().map_or_else(|| inline(&value), str::to_owned);
                show::out(&format!("{text}\n"));
            }
            Ok(Exit::Done)
        }
    }
}

/// Returns the path of the project's file, or `None` outside of a project.
fn file(here: &Path) -> Result<Option<PathBuf>, Failure> {
    // A missing folder is an error, but a folder outside of any project is not.
    if !here.is_dir() {
        return project::find(here).map(|root| Some(root.join(project::FILE)));
    }
    Ok(project::find(here).ok().map(|root| root.join(project::FILE)))
}

fn origins(view: &View) -> Value {
    let mut all = Map::new();
    for entry in &view.entries {
        let origin = &entry.origin;
        all.insert(
            entry.name(),
            json!({
                "value": entry.value,
                "layer": origin.layer,
                "file": origin.file,
                "line": origin.line,
                "given": origin.said,
            }),
        );
    }
    Value::Object(all)
}

/// Formats the settings as TOML that can be read again, each table under its own header.
fn toml(view: &View, origin: bool) -> String {
    let rank = |entry: &ViewEntry| {
        let top = ORDER.iter().position(|name| *name == entry.path[0]);
        (top.unwrap_or(ORDER.len()), entry.path[..entry.path.len() - 1].to_vec())
    };
    let mut entries: Vec<&ViewEntry> = view.entries.iter().collect();
    entries.sort_by_cached_key(|entry| rank(entry));
    let mut text = String::new();
    for table in entries.chunk_by(|a, b| a.path[..a.path.len() - 1] == b.path[..b.path.len() - 1]) {
        let first = table[0].name_of_table();
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&format!("[{first}]\n"));
        let lines: Vec<Vec<String>> = table
            .iter()
            .map(|entry| {
                let mut line = vec![format!("{} = {}", entry.own_name(), inline(&entry.value))];
                if origin {
                    line.push(format!("# {}", entry.origin));
                }
                line
            })
            .collect();
        text.push_str(&show::table(&lines));
    }
    text
}

pub(super) fn set(
    home: &Env,
    here: &Path,
    key: &str,
    value: &str,
    user: bool,
    ui: Ui,
) -> Result<Exit, Failure> {
    let path = if user {
        // If the user's file is a symbolic link, the change keeps the link and edits its target.
        let named = &home.user_config;
        fs::canonicalize(named).unwrap_or_else(|_| named.clone())
    } else {
        project::find(here)?.join(project::FILE)
    };
    let wanted = Edit { key, value, file: &path, user };
    let own = if user { &path } else { &home.user_config };
    let (old, new, rest) = config::edit(own, &wanted)?;
    if rest > 0 {
        show::complain(&format!(
            "{rest} {} in the settings: nothing starts until {} fixed\n  to see: runner config check",
            if rest == 1 { "mistake remains" } else { "mistakes remain" },
            if rest == 1 { "it is" } else { "they are" },
        ));
    }
    if old == new {
        ui.info(&format!("{key} already has this value; nothing was written"));
        return Ok(Exit::Done);
    }
    write(&path, &old, &new)?;
    ui.info(&format!("set {key} in {}", path.display()));
    // The remaining errors were printed above, and every tick reports them again.
    if let (0, Err(failure)) = (rest, register(home)) {
        show::complain(&format!("the change takes effect at the next tick: {}", failure.message()));
    }
    Ok(Exit::Done)
}

/// Applies a changed schedule immediately, and not only when a tick reads it.
fn register(home: &Env) -> Result<(), Failure> {
    // Without a database, nothing is registered yet. A later registration starts from its own time.
    if home.store_to_read()?.is_none() {
        return Ok(());
    }
    tick::reread(home, &mut home.store()?)?;
    client::wake(home);
    Ok(())
}

/// Replaces the text of the file and keeps the file's permissions.
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
        .hint("say it again"));
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| cannot(error.to_string()))?;
    }
    let mode = fs::metadata(path).map_or(0o644, |data| data.permissions().mode() & 0o7777);
    write_atomic(path, &[mark, new.as_bytes()].concat(), mode)
        .map_err(|error| cannot(whole(&error)))
}
