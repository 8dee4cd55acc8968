//! Looks up the commits and paths that a text cites.
//!
//! A claim that something is done is only as good as the evidence that it cites. This module finds
//! the commits and paths in a text and reports which of them exist. It must never trust a citation
//! merely because the citation looks right.

use super::ProjectEvidence;
use super::places;

/// A citation in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A commit, by its hash or by the first digits of its hash.
    Commit(String),
    /// A file or a folder.
    Path(String),
}

/// The citations in the text, grouped by whether they exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedReferences {
    /// References that exist.
    pub found: Vec<Reference>,
    /// References that do not exist: a commit that is not in this history, or a file path that
    /// includes a folder and that is not tracked and never was. A path that used to exist is in
    /// neither list, because the work may have removed it.
    pub missing: Vec<Reference>,
}

impl CheckedReferences {
    /// Returns whether the text cites something that exists, and nothing that does not.
    pub fn resolves(&self) -> bool {
        !self.found.is_empty() && self.missing.is_empty()
    }
}

/// Looks up the commits and paths that `evidence` cites. Paths for which `own` returns true are
/// skipped, because a note is not evidence for itself.
///
/// An unknown hash is reported as missing only if the text cites it (see `is_citation`). The
/// subject that follows a commit's hash is a quotation, so hashes and paths in the subject are
/// ignored.
pub fn check(
    room: &ProjectEvidence,
    evidence: &str,
    own: impl Fn(&str) -> bool,
) -> CheckedReferences {
    let mut checked = CheckedReferences::default();
    let mut rest = evidence;
    // The parts of the text between the quoted subjects.
    let (mut unquoted, mut from) = (Vec::new(), 0);
    let mut looked_up = 0;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
        let before = &evidence[..evidence.len() - rest.len() + start];
        rest = &rest[start..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let piece = &rest[..end];
        rest = &rest[end..];
        if !looks_like_a_hash(piece) {
            continue;
        }
        let known = room.commit_named(piece);
        if let Some(commit) = known {
            let quoted = after_subject(rest, &commit.subject);
            if quoted.len() < rest.len() {
                unquoted.push(&evidence[from..evidence.len() - rest.len()]);
                from = evidence.len() - quoted.len();
                rest = quoted;
            }
        }
        let cited = is_citation(before, piece, rest);
        let found = known.is_some()
            || cited && looked_up < LOOKUPS && {
                looked_up += 1;
                room.commit_elsewhere(piece)
            };
        if found || cited {
            note(
                if found { &mut checked.found } else { &mut checked.missing },
                Reference::Commit(piece.to_owned()),
            );
        }
    }
    unquoted.push(&evidence[from..]);
    for path in unquoted.into_iter().flat_map(places::mentioned) {
        if own(path) || looks_like_a_hash(path) {
            continue;
        }
        let known = room.has_path(path);
        // "and/or" and "v1.2" look like paths too, so an unknown path counts only if it looks like
        // a file.
        let file = path.contains('/') && path.rsplit('/').next().is_some_and(|n| n.contains('.'));
        if known || file && !room.had_path(path) {
            note(
                if known { &mut checked.found } else { &mut checked.missing },
                Reference::Path(path.to_owned()),
            );
        }
    }
    checked
}

/// Maximum number of hashes in a text to look up outside the history that was read.
const LOOKUPS: usize = 8;

/// Returns whether a word that could be a hash is meant as a citation: its length is typical of a
/// cited hash, or it is at the beginning of the text or of a clause, or it follows the word
/// "commit". A number is never a citation. The position alone does not make a word of letters only,
/// or a part of a path, a citation.
fn is_citation(before: &str, piece: &str, after: &str) -> bool {
    if piece.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    if matches!(piece.len(), 12 | 40 | 64) {
        return true;
    }
    let mut next = after.chars();
    let in_path = match next.next() {
        Some('/' | '_' | '-') => true,
        Some('.') => next.next().is_some_and(char::is_alphanumeric),
        _ => false,
    };
    if in_path || !piece.bytes().any(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let before = before.trim_end_matches([' ', '`', '*', '[', '"', '\'']);
    let word = before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    before.is_empty()
        || before.ends_with([';', ',', '(', ':', '\n'])
        || ["commit", "commits"].contains(&word.to_ascii_lowercase().as_str())
}

/// Returns the text after a commit's subject if `rest` begins with the subject, possibly after a
/// date. Otherwise, returns `rest` unchanged.
fn after_subject<'a>(rest: &'a str, subject: &str) -> &'a str {
    let mut quoted = rest.trim_start_matches([' ', ':', ',', '`', '"', '\'', '(', '-', '—']);
    let date = |c: char| c.is_ascii_digit() || c == '-';
    if let Some((first, then)) = quoted.split_once(' ')
        && first.len() == 10
        && first.chars().all(date)
    {
        quoted = then.trim_start_matches([' ', ':', ',', '`', '"', '\'', '(', '-', '—']);
    }
    // The text was joined into one line, but a subject may contain any white space.
    let subject: Vec<&str> = subject.split_whitespace().collect();
    match quoted.strip_prefix(&*subject.join(" ")) {
        Some(then) if !then.starts_with(char::is_alphanumeric) => then,
        _ => rest,
    }
}

