//! Finds the commits that touched the files and folders mentioned in a note.
//!
//! A note that asks for work mentions the files where the work belongs, and the commit that did the
//! work touched those files. This evidence does not depend on how the note or the commit is worded.
//! Names are weighted by rarity, because a file that every commit touches is weak evidence. This
//! module must never read a file or the text of a message.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::commit::Commit;
use super::places;

/// Maximum number of places that one name may refer to. A name that matches more places is ignored.
const MEANT: usize = 3;
/// Maximum number of distinct names to look up per note.
const NAMES: usize = 400;
/// Maximum number of commits to propose for comparison.
const PROPOSED: usize = 20;
/// Added to the number of files that a commit touched. The weight is divided by the logarithm of
/// the sum, so that a commit that touches many files has less weight.
const BREADTH: f64 = 8.0;

/// Every path that occurs in the history, with the commits that touched it.
#[derive(Debug, Default)]
pub struct TouchedPaths {
    /// All files, sorted by path.
    files: Vec<Box<str>>,
    /// For each file, the commits that touched it, newest first.
    by: Vec<Vec<u32>>,
    /// For each file, the newest commit that created it.
    born: Vec<Option<u32>>,
    /// Files and folders by the last component of their path.
    by_name: HashMap<Box<str>, Vec<PathFiles>>,
    commits: usize,
}

/// A file or a folder, as a range of indices into `TouchedPaths::files`. The range of a folder
/// contains the files below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PathFiles {
    from: u32,
    to: u32,
    /// The length in bytes of this path, which is a prefix of the first file's path.
    length: u32,
}

/// The files and folders that are mentioned in a note and occur in the history.
#[derive(Debug, Default)]
pub struct NamedPaths {
    /// Weight and number of the mentioned places that each commit touched.
    touched: BTreeMap<usize, (f64, usize)>,
    /// Combined weight of all mentioned places.
    whole: f64,
    /// Number of mentioned places.
    places: usize,
}

/// The extent to which a commit touched the places mentioned in a note.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overlap {
    /// The weight of the mentioned places that the commit touched, scaled down for broad commits. A
    /// commit that touches only one file, itself touched by 1 in 9 commits, scores about 1.
    pub weight: f64,
    /// Share of the mentioned places that the commit touched, weighted by rarity.
    pub share: f64,
    /// Number of the mentioned places that the commit touched.
    pub places: usize,
}

impl TouchedPaths {
    /// Indexes the paths that these commits touched.
    pub fn build(commits: &[Commit]) -> Self {
        let mut files: BTreeMap<&str, (Vec<u32>, Option<u32>)> = BTreeMap::new();
        for (at, commit) in commits.iter().enumerate().take(u32::MAX as usize) {
            for path in &commit.paths {
                let by = &mut files.entry(path).or_default().0;
                // A path that occurs twice in a commit counts once.
                if by.last() != Some(&(at as u32)) {
                    by.push(at as u32);
                }
            }
            let created = commit.created.iter();
            for path in created.filter_map(|place| commit.paths.get(*place as usize)) {
                files.entry(path).or_default().1.get_or_insert(at as u32);
            }
        }
        let mut by_name: HashMap<Box<str>, Vec<PathFiles>> = HashMap::new();
        let mut open: Vec<(usize, u32)> = Vec::new();
        let mut before: &str = "";
        let mut add = |path: &str, from: u32, to: u32| {
            let name = path.rsplit('/').next().unwrap_or(path);
            let place = PathFiles { from, to, length: path.len() as u32 };
            by_name.entry(name.into()).or_default().push(place);
        };
        let paths: Vec<&str> = files.keys().copied().collect();
        for (at, path) in paths.iter().enumerate() {
            let at = at as u32;
            add(path, at, at + 1);
            // Close the folders that end before this path; the next loop opens the folders that
            // start here.
            while let Some((length, from)) =
                open.pop_if(|(length, _)| path.get(..=*length) != before.get(..=*length))
            {
                add(&before[..length], from, at);
            }
            for (length, _) in path.match_indices('/') {
                if open.last().is_none_or(|(last, _)| *last < length) {
                    open.push((length, at));
                }
            }
            before = path;
        }
        for (length, from) in open {
            add(&before[..length], from, paths.len() as u32);
        }
        let paths = paths.into_iter().map(Box::from).collect();
        let (by, born) = files.into_values().unzip();
        Self { files: paths, by, born, by_name, commits: commits.len() }
    }

