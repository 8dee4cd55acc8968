//! Reads the facts that a night needs from git, and from the notes, citations and transcripts of
//! sessions, within size limits. This module must never write a file.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::files::{beneath, open_no_link, read_text_in};
use runner_engine::git::{Git, Read};

use super::corpus::harvest::{CommitSource, NoteSource, Sources};
use super::corpus::uses::Uses;
use super::corpus::{Corpus, FOLDER as CORPUS};
use crate::AgentFolders;
use crate::evidence::ProjectEvidence;
use crate::evidence::history::{self, HistoryLimits};
use crate::sessions::sources::claude_transcripts;

/// The folders inside the corpus where sessions leave notes.
const NOTES: [&str; 7] =
    ["ao/sessions", "sessions", "handoff", "retro", "retros", "council", "nightly"];
/// Maximum length in bytes of a note and of git's configuration file.
const LONGEST: u64 = 512 * 1024;
/// Maximum number of notes to read.
const MOST: usize = 1_000;
/// Maximum number of commits to read.
const COMMITS: usize = 2_000;
/// Minimum strength at which a commit is considered to have done an item's work.
const DONE: f64 = crate::dream::rule::DONE;
/// The file, inside the corpus, in which other programs record citations.
const CITATIONS: &str = "ao/citations.jsonl";
/// Maximum size of the citations file in bytes.
const LONGEST_CITATIONS: u64 = 64 << 20;
/// Maximum number of transcripts to read, newest first, and their maximum total size in bytes.
const SESSIONS: usize = 200;
const SESSION_BYTES: u64 = 256 << 20;

/// The facts about a project that a night uses.
#[derive(Default)]
pub struct Facts {
    pub sources: Sources,
    /// The files that git tracks.
    pub tracked: BTreeSet<String>,
    /// The commits, keyed by the first seven digits of their hashes, each with its full hash and
    /// the first line of its message.
    pub commits: BTreeMap<String, (String, String)>,
    /// The indexed history, which is searched for finished work, or `None` if git could not list
    /// the tracked files.
    pub evidence: Option<ProjectEvidence>,
    /// The names of this repository in lower case: its folder name, that of the repository's main
    /// work tree, and the last part of each remote URL.
    pub names: Vec<String>,
    /// The known uses of the corpus, or `None` until [`Facts::learn`] reads them.
    pub(super) uses: Option<Uses>,
}

