//! The project's history, read once per run: the commits' messages and the paths that they touched.
//!
//! Only commits that are reachable from `HEAD` are read, because work on another branch is not done
//! yet. Other people wrote the commit messages, so this module must never use them for anything but
//! comparison. [`HistoryLimits`] limits the cost of even the longest history.

use runner_text::counted;
use std::collections::{HashMap, HashSet};

use runner_engine::git::{Git, GitError, Read};
use runner_engine::process::Stdin;

use super::commit::Commit;

/// Limits on the part of a history that is kept. Beyond `commits` or `total`, the oldest commits
/// are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Maximum number of commits.
    pub commits: usize,
    /// Maximum number of paths per commit. A commit that touches everything is weak evidence for
    /// any single change.
    pub paths: usize,
    /// Maximum size of one message body, in bytes.
    pub body: usize,
    /// Maximum combined size of the messages and paths that are kept, in bytes.
    pub total: usize,
    /// Maximum number of changed files whose added lines are read in one run. A later run
    /// continues.
    pub files: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { commits: 50_000, paths: 64, body: 2048, total: 40 * 1024 * 1024, files: 250_000 }
    }
}

/// The part of a history that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The commits still in effect, newest first.
    pub commits: Vec<Commit>,
    /// The hashes of reverted commits, and of commits that only revert others.
    pub reverted: HashSet<String>,
    /// The parts that were not read, each with the reason.
    pub notes: Vec<String>,
}

/// Number of commits listed by one git command.
const AT_ONCE: usize = 4000;

/// Reads the newest commits that are reachable from `HEAD`, without the lines that they added. A
/// repository without commits yields an empty history.
///
/// # Errors
/// Returns a [`GitError`] if git fails.
pub fn read(git: &Git, bounds: &HistoryLimits) -> Result<History, GitError> {
    let (commits, notes) = extend(git, bounds, HashMap::new())?;
    Ok(History::of(commits, notes))
}

impl History {
    /// Removes the commits that are no longer in effect.
    pub(super) fn of(commits: Vec<Commit>, notes: Vec<String>) -> Self {
        let (commits, reverted) = standing(commits);
        Self { commits, reverted, notes }
    }
}

/// Returns the newest commits that are reachable from `HEAD`, newest first, and notes on the parts
/// that were not read. Commits in `known` are not read again. Newly read commits come without their
/// added lines.
///
/// # Errors
/// Returns a [`GitError`] if git fails.
pub(super) fn extend(
    git: &Git,
    bounds: &HistoryLimits,
    mut known: HashMap<String, Commit>,
) -> Result<(Vec<Commit>, Vec<String>), GitError> {
    let mut notes = Vec::new();
    if git.head()?.is_none() {
        return Ok((Vec::new(), notes));
    }
    // One more commit than the limit is requested, to find out whether there are more.
    let most = format!("--max-count={}", bounds.commits.saturating_add(1));
    let listed = git.ask(Read::RevList, &[&most, "HEAD", "--"])?;
    let listed = String::from_utf8_lossy(&listed);
    let hashes: Vec<&str> = listed.lines().collect();
    let unknown: Vec<&str> =
        hashes.iter().copied().filter(|hash| !known.contains_key(*hash)).collect();
    let mut without_paths = false;
    for some in unknown.chunks(AT_ONCE) {
        let out = match log(git, some) {
            // A clone without trees still has the messages.
            Err(GitError::Failed { .. }) => {
                without_paths = true;
                messages(git, some)?
            }
            answer => answer?,
        };
        known.extend(parse(&out, bounds).into_iter().map(|commit| (commit.hash.clone(), commit)));
    }
    if without_paths {
        notes.push("history read without paths: git could not list them".to_owned());
    }
    let mut commits: Vec<Commit> = Vec::with_capacity(hashes.len().min(bounds.commits));
    let mut kept = 0;
    for hash in &hashes {
        let Some(commit) = known.remove(*hash) else { continue };
        kept += size(&commit);
        if kept > bounds.total || commits.len() == bounds.commits {
            notes.push(format!("history read up to {}", counted(commits.len(), "commit")));
            break;
        }
        commits.push(commit);
    }
    Ok((commits, notes))
}

fn size(commit: &Commit) -> usize {
    let paths = commit.paths.iter().map(|path| path.len() + size_of::<String>());
    commit.subject.len() + commit.body.len() + paths.sum::<usize>()
}

/// The format of a commit: an empty field, then its fields, each terminated by a NUL.
const FORMAT: &str = "--format=tformat:%x00%H%x00%ct%x00%s%x00%b%x00";

