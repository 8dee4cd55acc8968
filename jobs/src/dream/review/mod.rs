//! The dream's human side: what is proposed, what a person decides, and what then becomes of ideas.
//!
//! ```text
//! dreams/*/proposals.json ─┐
//! dreams/ledger.md ────────┼─ book ──> undecided, newest first ──(a person)──> verdict
//! the ideas as they are ───┘                                                     │
//!                              ┌──────────────── plan (pure) <───────────────────┘
//!                              ▼
//!   one publication: backup, new files, removals, state.json, the decision's line at the very end
//! ```
//!
//! **An act is a run.** It is a person's and takes milliseconds, so a log of publications of its own
//! was weighed: a file of manifests under the state folder, with a recovery that some command calls.
//! That would be a second journal beside the one in the house, with its own rules for what a dead
//! process leaves. Instead each act enters an occurrence manually of the project's job
//! [`JOB`], is admitted with a budget of nothing, places, and is settled, all in the process that
//! was asked and under that job's deciding lock. So the database has the manifest, every tick rolls a
//! half-done act forward by the code that does so for all runs, and `runner runs show` tells what a
//! decision did. The job is in no file, so no clock, queue or retry starts it, and lists of runs
//! leave it out unless asked. It must never be performed by another process: who decides is there.
//!
//! **It takes no pass lock** (contracts/dream.md, rule 9). A pass and an act meet in two files:
//! `state.json`, which both write, and the ideas. The lock at [`files_lock`] is held by an act for
//! its whole short time and by a pass from its last look at the ideas until it is placed; nobody
//! asks a model under it. Whoever does not get it goes on all the same: every file that is replaced
//! or removed must still hold what was read (`Expect::Digest`), or nothing is placed.
//!
//! Must never decide, never touch what is tracked by git, canonical or behind a link, never take
//! text from where git ignores it to where git does not, and never remove a byte of an idea that is
//! not in a backup, in the archive, in a spec or in another idea.

mod backup;
mod decide;
mod guard;
mod plan;
mod proposals;
mod publish;
mod undo;

use std::path::{Path, PathBuf};

pub use backup::BACKUPS;
pub use decide::{AppliedDecision, Decider, DecisionInput, DecisionRequest, ReviewError};
pub use plan::{ActionPlan, FileChange, LineKind, MARKER, PreviewLine, Source, plan};
pub use proposals::{ProposalItem, Proposals, ProposalsError, Stale};

/// The job of all acts of a project; no configured job can have this name.
pub const JOB: &str = "dream:review";
/// Its kind.
pub const KIND: &str = "act";

/// The lock on a project's dream files, in its cache folder.
pub fn files_lock(cache: &Path) -> PathBuf {
    cache.join("dream-files.lock")
}
