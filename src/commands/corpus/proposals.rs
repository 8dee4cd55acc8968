//! `runner corpus proposals`, `accept`, `reject` and `undo`: decisions about nodes to retire.

use jiff::Timestamp;
use runner_engine::outcome::Exit;
use runner_jobs::overnight::corpus::defrag::{Options, Suggestion};
use runner_jobs::overnight::corpus::{Changes, Corpus, FOLDER};
use runner_jobs::overnight::proposals::{CorpusProposal, Decision, ProposalError, Proposals};
use serde::Serialize;

use super::CorpusFolder;
use crate::ui::{Failure, Ui, View, safe, show};

/// Maximum number of lines of each node's text that the list shows.
const LINES: usize = 8;

#[derive(Serialize)]
#[serde(transparent)]
struct OpenProposals(Vec<CorpusProposal>);

impl View for OpenProposals {
    fn print(&self, _ui: Ui) {
        let mut text = String::new();
        for one in &self.0 {
            text.push_str(&format!("{}  {}\n", one.id, safe::line(&one.path)));
            text.push_str(&format!("  {}\n", safe::line(&one.why)));
            for line in one.text.lines().filter(|line| !line.trim().is_empty()).take(LINES) {
                text.push_str(&format!("  | {}\n", safe::line(line)));
            }
        }
        match self.0.is_empty() {
            true => text.push_str("no proposal is open\n"),
            false => {
                text.push_str("decide with: runner corpus accept ID, or runner corpus reject ID\n")
            }
        }
        show::out(&text);
    }
}

/// Lists the open proposals.
pub fn list(folder: &CorpusFolder<'_>) -> Result<Exit, Failure> {
    let all = Proposals::read(&folder.root).map_err(refused)?;
    folder.cli.ui.show(&OpenProposals(all.open().cloned().collect()));
    Ok(Exit::Done)
}

/// Accepts a proposal and retires its node.
pub fn accept(folder: &CorpusFolder<'_>, id: &str) -> Result<Exit, Failure> {
    decide(folder, id, "accepted", |all, corpus, now| all.accept(corpus, id, &format!("{now:.0}")))
}

/// Rejects a proposal.
pub fn reject(folder: &CorpusFolder<'_>, id: &str) -> Result<Exit, Failure> {
    decide(folder, id, "rejected", |all, corpus, now| {
        all.reject(corpus, id, &format!("{now:.0}")).map(|()| Changes::new())
    })
}

/// Reopens a proposal, and restores its node if the proposal was accepted.
pub fn undo(folder: &CorpusFolder<'_>, id: &str) -> Result<Exit, Failure> {
    decide(folder, id, "open again", |all, corpus, _| all.undo(corpus, id))
}

/// Returns the proposals, including those derived from `suggestions`. The caller must hold the
/// lock.
pub fn updated(
    folder: &CorpusFolder<'_>,
    corpus: &Corpus,
    suggestions: &[Suggestion],
    options: Options,
) -> Result<Proposals, Failure> {
    let at = format!("{:.0}", folder.cli.env.wall()?);
    let mut all = Proposals::read(&folder.root).map_err(refused)?;
    all.update(corpus, suggestions, options, ("by-hand", &at));
    Ok(all)
}

pub fn write(folder: &CorpusFolder<'_>, all: &Proposals) -> Result<(), Failure> {
    all.write(&folder.root).map_err(refused)
}

/// Makes a decision and stores it under the lock. An accepted proposal contains its node's previous
/// text, so the file with the proposals is written before a node is retired, and after a node is
/// restored. If a crash separates the two writes, the decision can be made again.
fn decide(
    folder: &CorpusFolder<'_>,
    id: &str,
    verb: &str,
    decision: impl FnOnce(&mut Proposals, &Corpus, Timestamp) -> Result<Changes, ProposalError>,
) -> Result<Exit, Failure> {
    let now = folder.cli.env.wall()?;
    let is_open =
        |all: &Proposals| all.0.iter().any(|one| one.id == id && one.decision == Decision::Open);
    let step = |corpus: &Corpus| {
        let mut all = Proposals::read(&folder.root).map_err(refused)?;
        let changes = decision(&mut all, corpus, now).map_err(refused)?;
        if !is_open(&all) {
            all.write(&folder.root).map_err(refused)?;
        }
        Ok((all, changes))
    };
    folder.change_then(step, |all| match is_open(all) {
        true => all.write(&folder.root).map_err(refused),
        false => Ok(()),
    })?;
    folder.cli.ui.info(&format!("{id} is {verb}"));
    Ok(Exit::Done)
}

fn refused(error: ProposalError) -> Failure {
    let what = error.to_string();
    match error {
        ProposalError::Edited { path, field, .. } => Failure::later(what)
            .hint(format!("edit {FOLDER}/{path} and remove or restore the field {field}")),
        ProposalError::Io(_) => Failure::cannot_write(what),
        ProposalError::Damaged(..) => {
            Failure::data(what).hint("repair or remove the line, then run the command again")
        }
        ProposalError::Unknown(_) | ProposalError::NotDecided(_) => {
            Failure::usage(what).hint("runner corpus proposals")
        }
        ProposalError::Decided(id) => Failure::usage(what).hint(format!("runner corpus undo {id}")),
        ProposalError::Changed(_) | ProposalError::Uneditable(_) => {
            Failure::later(what).hint("runner corpus defrag --apply")
        }
    }
}
