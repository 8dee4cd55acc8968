//! `runner corpus`: runs single steps on the corpus.
//!
//! Each command that reads or changes the project's corpus first finishes any interrupted commit. A
//! reader waits while a commit is being made. A command that changes the corpus or finishes a
//! commit takes the overnight lock, so it is refused while an overnight run is active.

mod bench;
mod brief;
mod close_loop;
mod defrag;
mod harvest;
mod health;
mod proposals;

use std::fs;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use runner_engine::error_chain::whole;
use runner_engine::git::Git;
use runner_engine::ids::{Fence, RunId};
use runner_engine::outcome::Exit;
use runner_jobs::overnight::commit::{self, Commit, CommitError};
use runner_jobs::overnight::corpus::oscillation::FileHistory;
use runner_jobs::overnight::corpus::{Changes, Corpus, FOLDER, read};
use runner_jobs::overnight::facts::Facts;
use runner_jobs::overnight::lock::{CommitLock, FOLDER as NIGHT, LockError, RunLock};
use serde_json::Value;

use super::Cli;
use crate::env;
use crate::ui::Failure;

/// Work on the corpus in .agents step by step: health, bench, promotion, tidying, brief, harvest,
/// proposals
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner corpus health")]
pub struct CorpusArgs {
    #[command(subcommand)]
    command: CorpusCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CorpusCommand {
    /// Show the fitness of the corpus, and its hygiene: each metric with its minimum, and stale, repeated, unconnected
    /// or unreadable nodes
    ///
    /// Exit code 1 when a hygiene metric is below its minimum.
    #[command(after_help = "Example: runner corpus health --json | jq .composite")]
    Health,
    Bench(bench::BenchArgs),
    CloseLoop(close_loop::CloseLoopArgs),
    Defrag(defrag::DefragArgs),
    Brief(brief::BriefArgs),
    Harvest(harvest::HarvestArgs),
    /// List the open proposals to retire nodes, with the reasons and the nodes' text
    #[command(after_help = "Example: runner corpus proposals --json | jq -r '.[].id'")]
    Proposals,
    /// Accept a proposal and retire its node
    #[command(after_help = "Example: runner corpus accept retire-0123456789abcdef")]
    Accept {
        /// The id of the proposal
        id: String,
    },
    /// Reject a proposal, which is not made again until the node's text changes
    #[command(after_help = "Example: runner corpus reject retire-0123456789abcdef")]
    Reject {
        /// The id of the proposal
        id: String,
    },
    /// Undo the decision about a proposal and restore its node
    #[command(after_help = "Example: runner corpus undo retire-0123456789abcdef")]
    Undo {
        /// The id of the proposal
        id: String,
    },
}

impl CorpusArgs {
    pub fn is_dry(&self) -> bool {
        match &self.command {
            CorpusCommand::CloseLoop(args) => args.dry_run,
            CorpusCommand::Harvest(args) => args.dry_run,
            _ => false,
        }
    }

    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let folder = CorpusFolder { cli, root: find(cli.here)? };
        dispatch!(&self.command, CorpusCommand: Bench CloseLoop Defrag Brief Harvest => run(&folder);
            CorpusCommand::Health => health::run(&folder),
            CorpusCommand::Proposals => proposals::list(&folder),
            CorpusCommand::Accept { id } => proposals::accept(&folder, id),
            CorpusCommand::Reject { id } => proposals::reject(&folder, id),
            CorpusCommand::Undo { id } => proposals::undo(&folder, id))
    }
}

/// Returns the nearest folder at or above `from` that contains a corpus, and refuses a corpus that
/// is a symbolic link.
pub(super) fn find(from: &Path) -> Result<PathBuf, Failure> {
    let root = find_any(from)?;
    refuse_link(&root)?;
    Ok(root)
}

/// Refuses a corpus that is a symbolic link, because other projects may share the link's target.
pub(super) fn refuse_link(root: &Path) -> Result<(), Failure> {
    let path = root.join(FOLDER);
    match path.is_symlink() {
        false => Ok(()),
        true => Err(Failure::data(format!("{} is a symbolic link", path.display()))
            .hint("runner overnight import --apply # replaces the link with a copy of its folder")),
    }
}

/// Returns the nearest folder at or above `from` that contains a corpus.
pub(super) fn find_any(from: &Path) -> Result<PathBuf, Failure> {
    let from = fs::canonicalize(from)
        .map_err(|error| Failure::data(format!("{}: {error}", from.display())))?;
    let found = from.ancestors().find(|folder| folder.join(FOLDER).is_dir());
    found.map(Path::to_owned).ok_or_else(|| {
        Failure::data(format!("could not find {FOLDER} in {} or any parent folder", from.display()))
            .hint(format!("mkdir -p {FOLDER}/learnings"))
    })
}

