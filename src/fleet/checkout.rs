//! Populates a copy of a project, in which a run works on a claim.
//!
//! Nothing in the copy can start a program while the copy is being made: git has no hooks, filters
//! or settings here. Only a fetch, which must be from an address that this host allows, uses the
//! user's settings. This module must never write outside the copy.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use runner_engine::files::{beneath, write_atomic};
use runner_engine::git::Git;
use runner_engine::ids::ProjectId;
use runner_engine::publish::RelPath;
use runner_fleet::{Claim, Postgres};

use super::host::claim_lease;
use super::membership::failure;
use super::source::{FileKind, History, Source, SourceFile, allows, stays_inside};
use crate::config::Fleet;
use crate::env;
use crate::project::identity;
use crate::ui::Failure;

/// Populates a claim's empty folder from the claim's description of the project.
pub fn prepare(
    database: &mut Postgres,
    settings: &Fleet,
    root: &Path,
    claim: &Claim,
    now: Timestamp,
) -> Result<(), Failure> {
    let source: Source = serde_json::from_value(claim.source.clone())
        .map_err(|error| Failure::data(format!("the source of {}: {error}", claim.job)))?;
    if !source.commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::data(format!("the source of {} has an invalid commit", claim.job)));
    }
    let format = if source.commit.len() == 64 { "sha256" } else { "sha1" };
    git(root, &["init", "--quiet", "--template=", &format!("--object-format={format}")], &[])?;
    identity::write(root, &ProjectId::new(now))?;
    match &source.history {
        History::Pack(digest) => {
            let pack = database.blob(*digest).map_err(failure)?;
            git(root, &["index-pack", "--stdin", "--strict", "--threads=1"], &pack)?;
        }
        History::Remote { address, branch } => {
            fetch(settings, root, (address, branch), claim_lease(claim) / 2)?;
        }
    }
    git(root, &["checkout", "--quiet", "--force", "-B", "main", &source.commit], &[])?;
    let info = root.join(".git/info");
    fs::create_dir_all(&info).map_err(|error| Failure::not_made(&info, error))?;
    write_atomic(&info.join("exclude"), source.exclude.as_bytes(), 0o644)
        .map_err(|error| Failure::cannot_write(error.to_string()))?;
    // All files are removed before any is written, because a file may replace a removed folder, and
    // a folder may replace a removed file.
    for file in &source.files {
        remove(root, file)?;
    }
    for file in &source.files {
        if let Some(digest) = file.content {
            let content = database.blob(digest).map_err(failure)?;
            write(root, file, &content)?;
        }
    }
    Ok(())
}

/// Fetches a branch from an address within a time limit.
fn fetch(
    settings: &Fleet,
    root: &Path,
    (address, branch): (&str, &str),
    limit: Duration,
) -> Result<(), Failure> {
    if !allows(&settings.remotes, address) {
        let why = format!("this host may not fetch from {address}");
        return Err(Failure::environment(why).hint("add the address to `remotes` of the fleet"));
    }
    let env = env::child_environment();
    Git::new(root, &env, "fleet")
        .fetch(address, branch, &env, limit)
        .map_err(|error| Failure::environment(error.to_string()))
}

/// Returns the path at which to write a file. A link in the commit must not redirect that path.
fn place(root: &Path, file: &SourceFile) -> Result<PathBuf, Failure> {
    let path = RelPath::new(&file.path)
        .map_err(|error| Failure::data(format!("{}: {error}", file.path)))?;
    let path = Path::new(path.as_str());
    let first = path.components().next();
    if first.is_some_and(|part| part.as_os_str().eq_ignore_ascii_case(".git")) {
        return Err(Failure::data(format!("the source contains {}", file.path)));
    }
    let parent = path.parent().unwrap_or(Path::new(""));
    let parent = beneath(root, parent).map_err(|error| Failure::data(error.to_string()))?;
    Ok(parent.join(path.file_name().unwrap_or_default()))
}

/// Removes the commit's file or link at this path, and any folders that become empty.
fn remove(root: &Path, file: &SourceFile) -> Result<(), Failure> {
    // There is nothing to remove at a path below a link, because the link itself is removed.
    let Ok(to) = place(root, file) else { return Ok(()) };
    match fs::remove_file(&to) {
        Ok(()) => {}
        Err(error) if is_absent(&error) => return Ok(()),
        Err(error) => return Err(Failure::not_written(&to, error)),
    }
    let above = to.ancestors().skip(1).take_while(|folder| *folder != root);
    for folder in above {
        if fs::remove_dir(folder).is_err() {
            break;
        }
    }
    Ok(())
}

fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as E;
    matches!(error.kind(), E::NotFound | E::NotADirectory | E::IsADirectory)
}

/// Writes a file or a link.
fn write(root: &Path, file: &SourceFile, content: &[u8]) -> Result<(), Failure> {
    let to = place(root, file)?;
    let folder = to.parent().unwrap_or(root);
    fs::create_dir_all(folder).map_err(|error| Failure::not_made(folder, error))?;
    let mode = match file.kind {
        FileKind::Regular => 0o644,
        FileKind::Executable => 0o755,
        FileKind::Link => {
            let target = std::str::from_utf8(content).unwrap_or_default();
            if !stays_inside(&file.path, target) {
                return Err(Failure::data(format!("{} leads outside its project", file.path)));
            }
            return symlink(target, &to).map_err(|error| Failure::not_written(&to, error));
        }
    };
    write_atomic(&to, content, mode).map_err(|error| Failure::cannot_write(error.to_string()))
}

/// Runs git without the settings of the host or its user.
fn git(root: &Path, args: &[&str], input: &[u8]) -> Result<(), Failure> {
    let broken = |error: std::io::Error| Failure::environment(format!("cannot run git: {error}"));
    let mut child = env::host_command("git")
        .map_err(broken)?
        .env_clear()
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_ATTR_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .args(["-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never", "-C"])
        .arg(root)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(broken)?;
    if let Some(mut stdin) = child.stdin.take() {
        // If git exits early, its own message is more useful.
        let _message_follows = stdin.write_all(input);
    }
    let done = child.wait_with_output().map_err(broken)?;
    match done.status.success() {
        true => Ok(()),
        false => Err(Failure::environment(format!(
            "git {}: {}",
            args.first().unwrap_or(&""),
            String::from_utf8_lossy(&done.stderr).trim()
        ))),
    }
}