    /// Returns the places that the text mentions by complete path or by the end of a path, such as
    /// a file name. A mention that fits more than `MEANT` places is ignored.
    pub fn named_in(&self, text: &str) -> NamedPaths {
        let mut seen = HashSet::new();
        let mut places: BTreeMap<PathFiles, f64> = BTreeMap::new();
        for piece in places::mentioned(text) {
            let piece = piece.trim_end_matches('/').trim_start_matches("./");
            if piece.is_empty() || !seen.insert(piece) {
                continue;
            }
            if seen.len() > NAMES {
                break;
            }
            let meant = self.meant(piece);
            for place in &meant {
                let share = 1.0 / meant.len() as f64;
                let known = places.entry(*place).or_default();
                *known = known.max(share);
            }
        }
        let mut named = NamedPaths { places: places.len(), ..NamedPaths::default() };
        for (place, share) in places {
            let commits = self.commits_of(place);
            let weight = share * self.rarity(commits.len());
            named.whole += weight;
            for at in commits {
                let (sum, places) = named.touched.entry(at as usize).or_default();
                *sum += weight;
                *places += 1;
            }
        }
        named
    }

    /// Returns the newest commit that created the file to which this string refers. Returns `None`
    /// if the string does not refer to exactly one file, or if no commit in the history created the
    /// file.
    pub fn born(&self, piece: &str) -> Option<usize> {
        let [place] = self.meant(piece)[..] else {
            return None;
        };
        let file = &self.files[place.from as usize];
        let whole = file.len() == place.length as usize;
        (self.born[place.from as usize].filter(|_| whole)).map(|at| at as usize)
    }

    /// Returns whether a commit touched exactly this path or a file below it.
    pub fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        let from = |wanted: &str| self.files.partition_point(|file| &**file < wanted);
        let at = |at: usize| self.files.get(at);
        at(from(path)).is_some_and(|file| **file == *path)
            || at(from(&folder)).is_some_and(|file| file.starts_with(&folder))
    }

    /// Returns the newest commit that created exactly this path, or `None` if no commit in the
    /// history did.
    pub fn born_exactly(&self, path: &str) -> Option<usize> {
        let at = self.files.binary_search_by(|file| (**file).cmp(path)).ok()?;
        self.born[at].map(|at| at as usize)
    }

    /// Returns the places to which a string may refer: files if there are any, otherwise folders.
    /// The list is empty if there are more than [`MEANT`].
    fn meant(&self, piece: &str) -> Vec<PathFiles> {
        let name = piece.rsplit('/').next().unwrap_or(piece);
        let known = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        let mut files = Vec::new();
        let mut folders = Vec::new();
        for place in known {
            let file = &self.files[place.from as usize];
            let path = &file[..place.length as usize];
            let ends = path
                .strip_suffix(piece)
                .is_some_and(|before| before.is_empty() || before.ends_with('/'));
            if ends && path.len() == file.len() {
                files.push(*place);
            } else if ends && piece.contains('/') {
                folders.push(*place);
            }
        }
        let meant = if files.is_empty() { folders } else { files };
        if meant.len() <= MEANT { meant } else { Vec::new() }
    }

    /// Returns the commits that touched a place, each once.
    fn commits_of(&self, place: PathFiles) -> Vec<u32> {
        let lists = &self.by[place.from as usize..place.to as usize];
        match lists {
            [one] => one.clone(),
            _ => {
                let mut all: Vec<u32> = lists.iter().flatten().copied().collect();
                all.sort_unstable();
                all.dedup();
                all
            }
        }
    }

    /// Returns how well a place distinguishes commits if `having` commits touched it.
    fn rarity(&self, having: usize) -> f64 {
        ((1.0 + self.commits as f64) / (1.0 + having as f64)).ln()
    }
}

impl NamedPaths {
    /// Returns the number of places mentioned in the note.
    pub fn places(&self) -> usize {
        self.places
    }

    /// Returns the extent to which this commit touched the mentioned places.
    pub fn by(&self, at: usize, commit: &Commit) -> Overlap {
        let (weight, places) = self.touched.get(&at).copied().unwrap_or_default();
        if weight <= 0.0 || self.whole <= 0.0 {
            return Overlap::default();
        }
        Overlap {
            weight: weight / (BREADTH + commit.touched as f64).ln(),
            share: weight / self.whole,
            places,
        }
    }

