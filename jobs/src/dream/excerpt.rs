//! Reads a limited part of each candidate commit's changes, for a question and for checking
//! quotations.

use std::collections::{BTreeMap, BTreeSet};

use runner_engine::git::{Git, GitError};

use crate::evidence::ProjectEvidence;

/// Length at which an excerpt is complete, in bytes. The last line may exceed it.
const LONGEST: usize = 4 * 1024;
/// Maximum number of lines to include from each file.
const LINES: usize = 40;
/// Maximum length of a line in characters.
const LINE: usize = 200;
/// Maximum number of files that a commit may touch for its changes to be shown.
const BROAD: usize = 300;
/// Number of commits whose changes are read with one git command.
const AT_ONCE: usize = 40;
/// Minimum number of characters in a quotation, excluding whitespace.
const QUOTE: usize = 8;

/// Excerpts from commits' changes, by commit hash.
#[derive(Clone, Debug, Default)]
pub(super) struct Excerpts(BTreeMap<String, String>);

impl Excerpts {
    /// Reads the changes of these commits, except those that touch no files or more than [`BROAD`]
    /// files. If git exits with an error, the commits of that git command are left out.
    ///
    /// # Errors
    /// Returns any other [`GitError`].
    pub(super) fn read(
        git: &Git,
        room: &ProjectEvidence,
        hashes: &BTreeSet<&str>,
    ) -> Result<Self, GitError> {
        let mut all = Self::default();
        let narrow = |hash: &&&str| {
            room.commit_named(hash).is_some_and(|commit| (1..=BROAD).contains(&commit.touched))
        };
        let hashes: Vec<&str> = hashes.iter().filter(narrow).copied().collect();
        // The options keep git from starting programs named in attributes or the configuration.
        let args =
            ["--patch", "--unified=1", "--no-ext-diff", "--no-textconv", "--format=tformat:%x00%H"];
        for some in hashes.chunks(AT_ONCE) {
            let out = match git.diffs((some.join("\n") + "\n").into_bytes(), &args) {
                Err(GitError::Failed { .. }) => continue,
                out => out?,
            };
            all.parse(&out, room);
        }
        Ok(all)
    }

    fn parse(&mut self, out: &[u8], room: &ProjectEvidence) {
        let mut hash: Option<String> = None;
        let (mut lines, mut skipped, mut in_hunk) = (0, false, false);
        for line in out.split(|byte| *byte == b'\n') {
            if let Some(found) = line.strip_prefix(b"\0") {
                let found = String::from_utf8_lossy(found).into_owned();
                self.0.entry(found.clone()).or_default();
                hash = Some(found);
                continue;
            }
            let Some(text) = hash.as_ref().and_then(|hash| self.0.get_mut(hash)) else { continue };
            let line = String::from_utf8_lossy(line);
            // Git quotes a path with special characters.
            if let Some(paths) = line.strip_prefix("diff --git ") {
                let quoted = paths.strip_prefix("\"a/").map(unquoted);
                let plain = || paths.strip_prefix("a/")?.split(" b/").next();
                let path = quoted.or_else(plain).unwrap_or(paths);
                (lines, skipped, in_hunk) = (0, room.is_document(path), false);
                if !skipped && text.len() < LONGEST {
                    text.push_str(&format!("file {path}\n"));
                }
                continue;
            }
            // The lines of a file's header, before its first hunk, may also begin with these
            // characters.
            in_hunk |= line.starts_with("@@");
            let content = in_hunk && line.starts_with(['+', '-', ' ']);
            if !content || skipped || lines >= LINES || text.len() >= LONGEST {
                continue;
            }
            lines += 1;
            text.extend(line.chars().take(LINE));
            text.push('\n');
        }
    }

    /// Returns a commit's changes, truncated to `most` bytes, or an empty string if they were not
    /// read.
    pub(super) fn of(&self, hash: &str, most: usize) -> &str {
        let text = self.0.get(hash).map_or("", String::as_str);
        &text[..text.floor_char_boundary(most)]
    }

    /// Returns whether a changed line in the excerpts of these commits contains the quotation,
    /// ignoring whitespace. A quotation with fewer than [`QUOTE`] characters is never found.
    pub(super) fn contain<'a>(
        &self,
        quote: &str,
        commits: impl IntoIterator<Item = &'a str>,
    ) -> bool {
        let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        let wanted = bare(quote.trim().trim_start_matches(['+', '-']));
        wanted.chars().count() >= QUOTE
            && commits.into_iter().filter_map(|hash| self.0.get(hash)).any(|text| {
                let changed = text.lines().filter(|line| line.starts_with(['+', '-']));
                changed.map(|line| bare(&line[1..])).any(|line| line.contains(&wanted))
            })
    }
}

/// Returns the part of a quoted path before the closing quote. Escaped characters stay as they are.
fn unquoted(text: &str) -> &str {
    let mut escaped = false;
    let end = text.find(|c| {
        let closes = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        closes
    });
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_must_be_in_the_changes() {
        let room = ProjectEvidence::of(Vec::new(), Vec::new());
        let hash = "a".repeat(40);
        let out = format!(
            "\0{hash}\n\ndiff --git a/plan.md b/plan.md\n+++ b/plan.md\n@@ -0,0 +1 @@\n+paint every zebra crossing\n\
             diff --git a/src/a.rs b/src/a.rs\n--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1 +1 @@\n fn old() {{}}\n\
             +    let wait = jitter(attempt);\n-    let wait = 1;\n\
             --- the old retry rule\n"
        );
        let mut excerpts = Excerpts::default();
        excerpts.parse(out.as_bytes(), &room);
        let contain = |quote: &str| excerpts.contain(quote, [hash.as_str()]);
        assert!(contain("let wait = jitter(attempt);") && contain("+ let  wait=jitter(attempt)"));
        // Git quotes the path of this plan.
        let quoted = format!(
            "\0{hash}\n\ndiff --git \"a/the \\\"draft\\\" plan.md\" \"b/the \\\"draft\\\" plan.md\"\n@@ -0,0 +1 @@\n\
             +paint every second crossing\n"
        );
        let mut of_plan = Excerpts::default();
        of_plan.parse(quoted.as_bytes(), &room);
        assert!(!of_plan.contain("paint every second crossing", [hash.as_str()]));
        // This line is a removed SQL comment, not the header of a file.
        assert!(contain("-- the old retry rule"));
        for wrong in ["let wait = jitter(other);", "paint every zebra", "fn old() {}", "wait", ""] {
            assert!(!contain(wrong), "{wrong}");
        }
        assert!(!excerpts.contain("let wait = jitter(attempt);", ["other"]));
        assert_eq!(excerpts.of(&hash, 13), "file src/a.rs");
        assert_eq!(excerpts.of("other", 9), "");
    }
}
