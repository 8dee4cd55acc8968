//! Finds the paths mentioned in a text, the paths with a name like a note's, and the paths of
//! documents.
//!
//! This module compares names only and must never read a file.

use std::collections::HashMap;

/// Returns the name of a file without its folder and its last extension.
pub fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => name,
    }
}

/// Returns a stem in lower case, with `_` replaced by `-`.
fn comparable(stem: &str) -> String {
    stem.to_lowercase().replace('_', "-")
}

/// Returns whether a path has the extension of a prose document, which people read and no program
/// executes.
pub fn is_document(path: &str) -> bool {
    const ENDINGS: [&str; 7] = ["md", "markdown", "txt", "rst", "adoc", "org", "html"];
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').is_some_and(|(_, ending)| ENDINGS.contains(&ending))
}

/// Returns whether the text mentions a path, at least by its file name and the folder above the
/// file. A bare `mod.rs` or `README.md` is ambiguous and does not count as a mention.
pub fn names(text: &str, path: &str) -> bool {
    let tail = match path.rmatch_indices('/').nth(1) {
        Some((at, _)) => &path[at + 1..],
        None => path,
    };
    tail.contains('/') && whole(text, tail)
}

/// Returns whether `part` occurs in `text` without adjoining letters, digits, `_` or `-`.
fn whole(text: &str, part: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(part).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + part.len()..].chars().next();
        !before.is_some_and(inside) && !after.is_some_and(inside)
    })
}

/// Returns the parts of the text that look like a path or a file name: `src/time.rs`, `docs/`,
/// `a.md`.
pub fn mentioned(text: &str) -> impl Iterator<Item = &str> {
    let within = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | '@');
    text.split(move |c: char| !within(c))
        .map(|piece| piece.trim_matches(['.', '-']).trim_start_matches('/'))
        .filter(|piece| {
            let ending = piece.rsplit_once('.').map(|(_, ending)| ending);
            let file = ending.is_some_and(|e| (1..=8).contains(&e.len()) && !e.contains('/'));
            piece.len() > 2 && (file || piece.contains('/'))
        })
}

/// The tracked files, searchable by complete path or by name.
#[derive(Debug, Default)]
pub struct Tracked {
    paths: Vec<String>,
    /// Indices into `paths`, by lower-case file name.
    by_name: HashMap<String, Vec<u32>>,
    /// Indices into `paths`, by comparable stem.
    by_stem: HashMap<String, Vec<u32>>,
}

impl Tracked {
    /// Indexes tracked files by name. `paths` is in git's order.
    pub fn new(paths: Vec<String>) -> Self {
        let mut by_name: HashMap<String, Vec<u32>> = HashMap::new();
        let mut by_stem: HashMap<String, Vec<u32>> = HashMap::new();
        for (at, path) in paths.iter().enumerate().take(u32::MAX as usize) {
            let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
            by_name.entry(name).or_default().push(at as u32);
            by_stem.entry(comparable(stem(path))).or_default().push(at as u32);
        }
        Self { paths, by_name, by_stem }
    }

    /// Returns whether exactly this path is tracked, or is a folder of tracked files.
    pub fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let at = self.paths.partition_point(|other| other.as_str() < path);
        if self.paths.get(at).is_some_and(|other| other == path) {
            return true;
        }
        let folder = format!("{path}/");
        let at = self.paths.partition_point(|other| other.as_str() < folder.as_str());
        self.paths.get(at).is_some_and(|other| other.starts_with(&folder))
    }

    /// Returns at most `limit` tracked files that the text mentions. A mention is a complete path
    /// or the end of one, such as a file name. A mention that fits several tracked files is
    /// ignored.
    pub fn named_in(&self, text: &str, limit: usize) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for piece in mentioned(text) {
            let name = piece.rsplit('/').next().unwrap_or(piece).to_lowercase();
            let Some(places) = self.by_name.get(&name) else {
                continue;
            };
            let mut meant =
                places.iter().map(|at| self.paths[*at as usize].as_str()).filter(|path| {
                    path.strip_suffix(piece)
                        .is_some_and(|before| before.is_empty() || before.ends_with('/'))
                });
            let (Some(first), None) = (meant.next(), meant.next()) else {
                continue;
            };
            if !found.contains(&first) {
                found.push(first);
            }
            if found.len() == limit {
                break;
            }
        }
        found
    }

    /// Returns at most `limit` tracked files with this stem, in any folder and with any extension.
    /// Case is ignored, and `-` and `_` count as equal.
    pub fn with_stem(&self, wanted: &str, limit: usize) -> Vec<&str> {
        let alike = self.by_stem.get(&comparable(wanted)).into_iter().flatten();
        alike.take(limit).map(|at| self.paths[*at as usize].as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_at_component_boundaries() {
        assert!(names("see `src/net/retry.rs`.", "src/net/retry.rs"));
        assert!(names("in net/retry.rs, too", "src/net/retry.rs"));
        assert!(!names("in xnet/retry.rs", "src/net/retry.rs"));
        assert!(!names("in retry.rs", "src/net/retry.rs"));
        assert!(!names("README.md", "README.md"));
        assert_eq!(stem("a/b.tar.gz"), "b.tar");
        assert_eq!(stem(".gitignore"), ".gitignore");
        assert!(is_document("docs/x.md") && !is_document("x/md") && !is_document("src/a.rs"));
        let pieces: Vec<&str> =
            mentioned("Move `src/a.rs` to docs/, see a.md. And/or e.g. (https://x.org/y) v1.2")
                .collect();
        assert!(
            ["src/a.rs", "docs/", "a.md"].iter().all(|want| pieces.contains(want)),
            "{pieces:?}"
        );
    }

    #[test]
    fn tracked_files_are_found_from_mentions() {
        let paths = [
            "README.md",
            "docs/README.md",
            "specs/night_report.md",
            "src/net/retry.rs",
            "src/x/mod.rs",
        ];
        let tracked = Tracked::new(paths.iter().map(|path| (*path).to_owned()).collect());
        assert_eq!(tracked.named_in("net/retry.rs or README.md", 9), ["src/net/retry.rs"]);
        assert_eq!(
            tracked.named_in("`docs/README.md` `mod.rs`", 9),
            ["docs/README.md", "src/x/mod.rs"]
        );
        assert_eq!(tracked.with_stem("Night-Report", 9), ["specs/night_report.md"]);
        assert!(tracked.has("src/net") && tracked.has("src/net/") && tracked.has("README.md"));
        assert!(!tracked.has("src/ne") && !tracked.has("") && !tracked.has("nowhere"));
    }
}
