//! The project as another host needs it: a pack of the current commit with its history, and the
//! files of the work tree that differ from it or that the job itself wrote.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use runner_engine::digest::Digest;
use runner_engine::files::{SMALL, read_in, read_text_host};
use runner_engine::git::changes::Untracked;
use runner_engine::git::{Git, Read};
use runner_engine::process::Stdin;
use runner_fleet::Postgres;
use runner_jobs::Kind;
use serde::{Deserialize, Serialize};

use super::membership::failure;
use crate::env;
use crate::project::LoadedProject;
use crate::ui::Failure;

/// Maximum size of a file in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// How a host obtains a project.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Source {
    /// The current commit.
    pub commit: String,
    /// The pack with the commit and its history.
    pub pack: Digest,
    /// The files that differ from the commit.
    pub files: Vec<SourceFile>,
    /// The clone's own list of ignored paths, which no commit contains.
    pub exclude: String,
}

/// A file of the work tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceFile {
    /// The path below the project.
    pub path: String,
    /// The content. `None` if there is no file.
    pub content: Option<Digest>,
}

/// Stores the project in the fleet's database.
pub fn store(
    database: &mut Postgres,
    here: &LoadedProject,
    kind: &dyn Kind,
) -> Result<Source, Failure> {
    let git = Git::new(&here.root, &env::child_environment(), "fleet");
    let refused = |error: runner_engine::git::GitError| Failure::environment(error.to_string());
    if git.top().map_err(refused)? != here.root {
        return Err(Failure::environment(format!(
            "{} is not the root of its repository, so no other host can get it",
            here.root.display()
        )));
    }
    let commit = git.head().map_err(refused)?;
    let commit = commit.ok_or_else(|| {
        Failure::environment(format!("{} has no commit yet", here.root.display()))
            .hint("git commit")
    })?;
    let args = ["--revs", "--stdout", "--quiet", "--threads=1", "--delta-base-offset"];
    let wanted = Stdin::Bytes(format!("{commit}\n").into_bytes());
    let pack = git.ask_with(Read::PackObjects, &args, wanted).map_err(refused)?;
    let pack = database.put_blob(&pack).map_err(failure)?;
    let changes = git.changes(&[], Untracked::Files).map_err(refused)?;
    let mut paths: BTreeSet<String> = changes.into_keys().collect();
    for path in kind.publishes().paths() {
        files_below(&here.root, &path, &mut paths);
    }
    paths.retain(|path| !path.starts_with(".runner/") && !path.starts_with(".git/"));
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let content = match read_in(&here.root, &path, LARGEST) {
            Ok(bytes) => Some(database.put_blob(&bytes).map_err(failure)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::unreadable(&here.root.join(&path), error)),
        };
        files.push(SourceFile { path, content });
    }
    let exclude = git.path(&["--git-path", "info/exclude"]).map_err(refused)?;
    let exclude = read_text_host(&exclude, SMALL).unwrap_or_default();
    Ok(Source { commit, pack, files, exclude })
}

/// Adds the regular files at or below a path. Links are not followed.
fn files_below(root: &Path, path: &str, found: &mut BTreeSet<String>) {
    let Ok(data) = fs::symlink_metadata(root.join(path)) else { return };
    if data.is_file() {
        found.insert(path.to_owned());
    }
    if !data.is_dir() {
        return;
    }
    let Ok(entries) = fs::read_dir(root.join(path)) else { return };
    for entry in entries.flatten() {
        if let Some(name) = entry.file_name().to_str() {
            files_below(root, &format!("{}/{name}", path.trim_end_matches('/')), found);
        }
    }
}
