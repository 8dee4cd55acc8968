//! Reads the facts of a night from git and from the notes next to the corpus, within size limits.
//! This module must never write a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::files::read_text_in;
use runner_engine::git::Git;

use super::corpus::harvest::{CommitSource, NoteSource, Sources};
use super::corpus::{FOLDER as CORPUS, node::stem_of};
use crate::evidence::history::{self, HistoryLimits};

/// The folders below the corpus in which sessions leave notes.
const NOTES: [&str; 7] =
    ["ao/sessions", "sessions", "handoff", "retro", "retros", "council", "nightly"];
/// Maximum length of a note in bytes, and maximum number of notes.
const LONGEST: u64 = 512 * 1024;
const MOST: usize = 1_000;
/// Maximum number of commits that are read.
const COMMITS: usize = 2_000;

/// The known facts about a project.
#[derive(Debug, Default)]
pub struct Facts {
    pub sources: Sources,
    /// The files that git tracks.
    pub tracked: BTreeSet<String>,
    /// The commits by their first seven digits, each with its full hash and first line.
    pub commits: BTreeMap<String, (String, String)>,
}

impl Facts {
    /// Reads the facts. If git fails, there are no commits, and `sources.left_out` states the
    /// reason.
    pub fn read(root: &Path, git: &Git) -> Self {
        let mut facts = Self::default();
        let bounds = HistoryLimits { commits: COMMITS, ..HistoryLimits::default() };
        match history::read(git, &bounds) {
            Ok(history) => {
                for commit in history.commits {
                    let Ok(at) = Timestamp::from_second(commit.at) else {
                        continue;
                    };
                    let short = commit.hash.chars().take(7).collect();
                    facts.commits.insert(short, (commit.hash.clone(), commit.subject.clone()));
                    facts.sources.commits.push(CommitSource {
                        date: at.to_zoned(TimeZone::UTC).date(),
                        hash: commit.hash,
                        subject: commit.subject,
                        body: commit.body,
                        paths: commit.paths,
                    });
                }
                facts.sources.left_out.extend(history.notes);
            }
            Err(error) => facts
                .sources
                .left_out
                .push(format!("no commits: {}", runner_engine::error_chain::whole(&error))),
        }
        match history::tracked(git) {
            Ok(tracked) => facts.tracked = tracked.into_iter().collect(),
            Err(error) => facts.sources.left_out.push(format!("no list of files: {error}")),
        }
        facts.notes(root);
        facts
    }

    fn notes(&mut self, root: &Path) {
        for folder in NOTES {
            let below = Path::new(CORPUS).join(folder);
            let Ok(path) = runner_engine::files::beneath(root, &below) else {
                continue;
            };
            let mut names: Vec<String> = fs::read_dir(path)
                .into_iter()
                .flatten()
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
                .filter_map(|entry| entry.file_name().into_string().ok())
                .filter(|name| name.ends_with(".md"))
                .collect();
            names.sort();
            for name in names {
                let below = format!("{CORPUS}/{folder}/{name}");
                let path = root.join(&below);
                if self.sources.notes.len() >= MOST {
                    self.sources.left_out.push(format!("notes beyond {MOST}"));
                    return;
                }
                if fs::metadata(&path).is_ok_and(|data| data.len() > LONGEST) {
                    self.sources.left_out.push(format!("{below} is too long"));
                    continue;
                }
                match read_text_in(root, &path, LONGEST) {
                    Ok(text) => self.sources.notes.push(NoteSource { path: below, text }),
                    Err(error) => self.sources.left_out.push(format!("{below}: {error}")),
                }
            }
        }
    }

    /// Returns the project file that `named` identifies: the file at this path, or the only tracked
    /// file whose path ends with it.
    pub fn file(&self, root: &Path, named: &str) -> Option<String> {
        if self.tracked.contains(named) {
            return Some(named.to_owned());
        }
        let beneath = runner_engine::files::beneath(root, Path::new(named));
        if beneath.is_ok_and(|path| path.is_file()) {
            return Some(named.to_owned());
        }
        let end = format!("/{named}");
        let mut fitting = self.tracked.iter().filter(|path| path.ends_with(&end));
        match (fitting.next(), fitting.next()) {
            (Some(only), None) => Some(only.clone()),
            _ => None,
        }
    }

    /// Returns at most five tests: the test files in `files`, and tracked tests whose names match a
    /// file.
    pub fn tests_of(&self, files: &[String]) -> Vec<String> {
        let base = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or(path);
            let stem = name.split('.').next().unwrap_or(name).to_lowercase();
            stem.replace("_tests", "")
                .replace("_test", "")
                .replace("test_", "")
                .replace("-test", "")
        };
        let is_test = |path: &str| {
            let low = path.to_lowercase();
            low.split(['/', '.', '_', '-']).any(|part| matches!(part, "test" | "tests" | "spec"))
        };
        let wanted: BTreeSet<String> =
            files.iter().map(|path| base(path)).filter(|stem| stem.len() > 2).collect();
        let named = files.iter().filter(|path| is_test(path));
        let mut found: Vec<String> = named.cloned().collect();
        let fitting =
            self.tracked.iter().filter(|path| is_test(path) && wanted.contains(&base(path)));
        found.extend(fitting.cloned());
        found.sort();
        found.dedup();
        found.truncate(5);
        found
    }
}

pub fn named(path: &str) -> &str {
    stem_of(path)
}
