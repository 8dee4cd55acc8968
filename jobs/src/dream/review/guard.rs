//! The rules for the paths that an act may write. Two git queries check a whole plan.
//!
//! Canonical files are never written, and runner's own files must be ignored by git. An idea may be
//! tracked by git or not, as the user chooses: an act edits the work tree as the user would,
//! without staging or committing anything. If the ideas are private, their text reaches a path that
//! git does not ignore only with the user's consent.

use std::collections::BTreeSet;
use std::fmt;

use runner_engine::git::changes::literal;
use runner_engine::git::{Git, GitError, Read};
use runner_engine::process::Stdin;
use runner_engine::publish::{RealFs, RelPath};
use runner_text::shell_word;

use super::super::spec::DreamSpec;
use super::plan::{ActionPlan, FileChange};

/// Why a plan is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("{0}")]
    Guard(String),
    /// The text of a private idea would become visible.
    #[error("{from} is private, and git does not ignore {to}")]
    Exposed { from: String, to: String },
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Checks that all changes of a plan and the files in `own`, which runner writes for itself, may be
/// written.
///
/// # Errors
/// Returns [`Refused`] with the first path that may not be written and the reason, or with git's
/// error. The check for private ideas comes last.
pub(super) fn check(
    git: &Git,
    spec: &DreamSpec,
    plan: &ActionPlan,
    own: &[&str],
) -> Result<(), Refused> {
    let refuse = |why: String| Err(Refused::Guard(why));
    let changed = plan.changes.iter().map(FileChange::path);
    let paths: BTreeSet<&str> = own.iter().copied().chain(changed).collect();
    for path in &paths {
        if let Some(canonical) = spec.canonical_over(path) {
            return refuse(format!(
                "{path} would be written, but {canonical} is canonical (`canonical` in runner.toml)"
            ));
        }
    }
    // This check refuses links before the git queries, because git follows links or fails on them.
    let disk = RealFs::open(git.root()).map_err(|error| Refused::Guard(error.to_string()))?;
    for path in &paths {
        let rel = RelPath::new(path).map_err(|bad| Refused::Guard(bad.to_string()))?;
        if let Err(error) = disk.regular(&rel) {
            return refuse(format!("{path} would be written: {error}"));
        }
    }
    let literals: Vec<String> = own.iter().map(|path| literal(path)).collect();
    let mut ask = vec!["-z", "--"];
    ask.extend(literals.iter().map(String::as_str));
    let tracked = git.ask(Read::LsFiles, &ask)?;
    if let Some(path) = names(&tracked).first() {
        return refuse(format!(
            "{path} is tracked by git, and what runner writes there could be committed; \
             `git rm --cached {path}` makes git stop tracking it"
        ));
    }
    let folder = format!("{}/", spec.ideas);
    let listed: String =
        paths.iter().copied().chain([folder.as_str()]).map(|path| format!("{path}\0")).collect();
    let answer =
        git.ask_if_any(Read::CheckIgnore, &["-z", "--stdin"], Stdin::Bytes(listed.into_bytes()))?;
    let ignored: BTreeSet<String> = names(&answer.unwrap_or_default()).into_iter().collect();
    if let Some(path) = own.iter().find(|path| !ignored.contains(**path)) {
        let folder = path.split('/').next().unwrap_or(path);
        return refuse(format!(
            "{path} is not ignored by git, and what is written there could be committed; \
             add /{folder}/ to .git/info/exclude or to .gitignore"
        ));
    }
    exposed(spec, plan, |path| ignored.contains(path))
}

/// Checks that no text from a private idea reaches a path that git does not ignore.
fn exposed(
    spec: &DreamSpec,
    plan: &ActionPlan,
    is_ignored: impl Fn(&str) -> bool,
) -> Result<(), Refused> {
    // A plan moves text only from files that it removes.
    let moved: Vec<&str> = plan
        .changes
        .iter()
        .filter_map(|change| match change {
            FileChange::Remove(source) => Some(source.path.as_str()),
            FileChange::Put { .. } => None,
        })
        .collect();
    let folder = format!("{}/", spec.ideas);
    let by_git = || is_ignored(&folder) || moved.iter().any(|path| is_ignored(path));
    if moved.is_empty() || !spec.private.unwrap_or_else(by_git) {
        return Ok(());
    }
    let mut written = plan.changes.iter().filter(|it| matches!(it, FileChange::Put { .. }));
    match written.find(|change| !is_ignored(change.path())) {
        None => Ok(()),
        Some(change) => {
            Err(Refused::Exposed { from: moved.join(" and "), to: change.path().to_owned() })
        }
    }
}

fn names(answer: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(answer)
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Whether a dream job's ideas are private. `Display` also describes what that means for accepting
/// a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privacy {
    /// The ideas folder, with a trailing slash.
    folder: String,
    private: bool,
    reason: PrivacyReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrivacyReason {
    /// The job has the setting `private`.
    Setting,
    Ignored,
    Tracked,
    NotIgnored,
}

impl Privacy {
    /// Determines whether a dream job's ideas are private, from the setting `private` or from git.
    ///
    /// # Errors
    /// Returns an error if git fails.
    pub fn of(git: &Git, spec: &DreamSpec) -> Result<Self, GitError> {
        let folder = format!("{}/", spec.ideas);
        let ignored =
            git.ask_if_any(Read::CheckIgnore, &["-q", "--", &folder], Stdin::Null)?.is_some();
        let reason = match (spec.private, ignored) {
            (Some(_), _) => PrivacyReason::Setting,
            (None, true) => PrivacyReason::Ignored,
            (None, false) => match git.ask(Read::LsFiles, &["-z", "--", &literal(&folder)])? {
                none if none.is_empty() => PrivacyReason::NotIgnored,
                _ => PrivacyReason::Tracked,
            },
        };
        Ok(Self { folder, private: spec.private.unwrap_or(ignored), reason })
    }

    /// Describes how to make the ideas private. Returns `None` if they are already private or if
    /// the setting decides.
    pub fn hint(&self) -> Option<String> {
        let folder = &self.folder;
        match self.reason {
            PrivacyReason::Setting | PrivacyReason::Ignored => None,
            PrivacyReason::Tracked => Some(format!(
                "to make them private: git rm -r --cached {}, commit, then runner init --private-notes",
                shell_word(folder)
            )),
            PrivacyReason::NotIgnored => {
                Some(format!("runner init --private-notes makes git ignore {folder}"))
            }
        }
    }
}

impl fmt::Display for Privacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = &self.folder;
        let because = match self.reason {
            PrivacyReason::Setting => "the setting `private`",
            PrivacyReason::Ignored => "git ignores the folder",
            PrivacyReason::Tracked => "git tracks files in the folder",
            PrivacyReason::NotIgnored => "git does not ignore the folder",
        };
        match self.private {
            true => write!(
                f,
                "the notes in {folder} are private ({because}): --publish is needed to move one to a path that git does not ignore"
            ),
            false => write!(
                f,
                "the notes in {folder} are not private ({because}): accepting a proposal edits the work tree, and stages and commits nothing"
            ),
        }
    }
}