    /// Returns at most `PROPOSED` commits with the highest [`Overlap::weight`], best first. Among
    /// equal weights, the newer commit comes first.
    pub fn best(&self, history: &[Commit]) -> Vec<usize> {
        let mut all: Vec<(f64, usize)> =
            self.touched.keys().map(|at| (self.by(*at, &history[*at]).weight, *at)).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        all.truncate(PROPOSED);
        all.into_iter().map(|(_, at)| at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(paths: &[&str]) -> Commit {
        Commit {
            hash: "d".repeat(40),
            at: 0,
            subject: String::new(),
            body: String::new(),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            touched: paths.len(),
            created: (0..paths.len() as u32).collect(),
            ..Commit::default()
        }
    }

    fn history() -> Vec<Commit> {
        vec![
            commit(&["src/net/retry.rs", "src/net/mod.rs"]),
            commit(&["src/net-x/a.rs", "README.md"]),
            commit(&["src/net/retry.rs"]),
            commit(&["docs/README.md", "a/mod.rs", "b/mod.rs", "src/term.rs"]),
            commit(&["Cargo.toml", "src/net.rs"]),
        ]
    }

    fn touching(text: &str) -> Vec<usize> {
        let history = history();
        let mut found = TouchedPaths::build(&history).named_in(text).best(&history);
        found.sort_unstable();
        found
    }

    #[test]
    fn paths_are_found_in_common_spellings() {
        assert_eq!(touching("see `src/net/retry.rs`."), [0, 2]);
        assert_eq!(touching("retry.rs:12 and ./src/term.rs"), [0, 2, 3]);
        assert_eq!(touching("everything in src/net/"), [0, 2], "no net-x, no net.rs");
        assert_eq!(touching("README.md"), [1, 3], "both files with this name are matched");
        assert_eq!(touching("docs/README.md"), [3]);
        assert_eq!(touching("mod.rs"), [0, 3], "all three files with this name are matched");
        assert_eq!(touching("net, term and nothing.rs; and/or"), [0; 0]);
    }

    #[test]
    fn ambiguous_file_name_matches_nothing() {
        let paths = ["a/x.rs", "b/x.rs", "c/x.rs", "d/x.rs"];
        let history = [commit(&paths)];
        let touched = TouchedPaths::build(&history);
        assert_eq!(touched.named_in("x.rs").places(), 0);
        assert_eq!(touched.named_in("b/x.rs").places(), 1);
    }

    #[test]
    fn weight_grows_with_coverage_and_focus() {
        let history = history();
        let touched = TouchedPaths::build(&history);
        let named = touched.named_in("src/net/retry.rs, src/net/mod.rs, src/term.rs");
        let by = |at: usize| named.by(at, &history[at]);
        assert!(by(0).share > by(2).share && by(0).weight > by(2).weight);
        assert!((0.0..=1.0).contains(&by(0).share));
        assert_eq!([by(0).places, by(1).places, by(2).places], [2, 0, 1]);
        assert_eq!(by(1), Overlap::default());
        let narrow = touched.named_in("src/net/retry.rs");
        assert!(narrow.by(2, &history[2]).weight > narrow.by(0, &history[0]).weight);
        assert!((narrow.by(2, &history[2]).share - 1.0).abs() < 1e-9);
    }

    #[test]
    fn creating_commit_of_a_file_is_found() {
        let touched = TouchedPaths::build(&history());
        assert_eq!(
            touched.born("net/retry.rs"),
            Some(0),
            "the newest commit that created the file"
        );
        assert_eq!(touched.born_exactly("src/term.rs"), Some(3));
        assert_eq!(touched.born_exactly("term.rs"), None);
        assert_eq!(touched.born("mod.rs"), None, "several files have this name");
        assert_eq!(touched.born("src/net"), None, "the path is a folder");
        assert!(touched.has("src/net/") && touched.has("README.md") && touched.has("src"));
        assert!(!touched.has("src/ne") && !touched.has("") && !touched.has("x.rs"));
    }

    #[test]
    fn large_texts_and_deep_paths_are_handled() {
        let deep = "a/".repeat(2000) + "é.rs";
        let history = [commit(&[&deep, "a", "a/b", "aé/b", "é"])];
        let touched = TouchedPaths::build(&history);
        assert_eq!(touched.named_in(&deep).places(), 1);
        let many: String = (0..100_000).map(|at| format!("x/{at}.rs ")).collect();
        assert_eq!(touched.named_in(&many).places(), 0);
    }
}
