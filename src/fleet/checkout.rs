//! A copy of another host's project, in which a claim is worked on.
//!
//! Each job of each project has one folder, outside of runner's state folder. Nothing in the copy
//! can start a program while it is made: git has no hooks, filters or settings here.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use jiff::Timestamp;
use runner_engine::files::{beneath, write_atomic};
use runner_engine::ids::ProjectId;
use runner_engine::publish::RelPath;
use runner_fleet::{Claim, Postgres};

use super::membership::failure;
use super::source::Source;
use crate::env::{self, Env};
use crate::project::{self, identity};
use crate::ui::Failure;

/// Makes the copy as the source describes it, and returns its folder.
pub fn prepare(
    home: &Env,
    database: &mut Postgres,
    (fleet, claim): (&str, &Claim),
    now: Timestamp,
) -> Result<PathBuf, Failure> {
    let source: Source = serde_json::from_value(claim.source.clone())
        .map_err(|error| Failure::data(format!("the source of {}: {error}", claim.job)))?;
    let is_hash = source.commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hash || RelPath::new(&claim.job).is_err() || RelPath::new(&claim.project).is_err() {
        return Err(Failure::data(format!("the claim of {} has an invalid name", claim.job)));
    }
    let root = project::copies(home).join(fleet).join(format!("{}.{}", claim.project, claim.job));
    fs::create_dir_all(&root).map_err(|error| Failure::not_made(&root, error))?;
    if !root.join(".git").is_dir() {
        git(&root, &["init", "--quiet", "--template="], &[])?;
        identity::write(&root, &ProjectId::new(now))?;
    }
    let name = format!("{}^{{commit}}", source.commit);
    if git(&root, &["cat-file", "-e", &name], &[]).is_err() {
        let pack = database.blob(source.pack).map_err(failure)?;
        git(&root, &["index-pack", "--stdin", "--strict", "--threads=1"], &pack)?;
    }
    git(&root, &["checkout", "--quiet", "--force", "-B", "main", &source.commit], &[])?;
    git(&root, &["clean", "-ffdxq"], &[])?;
    let info = root.join(".git/info");
    fs::create_dir_all(&info).map_err(|error| Failure::not_made(&info, error))?;
    write_atomic(&info.join("exclude"), source.exclude.as_bytes(), 0o644)
        .map_err(|error| Failure::cannot_write(error.to_string()))?;
    for file in &source.files {
        let path = RelPath::new(&file.path)
            .map_err(|error| Failure::data(format!("{}: {error}", file.path)))?;
        if path.as_str() == ".git" || path.as_str().starts_with(".git/") {
            return Err(Failure::data(format!("the source contains {}", file.path)));
        }
        // A link in the commit must not lead a file elsewhere.
        let to = beneath(&root, Path::new(path.as_str()))
            .map_err(|error| Failure::data(error.to_string()))?;
        match file.content {
            Some(digest) => {
                let content = database.blob(digest).map_err(failure)?;
                let folder = to.parent().unwrap_or(&root);
                fs::create_dir_all(folder).map_err(|error| Failure::not_made(folder, error))?;
                write_atomic(&to, &content, 0o644)
                    .map_err(|error| Failure::cannot_write(error.to_string()))?;
            }
            None => match fs::remove_file(&to) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Failure::not_written(&to, error));
                }
                _ => {}
            },
        }
    }
    fs::canonicalize(&root).map_err(|error| Failure::unreadable(&root, error))
}

/// Runs git without the settings of the host and of its user.
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
        // If git ends early, its message is the better one.
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