impl Facts {
    /// Reads the facts, except the uses. If the commits, the list of tracked files or a note cannot
    /// be read, `sources.left_out` gives the reason.
    pub fn read(root: &Path, git: &Git) -> Self {
        let mut facts = Self { names: names(root, git), ..Self::default() };
        let mut commits = Vec::new();
        let bounds = HistoryLimits { commits: COMMITS, ..HistoryLimits::default() };
        match history::read(git, &bounds) {
            Ok(history) => {
                commits.clone_from(&history.commits);
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
            Ok(tracked) => {
                facts.evidence = Some(ProjectEvidence::of(commits, tracked.clone()));
                facts.tracked = tracked.into_iter().collect();
            }
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
                    self.sources.left_out.push(format!("notes beyond the first {MOST}"));
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

    /// Returns the uses of a corpus. The first call reads them from citations, commits, work items
    /// and the project's transcripts, including those of Claude Code. The caller sets
    /// [`Uses::merged`].
    pub fn learn(&mut self, root: &Path, agents: &AgentFolders, corpus: &Corpus) -> &mut Uses {
        let uses = self.uses.take().unwrap_or_else(|| {
            let mut uses = Uses::default();
            uses.add_commits(&self.sources.commits, corpus);
            uses.add_work(corpus);
            let path = Path::new(CORPUS).join(CITATIONS);
            match read_text_in(root, &path, LONGEST_CITATIONS) {
                Ok(text) => {
                    let odd = uses.add_citations(&text);
                    if odd > 0 {
                        let what =
                            format!("{CORPUS}/{CITATIONS}: rows without a node or a date: {odd}");
                        self.sources.left_out.push(what);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    self.sources.left_out.push(format!("{CORPUS}/{CITATIONS}: {error}"));
                }
            }
            let mut left = SESSION_BYTES;
            let mut rows = HashSet::new();
            for path in transcripts(root, agents) {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let read = open_no_link(&path).and_then(|file| {
                    let size = file.metadata()?.len();
                    uses.add_session(&name, BufReader::new(file.take(left)), &mut rows)?;
                    Ok(size)
                });
                match read {
                    Ok(size) => left = left.saturating_sub(size),
                    Err(error) => self.sources.left_out.push(format!("session {name}: {error}")),
                }
                if left == 0 {
                    break;
                }
            }
            uses
        });
        self.uses.insert(uses)
    }

    /// Returns the uses read by [`Facts::learn`], which must be called first.
    pub fn known_uses(&mut self) -> &Uses {
        self.uses.get_or_insert_default()
    }

    /// Returns the short hash and the subject of the commit that probably did the work described by
    /// `text`, or `None` if no commit did or if that commit is older than `born`. `path` names the
    /// work.
    pub fn done_since(&self, path: &str, text: &str, born: Option<Timestamp>) -> Option<String> {
        let born = born.map(Timestamp::as_second);
        let room = self.evidence.as_ref()?;
        let found = room.about(path, text, born).candidates;
        let best = found.first().filter(|best| best.strength >= DONE)?;
        let commit = room.commit(best);
        let later = born.is_none_or(|born| commit.at >= born);
        later.then(|| format!("{} {}", commit.short(), commit.subject))
    }

    /// Returns whether `repo` names a repository other than the project's.
    pub fn is_foreign(&self, repo: Option<&str>) -> bool {
        let repo = repo.map(|repo| repo.trim().to_lowercase());
        let last = repo.as_deref().and_then(|repo| repo.rsplit('/').next());
        last.is_some_and(|repo| {
            !matches!(repo, "" | "*") && !self.names.iter().any(|it| it == repo)
        })
    }

    /// Returns the path of the file at `named`, or of the only tracked file whose path ends with
    /// `named`. Returns `None` if there is no such file.
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
    /// file in `files`.
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

fn names(root: &Path, git: &Git) -> Vec<String> {
    let last = |url: &str| {
        let name = url.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default();
        name.trim_end_matches(".git").to_lowercase()
    };
    let settings = git.ask(Read::ConfigList, &[]).unwrap_or_default();
    let settings = String::from_utf8_lossy(&settings);
    let urls = settings.split('\0').filter_map(|setting| {
        let (name, url) = setting.split_once('\n')?;
        (name.starts_with("remote.") && name.ends_with(".url")).then(|| last(url))
    });
    // A worktree's own folder may have any name.
    let main = git.path(&["--git-common-dir"]).ok();
    let main = main.map(|folder| last(folder.to_string_lossy().trim_end_matches("/.git")));
    let own = root.file_name().map(|name| name.to_string_lossy().to_lowercase());
    own.into_iter().chain(main).chain(urls).collect()
}

/// Returns at most [`SESSIONS`] transcripts of the project's sessions, newest first: those inside
/// the corpus, and those that Claude Code keeps in its folder.
fn transcripts(root: &Path, agents: &AgentFolders) -> Vec<PathBuf> {
    let own = beneath(root, &Path::new(CORPUS).join("ao/sessions")).ok();
    let own = own.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let mut found: Vec<(std::time::SystemTime, PathBuf)> = own
        .filter(|entry| entry.path().extension().is_some_and(|it| it == "jsonl"))
        .filter_map(|entry| {
            let data = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((data.modified().ok()?, entry.path()))
        })
        .collect();
    let claude = agents.claude.iter();
    found.extend(claude.flat_map(|claude| claude_transcripts(root, claude, SESSIONS)));
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).take(SESSIONS).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn worktree_has_the_names_of_its_repository() {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("Main");
        fs::create_dir(&main).unwrap();
        let path = "/usr/local/bin:/usr/bin:/bin";
        let run = |args: &[&str]| {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(args).current_dir(&main);
            git.env_clear().env("PATH", path).env("HOME", &main).env("GIT_CONFIG_NOSYSTEM", "1");
            assert!(git.output().unwrap().status.success(), "{args:?}");
        };
        run(&["init", "-q"]);
        run(&["commit", "-q", "--allow-empty", "-m", "a"]);
        run(&["remote", "add", "origin", "git@example.org:me/Thing.git"]);
        run(&["worktree", "add", "-q", "../side"]);
        let side = folder.path().join("side");
        let env = [("PATH", path.to_owned()), ("HOME", main.display().to_string())];
        let env = env.map(|(name, value)| (name.to_owned(), value)).into();
        for (root, known) in
            [(&side, ["side", "me/main", "thing"]), (&main, ["main", "*", "thing"])]
        {
            let facts = Facts::read(root, &Git::new(root, &env, "test"));
            assert!(known.iter().all(|repo| !facts.is_foreign(Some(repo))), "{:?}", facts.names);
            assert!(facts.is_foreign(Some("me/other")) && facts.is_foreign(Some("hooks")));
        }
    }
}