fn log(git: &Git, hashes: &[&str]) -> Result<Vec<u8>, GitError> {
    // A commit starts with an empty field, which cannot be a path, and each of its fields ends with
    // a NUL, which a message cannot contain. Therefore, no text written by a committer can be
    // mistaken for another commit.
    let args = [
        // This option includes merges and commits without changes.
        "--always",
        "--no-relative",
        "--name-status",
        FORMAT,
        "-z",
    ];
    git.diffs((hashes.join("\n") + "\n").into_bytes(), &args)
}

/// Reads the log without paths, for a repository whose trees are not available. The output has the
/// format of [`log`].
fn messages(git: &Git, hashes: &[&str]) -> Result<Vec<u8>, GitError> {
    let args = ["--no-walk=unsorted", "--encoding=UTF-8", FORMAT, "--stdin"];
    let stdin = Stdin::Bytes((hashes.join("\n") + "\n").into_bytes());
    let out = git.ask_with(Read::RevList, &args, stdin)?;
    let fields: Vec<&[u8]> = out.split(|byte| *byte == 0).collect();
    // The first field of each commit contains the line ending of the previous commit instead of
    // being empty, so it is replaced.
    let commits = fields.chunks_exact(5).flat_map(|commit| {
        let fields = commit[1..].iter().flat_map(|field| [b"\0", *field].concat());
        fields.chain(*b"\0\0").collect::<Vec<u8>>()
    });
    Ok(commits.collect())
}

/// Returns the commits that are still in effect, and the hashes of the others. A commit is not in
/// effect if a later commit reverts it, or if it only reverts another commit. A commit that was
/// reverted and then restored is in effect.
fn standing(commits: Vec<Commit>) -> (Vec<Commit>, HashSet<String>) {
    let mut reverted: HashSet<String> = HashSet::new();
    let mut kept = Vec::with_capacity(commits.len());
    // The order is newest first, so a commit comes after the commit that reverts it.
    for commit in commits {
        if reverted.contains(&commit.hash) {
            continue;
        }
        if takes_back(&commit.subject) {
            reverted.extend(taken_back(&commit));
            reverted.insert(commit.hash);
        } else {
            kept.push(commit);
        }
    }
    (kept, reverted)
}

/// Returns whether a subject has the form that git uses for a commit that reverts another commit,
/// or that restores a reverted commit.
fn takes_back(subject: &str) -> bool {
    subject.starts_with("Revert \"") || subject.starts_with("Reapply \"")
}

/// Returns the hash of the commit that a reverting commit's body mentions, or `None` if the body
/// mentions none. The first hash is used, because later hashes may be quotations.
fn taken_back(commit: &Commit) -> Option<String> {
    let (_, rest) = commit.body.split_once("This reverts commit ")?;
    let hash: String =
        rest.chars().take_while(char::is_ascii_hexdigit).take(commit.hash.len()).collect();
    (hash.len() == commit.hash.len()).then(|| hash.to_ascii_lowercase())
}

/// Parses the output of [`log`]. Parsing ends at the first field that does not match the format.
fn parse(out: &[u8], bounds: &HistoryLimits) -> Vec<Commit> {
    let mut fields = out.split(|byte| *byte == 0).peekable();
    std::iter::from_fn(|| one(&mut fields, bounds)).collect()
}

fn one<'a>(
    fields: &mut std::iter::Peekable<impl Iterator<Item = &'a [u8]>>,
    bounds: &HistoryLimits,
) -> Option<Commit> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !fields.next()?.is_empty() {
        return None;
    }
    let hash = text(fields.next()?);
    if hash.len() < 40 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    // If the date is invalid, the rest of the commit is still used.
    let at = text(fields.next()?).parse().unwrap_or(0);
    let subject = text(fields.next()?);
    let body = fields.next()?;
    let body = text(&body[..body.len().min(bounds.body)]).trim_end().to_owned();
    // The empty field after the body marks the end of the commit's fields.
    fields.next()?;
    let (mut paths, mut touched, mut created) = (Vec::new(), 0, Vec::new());
    // The status of a path precedes the path, in a separate field.
    while let Some(done) = fields.next_if(|field| !field.is_empty()) {
        let path = fields.next()?;
        touched += 1;
        if paths.len() < bounds.paths {
            if done.ends_with(b"A") {
                created.push(paths.len() as u32);
            }
            paths.push(text(path));
        }
    }
    Some(Commit { hash, at, subject, body, paths, touched, created, added: None })
}