fn note(list: &mut Vec<Reference>, reference: Reference) {
    if !list.contains(&reference) {
        list.push(reference);
    }
}

/// Returns whether a word consists of 7 to 64 hex digits, as "defaced" does. [`is_citation`]
/// decides whether such a word is a citation.
fn looks_like_a_hash(piece: &str) -> bool {
    (7..=64).contains(&piece.len()) && piece.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::commit::Commit;

    fn room() -> ProjectEvidence {
        let commit = Commit {
            hash: "0123456789abcdef0123456789abcdef01234567".into(),
            at: 0,
            subject: "feat: x".into(),
            body: String::new(),
            paths: vec!["src/gone.rs".into()],
            touched: 1,
            ..Commit::default()
        };
        ProjectEvidence::of(vec![commit], vec!["specs/a.md".into(), "src/b.rs".into()])
    }

    #[test]
    fn hash_like_words_do_not_void_evidence() {
        let subjects = [
            "perf: 1000000 rows",
            "feat: backport abc1234, manually",
            "chore: release 20260115",
            "fix: after 99999999aaaa; fedcba987654 too",
            "1234567",
            "docs: as said in some/where.md",
        ];
        for subject in subjects {
            let commit = Commit {
                hash: "0123456789abcdef0123456789abcdef01234567".into(),
                at: 0,
                subject: subject.into(),
                body: String::new(),
                paths: Vec::new(),
                touched: 0,
                ..Commit::default()
            };
            let room = ProjectEvidence::of(vec![commit], Vec::new());
            for text in [
                format!("0123456789ab 2026-03-20 {subject}"),
                format!("commit `0123456789ab` ({subject}) did all of 1000000"),
                format!("0123456789ab: \"{subject}\""),
            ] {
                assert!(check(&room, &text, |_| false).resolves(), "{text}");
                let also = format!("{text}; 99999999bbbb");
                assert!(!check(&room, &also, |_| false).resolves(), "{also}");
            }
            assert!(!check(&room, subject, |_| false).resolves(), "{subject} alone");
        }
        let room = room();
        assert!(check(&room, "0123456789ab, then 20260115", |_| false).resolves());
        assert!(!check(&room, "20260115", |_| false).resolves());
        assert!(!check(&room, "1000000 rows", |_| false).resolves());
        assert!(
            check(&room, "0123456789ab; abc1234.md has a similar name", |_| { false }).resolves()
        );
        assert!(check(&room, "0123456789ab: defaced", |_| false).resolves());
        assert!(!check(&room, "0123456789ab abcdefabcdef", |_| false).resolves());
    }

    #[test]
    fn only_existing_references_resolve() {
        let room = room();
        let resolves = |text: &str| check(&room, text, |path| path == "ideas/a.md").resolves();
        assert!(resolves("commit 0123456789ab did it"));
        assert!(resolves("0123456, 0123456789ABCDEF; and/or more"));
        assert!(resolves("see specs/a.md (v1.2)"));
        assert!(resolves("everything in src/ does it"));
        assert!(!resolves("commit deadbeef1 did it"));
        for made_up in [
            "0123456789ab and also 99999999aaaa",
            "0123456789ab; abc1234",
            "commits 0123456789ab and more in commit `abc1234`",
            "0123456789ab 2026-03-20 feat: x; fedcba98765432100123456789abcdef01234567 y",
        ] {
            assert!(!resolves(made_up), "one of the two does not exist: {made_up}");
        }
        assert!(resolves("0123456789ab; it removed src/gone.rs"), "the path existed once");
        assert!(!resolves("src/gone.rs"), "the path no longer exists");
        assert!(!resolves("0123456789ab and src/made/up.rs"));
        assert!(!resolves("defaced facade"));
        assert!(!resolves("see specs/none.md"));
        assert!(!resolves("ideas/a.md says so itself"));
        assert!(!resolves(""));
        let both = check(&room, "specs/a.md and specs/none.md", |_| false);
        assert_eq!((both.found.len(), both.missing.len()), (1, 1));
    }
}
