//! The reserved paths of a project, and checks for settings that contain a path.
//!
//! The checks must never access the disk.

use runner_engine::publish::RelPath;

/// The names in a project's root that no setting lets a job write to: the files of git, runner and
/// agents, and the folders for proposals and journals, to which runner writes only checked data.
pub const NEVER: [&str; 11] = [
    ".git",
    ".runner",
    "runner.toml",
    ".ctxrc",
    "dreams",
    "rem",
    "_steps.jsonl",
    ".claude",
    ".codex",
    ".mcp.json",
    ".warden",
];

/// Returns the name in `names` with which `path` begins, ignoring case, or `None`. Also returns
/// `.git` for a path that contains it at any depth, because a repository may contain other
/// repositories.
pub fn reserved<'n>(path: &str, names: &[&'n str]) -> Option<&'n str> {
    let first = path.split('/').next().unwrap_or(path);
    let is_git = |part: &str| part.eq_ignore_ascii_case(".git");
    let found = (names.iter()).find(|name| name.eq_ignore_ascii_case(first));
    found.copied().or_else(|| {
        let inner = path.split('/').any(is_git);
        inner.then_some(".git")
    })
}

/// Checks that a job may publish a file at `to`.
///
/// # Errors
/// Returns the reason for the refusal, as a message for the user.
pub fn target(to: &str) -> Result<(), String> {
    RelPath::new(to).map_err(|error| error.to_string())?;
    if to.contains(['{', '}']) {
        return Err(format!("{to:?} contains a placeholder that is not supported here"));
    }
    match reserved(to, &NEVER) {
        Some(never) => Err(format!("{to:?}: a job cannot write to {never}")),
        None => Ok(()),
    }
}

/// Checks the paths of a `writes` setting. `.` means nearly the whole project.
///
/// # Errors
/// Returns the reason for the first refusal, as a message for the user.
pub fn writes(paths: Option<&[String]>) -> Result<(), String> {
    (paths.unwrap_or_default().iter()).filter(|path| *path != ".").try_for_each(|path| target(path))
}