/// Returns all tracked paths, in git's order.
///
/// # Errors
/// Returns a [`GitError`] if git fails.
pub fn tracked(git: &Git) -> Result<Vec<String>, GitError> {
    let out = git.ask(Read::LsFiles, &["-z", "--cached"])?;
    let mut seen = HashSet::new();
    Ok(out
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty())
        .map(|path| String::from_utf8_lossy(path).into_owned())
        // Git lists a conflicted path once for each side.
        .filter(|path| seen.insert(path.clone()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0123456789abcdef0123456789abcdef01234567";

    fn entry(subject: &str, body: &str, paths: &[&str]) -> String {
        let mut text = format!("\0{HASH}\0001700000000\0{subject}\0{body}\0\0");
        for (at, path) in paths.iter().enumerate() {
            let done = if at == 0 { "\nA" } else { "M" };
            text.push_str(&format!("{done}\0{path}\0"));
        }
        text
    }

    #[test]
    fn commits_with_and_without_paths_are_parsed() {
        let log = entry("one", "body\n\nSpec: ideas/a.md\n", &["a.rs", "ö b.rs"])
            + &entry("merge", "", &[])
            + &entry("", "", &["c"]);
        let commits = parse(log.as_bytes(), &HistoryLimits::default());
        let seen: Vec<(&str, usize)> =
            commits.iter().map(|c| (c.subject.as_str(), c.touched)).collect();
        assert_eq!(seen, [("one", 2), ("merge", 0), ("", 1)]);
        assert_eq!(commits[0].body, "body\n\nSpec: ideas/a.md");
        assert_eq!(commits[0].paths, ["a.rs", "ö b.rs"]);
        assert_eq!(commits[0].created, [0]);
        assert_eq!(commits[0].at, 1_700_000_000);
        assert_eq!(commits[0].short(), "0123456789ab");
    }

    #[test]
    fn messages_cannot_forge_commits() {
        let forged = format!("x\n{HASH}\n1700000000\nfeat: forged");
        let commits = parse(entry(&forged, &forged, &[HASH]).as_bytes(), &HistoryLimits::default());
        assert_eq!(commits.len(), 1);
        assert_eq!(commits[0].paths, [HASH]);
    }

    #[test]
    fn reverted_commits_are_excluded_until_reapplied() {
        let commit = |hash: char, subject: &str, reverts: Option<char>| Commit {
            hash: hash.to_string().repeat(40),
            at: 0,
            subject: subject.into(),
            body: reverts.map_or(String::new(), |hash| {
                format!("This reverts commit {}.", hash.to_string().repeat(40))
            }),
            ..Commit::default()
        };
        let subjects = |commits: Vec<Commit>| -> Vec<String> {
            standing(commits).0.into_iter().map(|commit| commit.subject).collect()
        };
        let (work, back) = (commit('a', "work", None), commit('b', "Revert \"work\"", Some('a')));
        assert_eq!(subjects(vec![back.clone(), work.clone()]), [""; 0]);
        let again = commit('c', "Reapply \"work\"", Some('b'));
        assert_eq!(subjects(vec![again, back, work]), ["work"]);
    }

    #[test]
    fn message_and_path_limits_are_enforced() {
        let log = entry("one", &"é".repeat(10), &["a", "b", "c"]).repeat(5);
        let bounds = HistoryLimits { paths: 2, body: 3, ..HistoryLimits::default() };
        let commits = parse(log.as_bytes(), &bounds);
        assert_eq!(commits.len(), 5);
        assert_eq!((commits[0].paths.len(), commits[0].touched), (2, 3));
        assert!(commits[0].body.starts_with('é'));
        assert_eq!(parse(b"", &bounds), Vec::new());
        assert_eq!(parse(b"\0nonsense\0", &bounds), Vec::new());
    }

    #[test]
    fn invalid_commit_date_does_not_end_history() {
        let log = entry("one", "", &["a"])
            + &entry("two", "", &["b"]).replace("1700000000", "99999999999999999999")
            + &entry("three", "", &["c"]).replace("1700000000", "");
        let commits = parse(log.as_bytes(), &HistoryLimits::default());
        let seen: Vec<(&str, i64)> = commits.iter().map(|c| (&*c.subject, c.at)).collect();
        assert_eq!(seen, [("one", 1_700_000_000), ("two", 0), ("three", 0)]);
    }

    #[test]
    fn listed_or_quoted_revert_lines_are_ignored() {
        let commit = |hash: char, subject: &str, body: &str| Commit {
            hash: hash.to_string().repeat(40),
            at: 0,
            subject: subject.into(),
            body: body.into(),
            ..Commit::default()
        };
        let [a, b] = ['a', 'b'].map(|c| c.to_string().repeat(40));
        let squashed = commit('c', "feat: all", &format!("* This reverts commit {a}."));
        let (kept, reverted) = standing(vec![squashed, commit('a', "work", "")]);
        assert_eq!((kept.len(), reverted.len()), (2, 0));
        let quoting = format!("This reverts commit {b}.\n\n> This reverts commit {a}.");
        let quoting = commit('c', "Revert \"other\"", &quoting);
        let (kept, reverted) =
            standing(vec![quoting, commit('b', "other", ""), commit('a', "work", "")]);
        assert_eq!((kept.len(), reverted.len()), (1, 2));
        assert_eq!(kept[0].subject, "work");
    }
}
