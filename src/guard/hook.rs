//! The `runner guard hook` command: decides whether a tool that an agent is about to use would
//! write outside the job's scope.
//!
//! ```text
//! payload ──parse──> tool ─┬─ known to write nothing ─────────────────────────────> silence
//!                          ├─ a shell: the paths that its line writes ─┐
//!                          └─ any other: every path in its input ──────┴> resolved ─> all allowed?
//!      garbage, too long, no path at all, an internal error: refused      yes: silence · no: refused
//! ```
//!
//! Claude Code runs the hook before each tool call (`PreToolUse`) and evaluates the hook's exit
//! code: only 2 refuses the call, and any other code lets it through. Every error here therefore
//! exits with 2. The hook refuses early, with a reason that the model can read; the sandbox stops
//! any write that the hook misses.
//!
//! This module must never write a file or open the database, because it runs before every tool
//! call. It calls git only for a job whose files must stay out of git's history.

use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use runner_engine::error_chain::error_chain;
use runner_engine::git::Git;
use runner_jobs::dream::leak;
use serde_json::Value;

use super::shell::{self, ShellAction, ShellPlace};
use super::tools;

/// Maximum length of a payload in bytes.
pub const LONGEST: u64 = 8 * 1024 * 1024;

/// The paths that may be written, and those that may not.
#[derive(Clone, Debug, Default)]
pub struct WriteBounds {
    /// Paths at or below which writing is allowed.
    pub write: Vec<PathBuf>,
    /// The paths within `write` that must not be written.
    pub keep: Vec<PathBuf>,
    /// Tools that write nothing, in addition to the built-in list. A name ending in `*` matches all
    /// names with that prefix.
    pub reads: Vec<String>,
    /// The folder that `~` and `$HOME` refer to.
    pub home: Option<PathBuf>,
    /// The project, if the job may commit to its private git directory.
    pub commits: Option<PathBuf>,
    /// The project, if the job's files in it must stay out of git's history.
    pub private: Option<Git>,
}

/// Reads a payload to its end.
///
/// # Errors
/// Returns an error if the payload cannot be read or is too long.
pub fn read(input: impl Read) -> io::Result<Vec<u8>> {
    let mut payload = Vec::new();
    input.take(LONGEST + 1).read_to_end(&mut payload)?;
    if payload.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it is longer than {LONGEST} bytes")));
    }
    Ok(payload)
}

/// Checks that an agent may use the tool that a payload describes.
///
/// # Errors
/// Returns the reason, written for the model, if the tool must not be used.
pub fn judge(payload: &[u8], bounds: &WriteBounds) -> Result<(), String> {
    let payload: Value = serde_json::from_slice(payload)
        .map_err(|error| format!("the payload is not JSON: {error}"))?;
    let tool = payload["tool_name"].as_str().ok_or("the payload names no tool")?;
    let cwd = payload["cwd"].as_str().map(Path::new);
    let cwd = cwd.filter(|cwd| cwd.is_absolute()).ok_or("the payload has no cwd")?;
    let input = payload["tool_input"].as_object().ok_or("the payload has no tool_input")?;
    if tools::reads(tool, &bounds.reads) {
        return Ok(());
    }
    if tool == "Bash" {
        let command = input.get("command").and_then(Value::as_str);
        return command_line(command.ok_or("Bash has no command")?, cwd, bounds);
    }
    for path in tools::named(tool, input)? {
        bounds.allow_named(cwd, path)?;
    }
    Ok(())
}

/// Checks every path that a command line would write.
fn command_line(line: &str, cwd: &Path, bounds: &WriteBounds) -> Result<(), String> {
    for word in shell::written(line)? {
        match word {
            ShellPlace::Plain(act, path) => bounds.allow_act(act, cwd, &path)?,
            ShellPlace::Home(act, rest) => {
                let home = bounds.home.as_deref().ok_or("the home folder is unknown")?;
                bounds.allow_act(act, home, &rest)?;
            }
            ShellPlace::Unknown(text) => {
                let text: String = text.chars().take(80).collect();
                return Err(format!(
                    "the value of {text:?} is not known before it runs; name the path itself"
                ));
            }
        }
    }
    Ok(())
}

impl WriteBounds {
    /// Checks that `path`, resolved against `cwd`, may be written.
    ///
    /// # Errors
    /// Returns the reason if the path must not be written.
    pub fn allow(&self, cwd: &Path, path: &str) -> Result<(), String> {
        self.inside(&real_path(cwd, path)?)
    }

