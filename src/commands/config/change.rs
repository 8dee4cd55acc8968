//! `runner config set`, `unset` and `edit`: change a settings file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use runner_engine::error_chain::whole;
use runner_engine::files::{DOCUMENT, read_no_link, write_atomic};
use runner_engine::outcome::Exit;

use crate::commands::Cli;
use crate::config::{self, Edit, SettingChange};
use crate::daemon::client;
use crate::env::{self, Env};
use crate::project::{self, trust};
use crate::tick;
use crate::ui::{Failure, show};

/// The configuration file to edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum ConfigFile {
    Project,
    User,
}

impl ConfigFile {
    pub(super) fn of(user: bool) -> Self {
        if user { Self::User } else { Self::Project }
    }

    /// Returns the file's path. If the user's file is a symbolic link, returns the path of the
    /// link's target, so that the link is kept.
    fn path(self, cli: &Cli<'_>) -> Result<PathBuf, Failure> {
        let named = &cli.env.user_config;
        match self {
            Self::User => Ok(fs::canonicalize(named).unwrap_or_else(|_| named.clone())),
            Self::Project => Ok(project::find(cli.here)?.join(project::FILE)),
        }
    }

    /// Calls `change`, which writes the file and returns its new contents. A project's new settings
    /// are accepted if all of its settings were in effect before.
    fn change(
        self,
        cli: &Cli<'_>,
        change: impl FnOnce() -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        if trust::in_run() {
            return Err(Failure::usage("a run cannot change settings"));
        }
        let change = || change().map(|text| ((), text));
        match self {
            Self::User => change().map(drop),
            Self::Project => trust::accepted_change(cli.env, &project::find(cli.here)?, change),
        }
    }
}

pub(in crate::commands) fn change(
    cli: &Cli<'_>,
    changes: &[SettingChange],
    file: ConfigFile,
) -> Result<Exit, Failure> {
    let path = file.path(cli)?;
    let user = file == ConfigFile::User;
    let wanted = Edit { changes, file: &path, user };
    let own = if user { &path } else { &cli.env.user_config };
    let (old, new, rest) = config::edit(own, &wanted, None)?;
    if rest > 0 {
        show::complain(&format!(
            "{rest} {} in the settings: nothing starts until {} fixed\n  to see more: runner config check",
            if rest == 1 { "mistake remains" } else { "mistakes remain" },
            if rest == 1 { "it is" } else { "they are" },
        ));
    }
    if old == new {
        for change in changes {
            cli.ui.info(&match change {
                SettingChange::Set(key, _) => {
                    format!("{key} already has this value; nothing was written")
                }
                SettingChange::Remove(key) => {
                    format!("{key} is not set in {}; nothing was written", path.display())
                }
            });
        }
        return Ok(Exit::Done);
    }
    file.change(cli, || write(&path, &old, &new).map(|()| new.clone()))?;
    for change in changes {
        let (verb, place) = match change {
            SettingChange::Set(..) => ("set", "in"),
            SettingChange::Remove(_) => ("removed", "from"),
        };
        cli.ui.info(&format!("{verb} {} {place} {}", change.key(), path.display()));
    }
    if rest == 0 {
        register_now(cli.env);
    }
    Ok(Exit::Done)
}

/// Opens a settings file in the user's editor, then checks all settings as `runner config check`
/// does.
pub(super) fn edit(cli: &Cli<'_>, file: ConfigFile) -> Result<Exit, Failure> {
    let path = file.path(cli)?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| Failure::not_made(folder, error))?;
    }
    file.change(cli, || {
        let fail = |why: String| {
            Failure::environment(format!("the editor {}: {why}", env::editor()))
                .hint("EDITOR=nano runner config edit")
        };
        // A shell splits the arguments in EDITOR, as in git.
        let status = env::host_command("sh")
            .and_then(|mut shell| {
                shell.args(["-c", &format!("{} \"$@\"", env::editor()), "editor"]);
                shell.arg(&path).status()
            })
            .map_err(|error| fail(error.to_string()))?;
        if !status.success() {
            return Err(fail(format!("it ended with {status}")));
        }
        let text = read_no_link(&path, DOCUMENT);
        let text = text.map_err(|error| Failure::unreadable(&path, error))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    })?;
    let exit = super::check(cli)?;
    if exit == Exit::Done {
        register_now(cli.env);
    }
    Ok(exit)
}

/// Applies changed settings, or reports why they take effect only at the next tick.
fn register_now(home: &Env) {
    if let Err(failure) = register(home) {
        show::complain(&format!("the change takes effect at the next tick: {}", failure.message()));
    }
}

/// Applies a changed schedule immediately instead of at the next tick.
fn register(home: &Env) -> Result<(), Failure> {
    // If there is no database, no schedule has been registered yet.
    if home.store_to_read()?.is_none() {
        return Ok(());
    }
    tick::reread(home, &mut home.store()?)?;
    client::wake(home);
    Ok(())
}

/// Replaces the file's contents, and keeps its permissions and its byte order mark. A missing file
/// is created.
///
/// # Errors
/// Returns an error if the contents are no longer `old`, or if the file cannot be read or written.
pub(in crate::commands) fn write(path: &Path, old: &str, new: &str) -> Result<(), Failure> {
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
            "{} has changed since it was read; nothing was written",
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
