//! The environment for ticks started by a host scheduler, saved at setup time.
//!
//! A host scheduler starts a program with almost no environment: cron sets a `PATH` of
//! `/usr/bin:/bin`, and systemd omits what a login shell adds. `setup` therefore writes the
//! variables on an allowlist to a file, one `NAME=value` per line, and a tick started with
//! `--environment FILE` restarts itself with those variables. Keys are never among them. Users keep
//! keys in a separate file that only its owner may access (`credentials.env`, beside config.toml).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use runner_engine::git::is_inside;

use crate::ui::Failure;
use runner_engine::files::{SMALL, read_text_host};
use runner_text::shell_word;

/// The environment variables to save. Proxy variables are excluded, because their addresses may
/// contain a password.
pub const FROZEN: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
];

/// Name of the file in which the user keeps keys.
pub const CREDENTIALS: &str = "credentials.env";

/// Checks that `PATH` contains no folder inside a project. An agent working there could add a `git`
/// or `claude` executable, which a tick would then start.
///
/// # Errors
/// Returns an error if there is such a folder.
pub fn refuse_project_folders<'a>(
    variables: &BTreeMap<String, String>,
    projects: impl Iterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let path = variables.get("PATH").map_or("", String::as_str);
    for project in projects {
        let mut entries = path.split(':').filter(|_| !path.is_empty());
        if let Some(entry) = entries.find(|entry| is_inside(entry, project)) {
            return Err(Failure::configuration(format!(
                "PATH contains {entry:?}, which is inside a project ({}), where an agent could create programs",
                project.display()
            ))
            .hint("remove that folder from PATH, then run the command again"));
        }
    }
    Ok(())
}

/// Returns the file's contents.
///
/// # Errors
/// Returns an error if a value contains a line break or a NUL character.
pub fn text(variables: &BTreeMap<String, String>) -> Result<String, Failure> {
    let mut text = String::from(
        "# The environment of ticks that the host's scheduler starts. `runner setup --apply` overwrites this file.\n",
    );
    for (name, value) in variables {
        if value.contains(['\n', '\r', '\0']) {
            return Err(Failure::environment(format!(
                "{name} contains a line break, but the file for the host's scheduler has one variable per line"
            ))
            .hint(format!("unset or change {name}, then run the command again")));
        }
        text.push_str(&format!("{name}={value}\n"));
    }
    Ok(text)
}

/// Parses the variables in such a file's contents.
///
/// # Errors
/// Returns the number of the first line that does not set a variable, counted from 1.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, usize> {
    let mut found = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        match line.split_once('=') {
            Some((name, value)) if is_name(name) => {
                found.insert(name.to_owned(), value.to_owned());
            }
            _ => return Err(at + 1),
        }
    }
    Ok(found)
}

/// Reads the variables that `setup` saved.
pub fn read(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    from(path)?.ok_or_else(|| {
        Failure::environment(format!(
            "{}: the file does not exist, so ticks would not find the programs of your login shell",
            path.display()
        ))
        .hint("runner setup --apply")
    })
}

/// Reads the variables from the file in which the user keeps keys. Returns none if the file does
/// not exist.
///
/// # Errors
/// Returns an error if the file belongs to another user, if other users may read or write it, or if
/// it cannot be read or parsed.
pub fn credentials(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    Ok(from(path)?.unwrap_or_default())
}

fn from(path: &Path) -> Result<Option<BTreeMap<String, String>>, Failure> {
    let cannot = |error: io::Error| Failure::unreadable(path, error);
    let data = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(cannot)?,
    };
    let me = rustix::process::getuid().as_raw();
    if data.permissions().mode() & 0o077 != 0 || data.uid() != me {
        return Err(Failure::environment(format!(
            "{} belongs to another user, or other users can read or write it",
            path.display()
        ))
        .hint(format!("chmod 600 {}", shell_word(path.display()))));
    }
    let text = read_text_host(path, SMALL).map_err(cannot)?;
    parse(&text).map(Some).map_err(|line| {
        Failure::configuration(format!("{}:{line}: expected NAME=value", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_environment_round_trips() {
        let variables: BTreeMap<String, String> =
            [("PATH", "/a b:/c=d:/é%$\"'"), ("EMPTY", ""), ("HOME", "/h #1 ")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
        assert_eq!(parse(&text(&variables).unwrap()), Ok(variables));
        assert_eq!(parse("A=1\n\n# b\nno"), Err(4));
        assert_eq!(parse("9A=1"), Err(1));
        let broken = BTreeMap::from([("TZ".to_owned(), "a\nb".to_owned())]);
        assert!(text(&broken).is_err());
    }

    #[test]
    fn group_readable_credentials_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CREDENTIALS);
        assert_eq!(credentials(&path).unwrap(), BTreeMap::new());
        fs::write(&path, "KEY=secret\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let reported = credentials(&path).unwrap_err().to_string();
        assert!(reported.contains("chmod 600") && !reported.contains("secret"), "{reported}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(credentials(&path).unwrap()["KEY"], "secret");
    }

    #[test]
    fn path_inside_a_project_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        fs::create_dir_all(project.join("bin")).unwrap();
        std::os::unix::fs::symlink(project.join("bin"), folder.path().join("link")).unwrap();
        let refused = |entry: &Path| {
            let path = format!("/usr/bin:{}", entry.display());
            let variables = [("PATH".to_owned(), path)].into();
            refuse_project_folders(&variables, [project.as_path()].into_iter())
        };
        assert!(refused(&project.join("bin")).is_err());
        assert!(refused(&folder.path().join("link")).is_err());
        assert!(refused(&project).is_err());
        assert!(refused(folder.path()).is_ok());
        let text = refused(&project).unwrap_err().to_string();
        assert!(text.contains("is inside a project"), "{text}");
    }
}
