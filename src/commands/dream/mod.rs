//! `runner dream`: runs the pass manually, and reviews its proposals.

mod decide;
mod list;
mod review;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use runner_engine::git::Git;
use runner_engine::outcome::Exit;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::store::Store;
use runner_jobs::dream::DreamSpec;
use runner_jobs::dream::quarantine::Quarantine;
use runner_jobs::dream::review::{
    Decider, DecisionInput, IfChanged, ProposalItem, Proposals, ProposalsError, ReviewError,
};
use runner_text::redact::Redactor;

use super::{dream_bench, dry_run, run as by_hand};
use crate::commands::args::DreamCommand;
use crate::commands::args::dream::{DreamJobArg, Filter};
use crate::env::{self, Env};
use crate::project::LoadedProject;
use crate::spawn::SpawnMode;
use crate::ui::{Failure, Ui, safe, screen};

/// Carries out one of the `dream` commands.
pub fn run(
    home: &Env,
    here: &Path,
    command: &DreamCommand,
    manner: SpawnMode,
) -> Result<Exit, Failure> {
    match command {
        DreamCommand::Run { max, dry_run: true, which, .. } => {
            let project = LoadedProject::load_for_dry_run(home, here)?;
            let (job, _) = dream_job(&project, which)?;
            let settings = max.map(|max| ("max_ideas".to_owned(), max.to_string()));
            let request = dry_run::DryRunRequest {
                job,
                key: None,
                settings: settings.into_iter().collect(),
                deferral_is_normal: true,
            };
            let cli = super::Cli {
                env: home,
                here,
                folder_is_named: false,
                ui: manner.ui,
                verbose: manner.verbose,
            };
            dry_run::run(&cli, &project, request)
        }
        DreamCommand::Bench { truth, past, .. } => {
            dream_bench::run(home, here, truth, *past, manner.ui)
        }
        DreamCommand::Run { max, retry_parked, dry_run: false, which, .. } => {
            pass(home, here, *max, *retry_parked, which, manner)
        }
        DreamCommand::List { all, filter, which, .. } => {
            list::list(&ReviewContext::open(home, here, which)?, *all, filter, manner.ui)
        }
        DreamCommand::Show { one, .. } => {
            list::show(&mut ReviewContext::open(home, here, &one.which)?, &one.id, manner.ui)
        }
        DreamCommand::Accept { one, note, force, .. } => {
            let how = decide::DecisionArgs::new(&one.id, DecisionInput::Accept, note, force.into());
            decide::decide(ReviewContext::open(home, here, &one.which)?, &how, manner.ui)
        }
        DreamCommand::Reject { one, note, .. } => {
            let how =
                decide::DecisionArgs::new(&one.id, DecisionInput::Reject, note, IfChanged::Refuse);
            decide::decide(ReviewContext::open(home, here, &one.which)?, &how, manner.ui)
        }
        DreamCommand::Skip { one, note, .. } => {
            let how =
                decide::DecisionArgs::new(&one.id, DecisionInput::Skip, note, IfChanged::Refuse);
            decide::decide(ReviewContext::open(home, here, &one.which)?, &how, manner.ui)
        }
        DreamCommand::Amend { one, action, into, note, force, .. } => {
            let verdict = DecisionInput::Amend { action: (*action).into(), into: into.clone() };
            let how = decide::DecisionArgs::new(&one.id, verdict, note, force.into());
            decide::decide(ReviewContext::open(home, here, &one.which)?, &how, manner.ui)
        }
        DreamCommand::Undo { one, force, .. } => {
            let room = ReviewContext::open(home, here, &one.which)?;
            decide::undo(room, &one.id, force.into(), manner.ui)
        }
        DreamCommand::Review { filter, which } => {
            if !screen::there_is_one() {
                return Err(Failure::usage("a review needs a terminal, and this is not one").hint(
                    "runner dream list --json, then runner dream accept|reject|amend|skip ID",
                ));
            }
            review::run(&ReviewContext::open(home, here, which)?, filter)
        }
    }
}

/// Returns the dream job that the arguments name.
fn dream_job<'h>(
    here: &'h LoadedProject,
    which: &DreamJobArg,
) -> Result<(&'h str, &'h DreamSpec), Failure> {
    let dreams: Vec<(&str, &DreamSpec)> = here
        .config
        .jobs
        .iter()
        .filter_map(|(name, job)| Some((name.as_str(), job.spec.kind.of::<DreamSpec>()?)))
        .collect();
    if let Some(wanted) = &which.job {
        here.config.job(wanted)?;
        return dreams
            .into_iter()
            .find(|(name, _)| name == wanted)
            .ok_or_else(|| Failure::usage(format!("{wanted} is not a dream job")));
    }
    match dreams.as_slice() {
        [only] => Ok(*only),
        [] => {
            Err(Failure::configuration("this project has no job of kind dream").hint("runner init"))
        }
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| *name).collect();
            let what = format!("this project has {} dream jobs: {}", names.len(), names.join(", "));
            Err(Failure::usage(what).hint(format!("add --job {}", names[0])))
        }
    }
}

