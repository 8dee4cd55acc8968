//! Opens the project whose proposals are reviewed, and converts a review's errors into failures.

use std::fs;
use std::path::PathBuf;

use runner_engine::git::Git;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::Store;
use runner_jobs::dream::DreamSpec;
use runner_jobs::dream::review::{Decider, PastDecisions, Proposals, ProposalsError, ReviewError};
use runner_text::redact::Redactor;
use runner_text::shell_word;

use super::{DreamJobArg, dream_job};
use crate::commands::Cli;
use crate::env::{self, Env};
use crate::filesystem;
use crate::project::LoadedProject;
use crate::ui::{Failure, safe, show};

/// The project whose proposals are reviewed.
pub(in crate::commands) struct ReviewContext<'h> {
    home: &'h Env,
    here: LoadedProject,
    spec: DreamSpec,
}

/// The resources that a [`Decider`] needs in addition to the [`ReviewContext`].
pub(in crate::commands) struct Tools {
    store: Store,
    git: Git,
    cache: PathBuf,
    me: ProcessIdentity,
    redactor: Redactor,
    free_bytes: u64,
}

impl<'h> ReviewContext<'h> {
    pub(in crate::commands) fn open(cli: &Cli<'h>, which: &DreamJobArg) -> Result<Self, Failure> {
        let here = LoadedProject::load(cli.env, cli.here)?;
        let spec = dream_job(&here, which)?.1.clone();
        Ok(Self { home: cli.env, here, spec })
    }

    /// Reads the current proposals and ranks them by the user's past decisions.
    pub(in crate::commands) fn read(&self) -> Result<Proposals, Failure> {
        let read = Proposals::read(&self.here.root, &self.spec);
        let mut proposals = read.map_err(proposals_failure)?;
        proposals.rank(&self.past(&proposals)?);
        Ok(proposals)
    }

    /// Returns the user's recent decisions.
    pub(in crate::commands) fn past(
        &self,
        proposals: &Proposals,
    ) -> Result<PastDecisions, Failure> {
        Ok(PastDecisions::of(proposals, self.home.wall()?))
    }

    /// Reads and ranks the proposals, and reports the files that could not be read.
    pub(in crate::commands) fn proposals(&self) -> Result<Proposals, Failure> {
        let proposals = self.read()?;
        for trouble in &proposals.troubles {
            let (path, why) = (safe::line(&trouble.path), safe::line(&trouble.why));
            show::notice(&format!("runner: cannot read {path}: {why}"));
        }
        Ok(proposals)
    }

    /// Registers the project, and returns the resources for a decision.
    pub(in crate::commands) fn tools(&self) -> Result<Tools, Failure> {
        let mut store = self.home.store()?;
        self.here.register(&mut store, self.home.wall()?)?;
        self.tools_with(store)
    }

    /// Returns the resources for a preview. An existing database is only read; a missing one is
    /// created.
    pub(in crate::commands) fn tools_to_preview(&self) -> Result<Tools, Failure> {
        match self.home.store_to_identify()? {
            Some(store) => self.tools_with(store),
            None => self.tools(),
        }
    }

    fn tools_with(&self, store: Store) -> Result<Tools, Failure> {
        let root = &self.here.root;
        let cache = self.home.cache_folder(&self.here.id);
        fs::create_dir_all(&cache).map_err(|error| Failure::not_made(&cache, error))?;
        Ok(Tools {
            store,
            git: Git::new(root, &env::child_environment(), &env::marker()?),
            cache,
            me: ProcessIdentity::me(),
            redactor: Redactor::new(Vec::new()),
            free_bytes: filesystem::free_bytes(root)?,
        })
    }

    pub(in crate::commands) fn decider<'d>(&'d self, tools: &'d mut Tools) -> Decider<'d> {
        Decider {
            root: &self.here.root,
            spec: &self.spec,
            project: &self.here.id,
            state: &self.home.state,
            cache: &tools.cache,
            git: &tools.git,
            clock: &self.home.clock,
            me: &tools.me,
            store: &mut tools.store,
            redactor: &tools.redactor,
            free_bytes: tools.free_bytes,
        }
    }
}

fn proposals_failure(error: ProposalsError) -> Failure {
    Failure::environment(safe::line(&runner_engine::error_chain::whole(&error)))
}

pub(in crate::commands) fn failure(error: ReviewError) -> Failure {
    let what = safe::line(&runner_engine::error_chain::whole(&error));
    match error {
        ReviewError::Ledger(error) => error.into(),
        ReviewError::Book(error) => proposals_failure(error),
        ReviewError::NotFound(_) => Failure::data(what).hint("runner dream list --all"),
        ReviewError::Several { .. } => Failure::data(what).hint("give more characters of the id"),
        ReviewError::Decided(before) => {
            Failure::later(what).hint(format!("runner dream undo {}", before.proposal_id))
        }
        ReviewError::Stale { .. } => Failure::later(what)
            .hint("review the proposal again (`runner dream show`), then repeat the command with --force, or wait for the next pass"),
        ReviewError::Changed(_) => {
            Failure::later(what).hint("inspect the file, then repeat the command with --force")
        }
        ReviewError::Busy(_) => Failure::later(what).hint("run the command again after the other review has ended"),
        ReviewError::Cannot(_) => Failure::data(what),
        ReviewError::Guard(_) | ReviewError::Exposed { .. } => Failure::refused(what),
        ReviewError::Conflict(_) => Failure::refused(what)
            .hint("compare the current file with the kept copy, and resolve the difference manually"),
        ReviewError::Unfinished { .. } => Failure::cannot_write(what).hint("runner tick"),
        ReviewError::State { path, .. } => Failure::data(what).hint(format!("mv {0} {0}.bad", shell_word(path))),
        ReviewError::Disk(_) => Failure::cannot_write(what),
        ReviewError::Git(_) => Failure::environment(what),
    }
}