    /// Checks a path as [`WriteBounds::allow`] does, but interprets it as a tool does: leading and
    /// trailing blanks are ignored, `~` is the home folder, and a `file:` URL is a path.
    fn allow_named(&self, cwd: &Path, path: &str) -> Result<(), String> {
        let path = path.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
        let local = path.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"));
        if local {
            return self.allow(cwd, local_path(&path[5..])?);
        }
        match path.strip_prefix('~') {
            None => self.allow(cwd, path),
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                let home = self.home.as_deref().ok_or("the home folder is unknown")?;
                self.allow(home, &format!(".{rest}"))
            }
            Some(_) => Err(format!("cannot determine whose home {path:?} is")),
        }
    }

    /// Checks that a command may perform `act` on a path.
    fn allow_act(&self, act: ShellAction, cwd: &Path, path: &str) -> Result<(), String> {
        let whole = real_path(cwd, path)?;
        match act {
            ShellAction::Write => self.inside(&whole),
            ShellAction::Sweep => {
                // If the path is a link, the command changes the link itself, so the link's own
                // location is checked too.
                self.inside(&unfollowed(cwd, path)?)?;
                self.inside(&whole)?;
                match self.keep.iter().find(|keep| beneath(keep, &whole)) {
                    None => Ok(()),
                    Some(kept) => Err(format!(
                        "{} contains a path that this job must never write ({})",
                        whole.display(),
                        kept.display()
                    )),
                }
            }
            ShellAction::Commit => {
                let mut folders = whole.ancestors();
                let found = folders.find(|folder| folder.join(".git").symlink_metadata().is_ok());
                match (found, &self.commits) {
                    // The job commits to a private git directory.
                    (Some(found), Some(project)) if project.starts_with(found) => Ok(()),
                    (found, _) => self.inside(&found.unwrap_or(&whole).join(".git")),
                }
            }
        }
    }

    /// Checks that a real path may be written.
    fn inside(&self, whole: &Path) -> Result<(), String> {
        let known = ["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"];
        if whole.to_str().is_some_and(|whole| known.contains(&whole)) {
            return Ok(());
        }
        if let Some(kept) = self.keep.iter().find(|keep| beneath(whole, keep)) {
            return Err(format!(
                "{} is inside a path that this job must never write ({})",
                whole.display(),
                kept.display()
            ));
        }
        if self.write.iter().any(|place| whole.starts_with(place)) {
            return self.check_private(whole);
        }
        Err(format!("{} is outside the paths that this job may write", whole.display()))
    }

    /// Checks that writing to a real path puts nothing private into git's history.
    fn check_private(&self, whole: &Path) -> Result<(), String> {
        let Some(git) = &self.private else { return Ok(()) };
        let Ok(path) = whole.strip_prefix(git.root()) else { return Ok(()) };
        let path = path.to_str().ok_or_else(|| format!("{} is not UTF-8", whole.display()))?;
        leak::check(git, path).map_err(|leak| leak.to_string())
    }
}

/// Returns the path that follows the scheme in a `file:` URL.
fn local_path(rest: &str) -> Result<&str, String> {
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None => rest,
    };
    match path.starts_with('/') && !path.contains(['%', '?', '#']) {
        true => Ok(path),
        false => Err(format!("the path of file:{rest} cannot be determined; name the path itself")),
    }
}

/// Resolves `path` against `cwd` to a real path.
fn real_path(cwd: &Path, path: &str) -> Result<PathBuf, String> {
    if path.contains('\0') || path.is_empty() {
        return Err(format!("{path:?} is not a path"));
    }
    resolve(&cwd.join(path))
}

/// Resolves a path as [`real_path`] does, but does not follow a link at its end.
fn unfollowed(cwd: &Path, path: &str) -> Result<PathBuf, String> {
    let path = cwd.join(path);
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(resolve(parent)?.join(name)),
        _ => resolve(&path),
    }
}

/// Returns whether `path` equals `above` or is below it. Ignores case, because some file systems
/// do.
fn beneath(path: &Path, above: &Path) -> bool {
    let fold = |path: &Path| PathBuf::from(path.to_string_lossy().to_lowercase());
    fold(path).starts_with(fold(above))
}