/// Runs one pass now.
fn pass(
    home: &Env,
    here: &Path,
    max: Option<u32>,
    retry_parked: bool,
    which: &DreamJobArg,
    manner: SpawnMode,
) -> Result<Exit, Failure> {
    let project = LoadedProject::load(home, here)?;
    let (job, _) = dream_job(&project, which)?;
    if retry_parked {
        let cache = home.state.join("projects").join(project.id.as_str());
        let path = Quarantine::path(&cache);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let what = format!("cannot remove {}: {error}", path.display());
                return Err(Failure::cannot_write(what));
            }
            _ => {}
        }
    }
    let settings = max.map(|max| ("max_ideas".to_owned(), max.to_string()));
    let how = by_hand::ManualRun {
        manner,
        follow: false,
        deferral_is_normal: true,
        settings: settings.into_iter().collect(),
    };
    by_hand::once(home, &project, job, None, how)
}

/// The project whose proposals are reviewed.
pub(super) struct ReviewContext<'h> {
    home: &'h Env,
    here: LoadedProject,
    spec: DreamSpec,
}

/// The resources that a [`Decider`] needs besides its context.
pub(super) struct Tools {
    store: Store,
    git: Git,
    cache: PathBuf,
    me: ProcessIdentity,
    redactor: Redactor,
    free_bytes: u64,
}

impl<'h> ReviewContext<'h> {
    fn open(home: &'h Env, here: &Path, which: &DreamJobArg) -> Result<Self, Failure> {
        let here = LoadedProject::load(home, here)?;
        let spec = dream_job(&here, which)?.1.clone();
        Ok(Self { home, here, spec })
    }

    /// Reads all proposals as they are now, and prints the files that could not be read.
    fn book(&self, ui: Ui) -> Result<Proposals, Failure> {
        let book = Proposals::read(&self.here.root, &self.spec).map_err(proposals_failure)?;
        for trouble in &book.troubles {
            let (path, why) = (safe::line(&trouble.path), safe::line(&trouble.why));
            ui.info(&format!("runner: not read: {path}: {why}"));
        }
        Ok(book)
    }

    fn tools(&self) -> Result<Tools, Failure> {
        let mut store = self.home.store()?;
        self.here.register(&mut store, self.home.wall()?)?;
        let root = &self.here.root;
        let cache = self.home.state.join("projects").join(self.here.id.as_str());
        fs::create_dir_all(&cache).map_err(|error| {
            Failure::cannot_write(format!("cannot make {}: {error}", cache.display()))
        })?;
        let free = rustix::fs::statvfs(root)
            .map_err(|error| Failure::environment(format!("{}: {error}", root.display())))?;
        Ok(Tools {
            store,
            git: Git::new(root, &env::child_environment(), &env::marker()?),
            cache,
            me: ProcessIdentity::me(),
            redactor: Redactor::new(Vec::new()),
            free_bytes: free.f_bavail.saturating_mul(free.f_frsize),
        })
    }

    fn desk<'d>(&'d self, tools: &'d mut Tools) -> Decider<'d> {
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

/// Reports whether a proposal passes the filter.
pub(super) fn wanted(item: &ProposalItem, filter: &Filter) -> bool {
    let proposal = &item.proposal;
    filter.status.is_none_or(|it| proposal.status == it.into())
        && filter.action.is_none_or(|it| proposal.action == it.into())
        && filter.confidence.is_none_or(|it| proposal.confidence == it.into())
        && filter.text.as_deref().is_none_or(|text| holds(item, text))
}

/// Reports whether a proposal contains a text, ignoring case.
pub(super) fn holds(item: &ProposalItem, text: &str) -> bool {
    let text = text.to_lowercase();
    let proposal = &item.proposal;
    let words = [&proposal.id, &proposal.evidence, &proposal.rationale];
    let mut all = proposal.targets.iter().chain(words);
    all.any(|words| words.to_lowercase().contains(&text))
}

fn proposals_failure(error: ProposalsError) -> Failure {
    Failure::environment(safe::line(&runner_engine::error_chain::whole(&error)))
}

pub(super) fn failure(error: ReviewError) -> Failure {
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
            .hint("look at it again (`runner dream show`), then repeat with --force, or wait for the next pass"),
        ReviewError::Changed(_) => {
            Failure::later(what).hint("look at the file, then repeat with --force")
        }
        ReviewError::Busy(_) => Failure::later(what).hint("run the command again when the other review is done"),
        ReviewError::Cannot(_) => Failure::data(what),
        ReviewError::Guard(_) => Failure::refused(what),
        ReviewError::Conflict(_) => Failure::refused(what)
            .hint("compare the current file with the kept copy, and resolve the difference manually"),
        ReviewError::Unfinished { .. } => Failure::cannot_write(what).hint("runner tick"),
        ReviewError::State { path, .. } => Failure::data(what).hint(format!("mv {path} {path}.bad")),
        ReviewError::Disk(_) => Failure::cannot_write(what),
        ReviewError::Git(_) => Failure::environment(what),
        ReviewError::Internal(_) => Failure::internal(what),
    }
}
