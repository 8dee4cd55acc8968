//! Reads the lines that commits added, as sets of terms.
//!
//! A commit's subject often uses different words from a note, but the commit's code uses the note's
//! names. Only the terms are kept, as hashes, and only up to [`TERMS`] for each commit, so that the
//! terms of a long history fit into memory. Documents are left out: a plan that a commit added may
//! share a note's words merely because both describe the same work. This module must never
//! interpret the content of a diff.

use std::sync::mpsc::sync_channel;

use runner_engine::git::{Git, GitError};
use runner_text::terms::terms;

use super::commit::{AddedText, Commit};
use super::documents::Documents;
use super::index::term_id;

/// Maximum number of terms to keep for one commit.
pub const TERMS: usize = 160;
/// Maximum number of lines to read for one file of a commit.
const LINES: usize = 120;
/// Number of files whose changes are read with one git command.
const AT_ONCE: usize = 1500;
/// Maximum number of files that a commit may touch for its added lines to be read.
const BROAD: usize = 600;
/// Minimum number of added lines in a file for them to be recognized as prose.
const PROSE_LINES: usize = 3;
/// Minimum number of words in a line of prose.
const PROSE_WORDS: usize = 6;
/// Words that occur in most English sentences and are rare in code.
const FUNCTION_WORDS: [&str; 24] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "from", "has", "in", "is", "it",
    "must", "not", "of", "on", "should", "that", "the", "to", "when", "with",
];

/// Reads the added lines of the commits whose added lines have not been read yet, newest first, as
/// long as these commits have at most `files` changed files in total. Git compares the next commits
/// while the lines of the previous ones are parsed. If git exits with an error, the commits of that
/// git command are treated as read, with no terms.
///
/// # Errors
/// Returns any other [`GitError`].
pub fn read(
    git: &Git,
    commits: &mut [Commit],
    documents: &Documents,
    files: usize,
) -> Result<(), GitError> {
    let batches = batches(commits, documents, files);
    let hashes = |batch: &Vec<usize>| -> String {
        batch.iter().map(|at| commits[*at].hash.clone() + "\n").collect()
    };
    let asked: Vec<String> = batches.iter().map(hashes).collect();
    std::thread::scope(|scope| {
        let (sender, outputs) = sync_channel(1);
        scope.spawn(move || {
            for hashes in asked {
                let out = match changes(git, hashes) {
                    Err(GitError::Failed { .. }) => Ok(Vec::new()),
                    out => out,
                };
                // The receiver stops after an error.
                if sender.send(out).is_err() {
                    return;
                }
            }
        });
        for (batch, out) in batches.iter().zip(outputs) {
            let mut found = parse(&out?, documents).into_iter().peekable();
            for at in batch {
                let commit = &mut commits[*at];
                let added = found.next_if(|(hash, _)| *hash == commit.hash);
                commit.added = Some(added.map(|(_, added)| added).unwrap_or_default());
            }
        }
        Ok(())
    })
}

/// Divides the commits whose added lines must be read into batches, one for each git command, up to
/// `files` changed files in total. A commit that changes only documents or too many files gets
/// empty added lines.
fn batches(commits: &mut [Commit], documents: &Documents, files: usize) -> Vec<Vec<usize>> {
    let mut left = files;
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut in_batch = AT_ONCE;
    for (at, commit) in commits.iter_mut().enumerate().filter(|(_, it)| it.added.is_none()) {
        let works = commit.paths.iter().any(|path| !documents.contains(path));
        if !works || commit.touched > BROAD {
            let whole = !works && commit.touched == commit.paths.len();
            commit.added = Some(AddedText { whole, ..AddedText::default() });
            continue;
        }
        if left < commit.touched {
            break;
        }
        left -= commit.touched;
        if in_batch >= AT_ONCE {
            batches.push(Vec::new());
            in_batch = 0;
        }
        in_batch += commit.touched;
        if let Some(batch) = batches.last_mut() {
            batch.push(at);
        }
    }
    batches
}

/// Returns git's output for the changes of the commits in `hashes`, which contains one hash per
/// line.
fn changes(git: &Git, hashes: String) -> Result<Vec<u8>, GitError> {
    // The options keep git from starting programs named in attributes or the configuration.
    let args = [
        "--patch",
        "--unified=0",
        "--no-ext-diff",
        "--no-textconv",
        "--no-indent-heuristic",
        "--format=tformat:%x00%H",
    ];
    git.diffs(hashes.into_bytes(), &args)
}

