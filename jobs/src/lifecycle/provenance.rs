//! Decides whether runner published an entry or the user adopted it.
//!
//! An entry moves tasks and determines what the next run trusts, so an agent that forges one
//! controls the project. The sandbox prevents agents from writing entries, but a commit, a stash or
//! a restored backup can still bring a forged file into the folder. The database records the digest
//! of each file that runner published. This module must never accept an entry merely because its
//! text is well-formed.

use std::collections::BTreeMap;

use runner_engine::digest::Digest;
use runner_engine::ids::ProjectId;
use runner_engine::store::{Result as StoreResult, Store};
use serde::{Deserialize, Serialize};

use super::manifest::Newest;
use crate::{Context, JobError};

/// The origin of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provenance {
    /// Runner published the entry and its list, or the user adopted them.
    Published,
    /// The database contains no entry by this agent, as in another clone or after the database was
    /// lost.
    Unknown,
    /// The database contains entries by this agent, but not both this entry and its list in their
    /// current form.
    Foreign,
}

impl Provenance {
    /// Looks up the origin of an agent's newest entry.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn of(store: &Store, project: &ProjectId, newest: &Newest) -> StoreResult<Self> {
        let paths: Vec<String> = newest.digests.keys().cloned().collect();
        Ok(Self::compare(&store.published_files(project, &paths)?, newest))
    }

    /// Looks up the origin of an agent's newest entry during a run.
    ///
    /// # Errors
    /// Returns an error if the database cannot be read.
    pub fn in_run(ctx: &Context<'_>, newest: &Newest) -> Result<Self, JobError> {
        // A replay uses a different database.
        ctx.recording.through("provenance", &newest.path, || {
            let store = ctx.spender.store();
            let project = store.run(ctx.admitted.run())?.project;
            Ok(Self::of(store, &project, newest)?)
        })
    }

    /// Compares an entry and its list with the published digests.
    fn compare(published: &BTreeMap<String, Digest>, newest: &Newest) -> Self {
        if !published.contains_key(&newest.list) {
            Self::Unknown
        } else if *published == newest.digests {
            Self::Published
        } else {
            Self::Foreign
        }
    }

    /// Describes why an agent's entry has no effect, or returns `None` if the entry takes effect.
    pub fn describe(self, path: &str, agent: &str) -> Option<String> {
        let why = match self {
            Self::Published => return None,
            Self::Unknown => format!("the database has no record of {path}"),
            Self::Foreign => format!("{path} or its list differs from what runner published"),
        };
        Some(format!("{why}; `{}` shows it and accepts it", adopt_command(agent)))
    }
}

/// Returns the command that shows an agent's entries and accepts them.
pub fn adopt_command(agent: &str) -> String {
    match agent {
        "" => "runner lifecycle adopt".to_owned(),
        agent => format!("runner lifecycle adopt --agent {agent}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_published_pairs_of_list_and_entry_are_accepted() {
        let digest = |text: &str| Digest::of(text.as_bytes());
        let files = |list: &str, entry: &str| {
            BTreeMap::from([("list".to_owned(), digest(list)), ("entry".to_owned(), digest(entry))])
        };
        let newest = Newest::fixture("list", "entry", files("a", "b"));
        for (published, expected) in [
            (files("a", "b"), Provenance::Published),
            (BTreeMap::new(), Provenance::Unknown),
            (files("a", "forged"), Provenance::Foreign),
            (files("restored", "b"), Provenance::Foreign),
            (BTreeMap::from([("list".to_owned(), digest("a"))]), Provenance::Foreign),
            // A published entry has no effect without a published list.
            (BTreeMap::from([("entry".to_owned(), digest("b"))]), Provenance::Unknown),
        ] {
            assert_eq!(Provenance::compare(&published, &newest), expected, "{published:?}");
        }
    }
}
