//! Evidence that resolves: what a text cites, looked up.
//!
//! A claim that something is done is worth as much as what it cites (contracts/dream.md, "what
//! good looks like"). This module finds the commits and paths in a sentence and says which exist.
//! It must never take a citation for granted because it looks right.

use super::Room;
use super::places;

/// Something that a text cites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A commit, by hash or by its first digits.
    Commit(String),
    /// A file or a folder.
    Path(String),
}

/// What of a text's citations exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// These do.
    pub found: Vec<Reference>,
    /// These do not: a commit that is not in this history, a path with a folder that is not tracked.
    pub missing: Vec<Reference>,
}

impl Checked {
    /// Whether the text stands on something, and on nothing that is made up.
    pub fn resolves(&self) -> bool {
        !self.found.is_empty()
            && !self
                .missing
                .iter()
                .any(|it| matches!(it, Reference::Commit(_)))
    }
}

/// Looks up what `evidence` cites. `own` paths are passed over: a note is no evidence for itself.
pub fn check(room: &Room, evidence: &str, own: &[&str]) -> Checked {
    let mut checked = Checked::default();
    let pieces = evidence.split(|c: char| !c.is_ascii_alphanumeric());
    for piece in pieces.filter(|piece| looks_like_a_hash(piece)) {
        let known = room.commit_named(piece).is_some();
        checked.note(Reference::Commit(piece.to_owned()), known);
    }
    for path in places::mentioned(evidence).filter(|path| !own.contains(path)) {
        if looks_like_a_hash(path) {
            continue;
        }
        let known = room.has_path(path);
        // "and/or" and "v1.2" look like paths too: what is not there counts only as a file.
        if known || (path.contains('/') && path.rsplit('/').next().is_some_and(|n| n.contains('.')))
        {
            checked.note(Reference::Path(path.to_owned()), known);
        }
    }
    checked
}

impl Checked {
    fn note(&mut self, reference: Reference, known: bool) {
        let list = if known {
            &mut self.found
        } else {
            &mut self.missing
        };
        if !list.contains(&reference) {
            list.push(reference);
        }
    }
}

/// 7 to 64 hex digits with at least one that is no letter: "defaced" is a word.
fn looks_like_a_hash(piece: &str) -> bool {
    (7..=64).contains(&piece.len())
        && piece.bytes().all(|byte| byte.is_ascii_hexdigit())
        && piece.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::history::Commit;

    fn room() -> Room {
        let commit = Commit {
            hash: "0123456789abcdef0123456789abcdef01234567".into(),
            at: 0,
            subject: "feat: x".into(),
            body: String::new(),
            paths: Vec::new(),
            touched: 0,
        };
        Room::of(vec![commit], vec!["specs/a.md".into(), "src/b.rs".into()]).unwrap()
    }

    #[test]
    fn only_what_exists_carries_a_claim() {
        let room = room();
        let resolves = |text: &str| check(&room, text, &["ideas/a.md"]).resolves();
        assert!(resolves("commit 0123456789ab did it"));
        assert!(resolves("0123456, 0123456789ABCDEF; and/or more"));
        assert!(resolves("see specs/a.md (v1.2)"));
        assert!(resolves("everything in src/ does it"));
        assert!(!resolves("commit deadbeef1 did it"));
        assert!(
            !resolves("0123456789ab and also 99999999"),
            "one of two is made up"
        );
        assert!(!resolves("defaced facade"));
        assert!(!resolves("see specs/none.md"));
        assert!(!resolves("ideas/a.md says so itself"));
        assert!(!resolves(""));
        let both = check(&room, "specs/a.md and specs/none.md", &[]);
        assert_eq!((both.found.len(), both.missing.len()), (1, 1));
    }
}