/// The added lines of one commit while they are read.
struct Gathered {
    hash: String,
    terms: Vec<u32>,
    whole: bool,
    /// Number of changed files other than documents, and how many of them gained mostly prose.
    files: (usize, usize),
}

/// Parses the output of `git diff-tree --patch --unified=0` with a NUL and the hash before each
/// commit. The line counts in a hunk header separate content from headers, so no added line can be
/// mistaken for a header.
fn parse(out: &[u8], documents: &Documents) -> Vec<(String, AddedText)> {
    let mut all = Vec::new();
    let mut commit: Option<Gathered> = None;
    let mut file: Option<FileLines> = None;
    let mut content = (0usize, 0usize);
    for line in out.split(|byte| *byte == b'\n') {
        if content != (0, 0) {
            match line.first() {
                Some(b'+') => {
                    content.1 = content.1.saturating_sub(1);
                    if let (Some(commit), Some(file)) = (&mut commit, &mut file) {
                        file.add(&String::from_utf8_lossy(&line[1..]), commit);
                    }
                }
                Some(b'-') => content.0 = content.0.saturating_sub(1),
                _ => {}
            }
            continue;
        }
        if let Some(hash) = line.strip_prefix(b"\0") {
            close(&mut commit, &mut file);
            all.extend(commit.take().map(Gathered::finish));
            let hash = String::from_utf8_lossy(hash).into_owned();
            commit = Some(Gathered { hash, terms: Vec::new(), whole: true, files: (0, 0) });
        } else if line.starts_with(b"diff --git ") {
            close(&mut commit, &mut file);
            file = Some(FileLines::default());
        } else if let Some(name) = line.strip_prefix(b"+++ ").or(line.strip_prefix(b"--- ")) {
            let name = String::from_utf8_lossy(name);
            let name = name.trim_end_matches('\t').trim_matches('"');
            if let (Some(file), Some((_, path))) = (&mut file, name.split_once('/'))
                && name != "/dev/null"
            {
                file.document = documents.contains(path);
                file.skill = documents.is_skill(path);
            }
        } else if line.starts_with(b"Binary files ") {
            if let Some(commit) = &mut commit {
                commit.whole = false;
            }
        } else if let Some(ranges) = line.strip_prefix(b"@@ ") {
            content = hunk(ranges);
        }
    }
    close(&mut commit, &mut file);
    all.extend(commit.map(Gathered::finish));
    all
}

/// Returns the numbers of removed and added lines in a hunk, from `-1,2 +3,4 @@`.
fn hunk(ranges: &[u8]) -> (usize, usize) {
    let text = String::from_utf8_lossy(ranges);
    let mut counts = text.split(' ').take(2).map(|range| match range.split_once(',') {
        Some((_, count)) => count.parse().unwrap_or(0),
        None => 1,
    });
    (counts.next().unwrap_or(0), counts.next().unwrap_or(0))
}

fn close(commit: &mut Option<Gathered>, file: &mut Option<FileLines>) {
    let Some(file) = file.take() else { return };
    if let Some(commit) = commit
        && !file.document
    {
        commit.files.0 += 1;
        commit.files.1 += usize::from(file.is_prose());
    }
}

#[derive(Default)]
struct FileLines {
    document: bool,
    /// Whether the file is part of an agent skill, whose code is prose.
    skill: bool,
    /// Number of lines with text, and how many of them are prose.
    lines: (usize, usize),
}

impl FileLines {
    fn add(&mut self, line: &str, commit: &mut Gathered) {
        if self.document || line.trim().is_empty() {
            return;
        }
        self.lines.0 += 1;
        self.lines.1 += usize::from(is_prose(line));
        if self.lines.0 > LINES || commit.terms.len() >= 3 * TERMS {
            commit.whole = false;
            return;
        }
        commit.terms.extend(terms(line).iter().map(|term| term_id(term)));
    }

    /// Returns whether at least three fifths of the added lines are prose, and the file is not part
    /// of an agent skill. Returns false if there are too few lines.
    fn is_prose(&self) -> bool {
        let (all, prose) = self.lines;
        !self.skill && all >= PROSE_LINES && prose * 5 >= all * 3
    }
}

