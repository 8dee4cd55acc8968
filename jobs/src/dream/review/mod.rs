//! The human side of the dream: the proposals, a person's decisions on them, and the resulting
//! changes to ideas.
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
//! **An act is a run.** An act is made by a person and takes milliseconds, so a separate log of
//! publications was considered: a file of manifests under the state folder, with a recovery that
//! some command calls. That would be a second journal beside the existing one, with its own rules
//! for the remains of a dead process. Instead, each act manually enters an occurrence of the
//! project's job [`JOB`], is admitted with an empty budget, publishes and is settled. All of this
//! happens in the process that was asked, under that job's deciding lock. The database therefore
//! has the manifest, every tick rolls a partly published act forward with the code that does so for
//! all runs, and `runner runs show` reports what a decision did. The job is in no file, so no
//! clock, queue or retry starts it, and lists of runs leave it out unless asked. Another process
//! must never perform an act, because the person who decides is present in this one.
//!
//! **An act takes no pass lock** (contracts/dream.md, rule 9). A pass and an act share two kinds of
//! files: `state.json`, which both write, and the ideas. An act holds the lock at [`files_lock`]
//! for its whole short duration; a pass holds it from its last check of the ideas until its
//! publication. Neither asks a model under the lock. A process that does not get the lock goes on
//! all the same: every file that is replaced or removed must still have the content that was read
//! (`Expect::Digest`), or nothing is published.
//!
//! This module must never decide, never touch a file that is tracked by git, canonical or behind a
//! link, never take text from a path that git ignores to one that git does not ignore, and never
//! remove a byte of an idea that is not in a backup, in the archive, in a spec or in another idea.

mod backup;
mod decide;
mod guard;
mod plan;
mod proposals;
mod publish;
mod undo;

use std::path::{Path, PathBuf};

pub use backup::BACKUPS;
pub use decide::{
    AppliedDecision, Decider, DecisionInput, DecisionRequest, IfChanged, ReviewError,
};
pub use plan::{ActionPlan, FileChange, LineKind, MARKER, PreviewLine, Source, plan};
pub use proposals::{ProposalItem, Proposals, ProposalsError, Stale};

/// The job name of all acts of a project. No configured job can have this name.
pub const JOB: &str = "dream:review";
/// The kind of that job.
pub const KIND: &str = "act";

/// Returns the path of the lock on a project's dream files, in its cache folder.
pub fn files_lock(cache: &Path) -> PathBuf {
    cache.join("dream-files.lock")
}