/// Returns the real path: follows links as far as the path exists, and applies `..` after following
/// them, as the kernel does.
fn resolve(path: &Path) -> Result<PathBuf, String> {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir => {}
            part => whole.push(part),
        }
        match fs::symlink_metadata(&whole) {
            Ok(data) if data.is_symlink() => {
                whole = fs::canonicalize(&whole).map_err(|error| {
                    format!("{} is a broken link: {}", whole.display(), error_chain(&error))
                })?;
            }
            // A part that does not exist cannot be a link, so it is kept as it is.
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) => {}
            Err(error) => return Err(format!("{}: {}", whole.display(), error_chain(&error))),
        }
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_writes_in_scope_are_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("work/.git")).unwrap();
        fs::create_dir(root.join("out")).unwrap();
        std::os::unix::fs::symlink(root.join("out"), root.join("work/link")).unwrap();
        std::os::unix::fs::symlink(root.join("nothing"), root.join("work/loose")).unwrap();
        let bounds = WriteBounds {
            write: vec![root.join("work")],
            keep: vec![root.join("work/.claude"), root.join("work/.git/config")],
            reads: vec!["mcp__wiki__*".to_owned()],
            commits: Some(root.join("work")),
            home: Some(root.clone()),
            private: None,
        };
        let ask = |tool: &str, input: Value| {
            let payload =
                json!({ "tool_name": tool, "cwd": root.join("work"), "tool_input": input });
            judge(payload.to_string().as_bytes(), &bounds)
        };
        for path in ["a", "new/b", "./x/../y"] {
            assert_eq!(ask("Write", json!({ "file_path": path })), Ok(()), "{path}");
            assert_eq!(
                ask("NotebookEdit", json!({ "notebook_path": root.join("work").join(path) })),
                Ok(())
            );
        }
        for path in [
            "../out/x",
            "link/x",
            "link/../x",
            "loose",
            "/etc/passwd",
            ".claude/settings.json",
            ".CLAUDE/x",
            ".git/config",
            "",
            "a\0b",
        ] {
            for tool in ["Write", "Edit", "MultiEdit", "mcp__files__write"] {
                assert!(ask(tool, json!({ "file_path": path })).is_err(), "{tool} {path:?}");
            }
        }
        assert_eq!(ask("Read", json!({ "file_path": "/etc/passwd" })), Ok(()));
        for line in [
            "ls -la / 2>/dev/null",
            "echo x > a; cat < /etc/passwd",
            "cargo test 2>&1 | tee log",
            "git commit -m 'a > b'",
            "git config --global --get user.name",
            "git config list",
            "git config --global --type bool --get core.bare",
            "cp /etc/passwd here",
        ] {
            assert_eq!(ask("Bash", json!({ "command": line })), Ok(()), "{line}");
        }
        for line in [
            "echo x > ../out/y",
            "git config --global core.pager list-x",
            "git config --global core.hooksPath get-x",
            "git config --global --comment list core.pager evil",
            "git config --global --comment --get core.pager evil",
            "git config --global -- core.pager -l",
            "git config -f get core.pager evil",
            "echo x >>/etc/cron.d/y",
            "tee ~/.bashrc",
            "echo $(id) > \"$HOME/.profile\"",
            "cp a /etc/b",
            "mv a ../b",
            "rm -rf ~",
            "rm -rf /",
            "sed -i s/a/b/ /etc/hosts",
            "dd of=/etc/x if=a",
            "ln -s a ../z",
            "cd /tmp && echo x > y",
            "echo x > $TARGET",
            "bash -c 'echo x > /etc/y'",
            "touch 'a",
            "sh -c \"rm -rf /\"",
            "true; mkdir /x",
            "env X=1 rm /etc/x",
            "sudo rm /x",
            "echo x >| /etc/y",
            "echo x &> /etc/y",
        ] {
            assert!(ask("Bash", json!({ "command": line })).is_err(), "{line}");
        }
        for bad in [
            "",
            "x",
            "{}",
            "[]",
            "{\"tool_name\": 3}",
            "{\"tool_name\": \"Write\", \"cwd\": \"/\", \"tool_input\": {}}",
            "{\"tool_name\": \"Bash\", \"cwd\": \"x\", \"tool_input\": {}}",
        ] {
            assert!(judge(bad.as_bytes(), &bounds).is_err(), "{bad}");
        }
        assert!(judge(&[0xff, 0xfe], &bounds).is_err());
        assert!(read(io::repeat(b'x')).is_err());
    }
}
