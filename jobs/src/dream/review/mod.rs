//! Lists a dream job's proposals, records the user's decisions on them, and makes the resulting
//! changes to ideas.
//!
//! ```text
//! dreams/*/proposals.json ─┐
//! dreams/ledger.md ────────┼─ list ──> undecided, newest first ──(a person)──> verdict
//! the ideas as they are ───┘                                                     │
//!                              ┌──────────────── plan (pure) <───────────────────┘
//!                              ▼
//!   one publication: backup, new files, removals, state.json, the decision's line at the very end
//! ```
//!
//! **An act is a run.** An act carries out or undoes one decision. A publication log for acts would
//! be a second journal, with its own rules for recovery after a crash. Instead, each act enters a
//! manual occurrence of the project's job [`JOB`], is admitted with an empty budget, publishes and
//! is settled. All of this happens in the process that the user started, under that job's lock. The
//! database therefore contains the manifest, every tick rolls a partly published act forward with
//! the same code as any other run, and `runner runs show` reports the effects of a decision. No
//! configuration file declares the job, so no schedule, queue or retry starts it, and run lists
//! include it only on request. No background process may perform an act, because the user is
//! waiting for it.
//!
//! **An act takes no pass lock.** A pass and an act share two kinds of files: `state.json`, which
//! both write, and the ideas. An act holds the lock at [`files_lock`] from start to finish; a pass
//! holds it from its last check of the ideas until it has published. Neither calls a model while
//! holding the lock. An act that cannot take the lock continues without it, because an act
//! publishes nothing unless every file that it replaces or removes still has the content that was
//! read (`Expect::Digest`).
//!
//! An act edits the work tree as the user would: it stages and commits nothing, even if git tracks
//! the idea. A later pass recognizes these edits by the digests in the backups ([`own_edits`]), so
//! they do not defer the pass unless the setting `dirty` is `strict`.
//!
//! This module must never decide for the user, and never touch a file that is canonical or reached
//! through a link. It must never put text from a private idea into a path that git does not ignore
//! without the user's consent, and never remove content from an idea unless that content is in a
//! backup, in the archive, in a spec or in another idea.

mod backup;
mod decide;
mod guard;
mod likes;
mod passages;
mod plan;
mod proposals;
mod publish;
mod undo;

use std::path::{Path, PathBuf};

pub use backup::{BACKUPS, own_edits};
pub use decide::{
    AppliedDecision, Consent, Decider, DecisionInput, DecisionRequest, IfChanged, IfExposed,
    ReviewError,
};
pub use guard::Privacy;
pub use likes::{LikeDecisions, PastDecisions};
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