/// Returns whether a line reads like a sentence: it has enough words, and at least a fifth of them
/// are function words.
fn is_prose(line: &str) -> bool {
    let (mut all, mut function) = (0, 0);
    for word in line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        all += 1;
        let known = |known: &str| known.eq_ignore_ascii_case(word);
        function += usize::from(word.len() <= 6 && FUNCTION_WORDS.iter().any(|it| known(it)));
    }
    all >= PROSE_WORDS && function * 5 >= all
}

impl Gathered {
    fn finish(mut self) -> (String, AddedText) {
        // The first terms are kept, in the order in which they occur.
        let mut seen = std::collections::HashSet::new();
        self.terms.retain(|term| seen.insert(*term));
        if self.terms.len() > TERMS {
            self.terms.truncate(TERMS);
            self.whole = false;
        }
        // The list has room for three times as many terms, and 40,000 such lists are kept.
        self.terms.shrink_to_fit();
        self.terms.sort_unstable();
        let prose = self.files.0 > 0 && self.files.0 == self.files.1;
        (self.hash, AddedText { terms: self.terms, whole: self.whole, prose })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0123456789abcdef0123456789abcdef01234567";

    fn diff(path: &str, lines: &[&str]) -> String {
        let mut text = format!(
            "diff --git a/{path} b/{path}\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{} @@\n",
            lines.len()
        );
        for line in lines {
            text.push_str(&format!("+{line}\n"));
        }
        text
    }

    fn one(diffs: &[String]) -> AddedText {
        let text = format!("\0{HASH}\n\n{}", diffs.concat());
        let mut found = parse(text.as_bytes(), &Documents::default());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, HASH);
        found.remove(0).1
    }

    fn has(added: &AddedText, term: &str) -> bool {
        added.terms.contains(&term_id(&terms(term)[0]))
    }

    #[test]
    fn added_terms_exclude_documents() {
        let found = one(&[
            diff("src/a.rs", &["fn retry_policy() {", "}"]),
            diff("plan.md", &["The zebra must be painted with care when it is dry."]),
        ]);
        assert!(has(&found, "retry") && !has(&found, "zebra"), "{found:?}");
        assert!(found.whole && !found.prose);
    }

    #[test]
    fn added_lines_are_not_mistaken_for_headers() {
        let forged = ["++ b/plan.md", "\0fedcba", "@@ -0,0 +1,9 @@", "diff --git a/x b/x", "-gone"];
        let found = one(&[diff("src/a.rs", &forged), diff("src/b.rs", &["jitter"])]);
        assert!(has(&found, "jitter") && has(&found, "gone"));
    }

    #[test]
    fn sentences_in_any_file_are_prose() {
        let sentence = "\"note\": \"The report should name the jobs that failed in the night.\",";
        let found = one(&[diff("backlog.json", &[sentence; 4])]);
        assert!(found.prose, "{found:?}");
        let mixed = one(&[diff("backlog.json", &[sentence; 4]), diff("a.rs", &["let x = 1;"])]);
        assert!(!mixed.prose);
    }

    #[test]
    fn sentences_of_a_skill_are_work() {
        let path = ".claude/skills/review/SKILL.md";
        let commit = Commit { paths: vec![path.to_owned()], ..Commit::default() };
        let documents = Documents::learn(&[commit], &["ideas"]);
        let sentence = "Read the change and list the lines that a test should cover.";
        let text = format!("\0{HASH}\n\n{}", diff(path, &[sentence; 4]));
        let found = parse(text.as_bytes(), &documents).remove(0).1;
        assert!(!found.prose && has(&found, "cover"), "{found:?}");
    }

    #[test]
    fn terms_of_a_commit_are_limited() {
        let words: Vec<String> = (0..TERMS + 9).map(|n| format!("word{n}")).collect();
        let found = one(&[diff("src/a.rs", &[&words.join(" ")])]);
        assert_eq!((found.terms.len(), found.whole), (TERMS, false));
        assert!(found.terms.capacity() < 2 * TERMS, "the list keeps little unused capacity");
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<AddedText>(&text).unwrap(), found);
    }
}