/// The folder that contains the corpus, and the command's context.
pub(super) struct CorpusFolder<'a> {
    pub(super) cli: &'a Cli<'a>,
    pub(super) root: PathBuf,
}

impl CorpusFolder<'_> {
    fn date(&self) -> Result<jiff::civil::Date, Failure> {
        Ok(self.cli.env.wall()?.to_zoned(TimeZone::UTC).date())
    }

    /// Finishes any interrupted commit, and then reads the corpus.
    fn corpus(&self) -> Result<Corpus, Failure> {
        let whole = || read(&self.root.join(FOLDER)).map_err(unreadable);
        let reading = CommitLock::shared(&self.root).map_err(locked)?;
        if !commit::is_pending(&self.root).map_err(not_committed)? {
            return whole();
        }
        drop(reading);
        let _lock = self.lock()?;
        for (id, _) in commit::settle(&self.root).map_err(not_committed)?.rolled_forward {
            self.cli.ui.info(&format!("runner: finished the commit of {id}"));
        }
        whole()
    }

    fn lock(&self) -> Result<RunLock, Failure> {
        RunLock::take(&self.root, "corpus", self.cli.env.wall()?).map_err(locked)
    }

    /// Runs a step and returns its report without making its changes.
    pub(super) fn preview<T>(
        &self,
        step: impl FnOnce(&Corpus) -> Result<(T, Changes), Failure>,
    ) -> Result<T, Failure> {
        Ok(step(&self.corpus()?)?.0)
    }

    /// Runs a step under the lock and commits its changes. Finishes any interrupted commit first.
    pub(super) fn change<T>(
        &self,
        step: impl FnOnce(&Corpus) -> Result<(T, Changes), Failure>,
    ) -> Result<T, Failure> {
        self.change_then(step, |_| Ok(()))
    }

    /// Runs a step as [`CorpusFolder::change`] does, then calls `after` while still holding the
    /// lock.
    fn change_then<T>(
        &self,
        step: impl FnOnce(&Corpus) -> Result<(T, Changes), Failure>,
        after: impl FnOnce(&T) -> Result<(), Failure>,
    ) -> Result<T, Failure> {
        let now = self.cli.env.wall()?;
        let _lock = self.lock()?;
        commit::settle(&self.root).map_err(not_committed)?;
        let corpus = read(&self.root.join(FOLDER)).map_err(unreadable)?;
        let (report, changes) = step(&corpus)?;
        let targets = commit::targets(&self.root, &corpus, changes).map_err(not_committed)?;
        let kept =
            self.root.join(NIGHT).join("removed").join(now.strftime("%Y%m%dT%H%M%SZ").to_string());
        commit::keep_removed(&self.root, &kept, &targets).map_err(not_committed)?;
        // Without a run there is no fence; the lock protects the change.
        let free = |_: &RunId, _: Fence| Ok(());
        Commit {
            root: &self.root,
            run: RunId::new(now),
            fence: Fence(0),
            guard: &free,
            number: 0,
            iteration_id: "by-hand".to_owned(),
            started_at: format!("{now:.0}"),
            record: Value::Null,
        }
        .make(targets)
        .map_err(not_committed)?;
        // The next overnight run must still record the commits of a run that died, so only this
        // commit is cleared.
        commit::clear_one(&self.root, 0).map_err(not_committed)?;
        after(&report)?;
        Ok(report)
    }

    /// Returns the facts about the project, including the uses of the corpus's nodes. Uses of a
    /// merged node are credited to the node that replaced it.
    fn facts(&self, corpus: &Corpus, history: &FileHistory) -> Result<Facts, Failure> {
        let git = Git::new(&self.root, &env::child_environment(), &env::marker()?);
        let mut facts = Facts::read(&self.root, &git);
        let uses = facts.learn(&self.root, &env::agent_folders(), corpus);
        uses.merged.clone_from(&history.merged);
        Ok(facts)
    }

    fn history(&self) -> FileHistory {
        commit::history(&self.root)
    }
}

fn unreadable(error: impl std::error::Error) -> Failure {
    Failure::environment(whole(&error))
}

pub(super) fn locked(error: LockError) -> Failure {
    match error {
        LockError::Held { .. } => Failure::later(error.to_string())
            .hint("run the command again after the other run has finished"),
        LockError::Io { .. } => Failure::cannot_write(error.to_string()),
    }
}

fn not_committed(error: CommitError) -> Failure {
    match error {
        CommitError::Before(_) => {
            Failure::cannot_write(error.to_string()).hint("run the command again")
        }
        CommitError::Marker(_) => Failure::cannot_write(error.to_string()),
        CommitError::Unfinished(_) => Failure::cannot_write(error.to_string())
            .hint("free disk space or restore the changed file, then run the command again"),
        CommitError::TakenOver => Failure::later(error.to_string()),
    }
}
