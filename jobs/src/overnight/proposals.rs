//! Proposals to retire nodes from a corpus, for the user to decide on.
//!
//! ```text
//! a night suggests ──> open ──accept──> accepted ──undo──> open
//!                       └─────reject──> rejected ──undo──> open
//! ```
//!
//! The proposals are stored in `.agents/overnight/proposals.jsonl`, one per line. An accepted
//! proposal contains the node's previous text, so it can be undone. It is stored before its node is
//! changed. If the process dies between these two steps, the node still has its previous text, and
//! the proposal is reopened. After a decision about a node, no further decision is requested until
//! the node's text changes. This module must never change the corpus; `accept` and `undo` return
//! the changes.

use std::path::Path;

use runner_engine::digest::Digest;
use runner_engine::files::{DOCUMENT, beneath, read_in, write_atomic};
use runner_text::front_matter::edit;
use serde::{Deserialize, Serialize};

use super::corpus::defrag::{Options, RetireReason, Suggestion};
use super::corpus::work::short_hash;
use super::corpus::{Changes, Corpus};
use super::lock::FOLDER;

/// The name of the file inside the overnight folder.
pub const FILE: &str = "proposals.jsonl";
/// Maximum number of open proposals. Later nights propose the rest.
const MOST: usize = 200;

/// The decision on a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Decision {
    Open,
    Accepted {
        at: String,
        /// The text of the node before it was retired.
        before: String,
    },
    Rejected {
        at: String,
    },
}

/// A proposal to retire a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorpusProposal {
    pub id: String,
    /// The path of the node, relative to `.agents`.
    pub path: String,
    pub reason: RetireReason,
    /// The better node, for a duplicate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    pub why: String,
    /// The node's text when the proposal was made or, once the proposal is accepted, after the node
    /// was retired.
    pub text: String,
    /// The run that made the proposal.
    pub run_id: String,
    pub created_at: String,
    #[serde(flatten)]
    pub decision: Decision,
}

impl CorpusProposal {
    /// Returns the front matter field that retires the node.
    fn field(&self) -> &'static str {
        match self.reason {
            RetireReason::Duplicate => "superseded_by",
            RetireReason::Stale | RetireReason::Failed | RetireReason::Oscillating => "status",
        }
    }
}

/// Why the proposals could not be read or written, or a decision was refused.
#[derive(Debug, thiserror::Error)]
pub enum ProposalError {
    #[error("cannot read or write {FOLDER}/{FILE}: {0}")]
    Io(#[from] std::io::Error),
    #[error("line {0} of {FOLDER}/{FILE} is not a proposal: {1}")]
    Damaged(usize, String),
    #[error("there is no proposal {0:?}")]
    Unknown(String),
    #[error("proposal {0} was already decided")]
    Decided(String),
    #[error("proposal {0} has no decision to undo")]
    NotDecided(String),
    #[error("{0} has changed since the proposal was made")]
    Changed(String),
    #[error(
        "{path} has changed since proposal {id} was accepted, and restoring its earlier text would \
         discard the changes"
    )]
    Edited {
        id: String,
        path: String,
        /// The field that retired the node.
        field: &'static str,
    },
    #[error("the front matter of {0} cannot be edited safely")]
    Uneditable(String),
}

/// The proposals for a corpus, in the order they were made.
#[derive(Clone, Debug, Default)]
pub struct Proposals(pub Vec<CorpusProposal>);

impl Proposals {
    /// Reads the proposals, or returns none if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or contains a line that is not a proposal.
    pub fn read(root: &Path) -> Result<Self, ProposalError> {
        let bytes = match read_in(root, Path::new(FOLDER).join(FILE), DOCUMENT) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(error.into()),
        };
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let parse = |(at, line): (usize, &str)| {
            serde_json::from_str(line)
                .map_err(|error| ProposalError::Damaged(at + 1, error.to_string()))
        };
        lines.map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// Writes the proposals, completely or not at all.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, root: &Path) -> Result<(), ProposalError> {
        let mut text = String::new();
        for one in &self.0 {
            text.push_str(&serde_json::to_string(one).map_err(std::io::Error::from)?);
            text.push('\n');
        }
        let path = beneath(root, &Path::new(FOLDER).join(FILE))?;
        write_atomic(&path, text.as_bytes(), 0o644).map_err(|error| error.source)?;
        Ok(())
    }

    /// Returns the open proposals.
    pub fn open(&self) -> impl Iterator<Item = &CorpusProposal> {
        self.0.iter().filter(|one| one.decision == Decision::Open)
    }

    /// Reopens the accepted proposals whose nodes were not changed.
    fn reopen_ineffective(&mut self, corpus: &Corpus) {
        for one in &mut self.0 {
            if let Decision::Accepted { before, .. } = &one.decision
                && corpus.at(&one.path).is_some_and(|node| node.text == *before)
            {
                one.text.clone_from(before);
                one.decision = Decision::Open;
            }
        }
    }

    /// Replaces the open proposals with proposals based on `suggestions`, and returns the number of
    /// new ones. Open proposals whose reason `options` excludes are kept. A suggestion that was
    /// already decided on is left out until the node's text changes.
    pub fn update(
        &mut self,
        corpus: &Corpus,
        suggestions: &[Suggestion],
        options: Options,
        (run_id, at): (&str, &str),
    ) -> usize {
        self.reopen_ineffective(corpus);
        let mut fresh: Vec<CorpusProposal> = Vec::new();
        let mut added = 0;
        for one in suggestions {
            let Some(node) = corpus.at(&one.path) else { continue };
            let id = format!("retire-{}", short_hash(&format!("{} {}", one.path, node.digest)));
            let known = self.0.iter().find(|it| it.id == id);
            match known {
                Some(known) if known.decision != Decision::Open => continue,
                _ if fresh.len() >= MOST => continue,
                Some(known) => fresh.push(known.clone()),
                None => {
                    added += 1;
                    fresh.push(CorpusProposal {
                        id,
                        path: one.path.clone(),
                        reason: one.reason,
                        of: one.of.clone(),
                        why: one.why.clone(),
                        text: node.text.clone(),
                        run_id: run_id.to_owned(),
                        created_at: at.to_owned(),
                        decision: Decision::Open,
                    });
                }
            }
        }
        self.0.retain(|one| {
            let renewed = fresh.iter().any(|it| it.id == one.id);
            one.decision != Decision::Open || (!options.looks_for(one.reason) && !renewed)
        });
        self.0.extend(fresh);
        added
    }

    fn position(&self, id: &str) -> Result<usize, ProposalError> {
        let found = self.0.iter().position(|one| one.id == id);
        found.ok_or_else(|| ProposalError::Unknown(id.to_owned()))
    }

    /// Accepts a proposal and returns the changes that retire its node.
    ///
    /// # Errors
    /// Returns an error if the proposal does not exist or was already decided, if its node has
    /// changed or cannot be edited, or if the better node of a duplicate no longer exists.
    pub fn accept(
        &mut self,
        corpus: &Corpus,
        id: &str,
        at: &str,
    ) -> Result<Changes, ProposalError> {
        self.reopen_ineffective(corpus);
        let position = self.position(id)?;
        let one = &mut self.0[position];
        if one.decision != Decision::Open {
            return Err(ProposalError::Decided(id.to_owned()));
        }
        let node = corpus.at(&one.path).filter(|node| node.text == one.text);
        let node = node.ok_or_else(|| ProposalError::Changed(one.path.clone()))?;
        let better = one.of.as_ref().and_then(|of| corpus.at(of));
        let text = match (one.reason, better) {
            (RetireReason::Duplicate, None) => {
                let of = one.of.clone().unwrap_or_default();
                return Err(ProposalError::Changed(of));
            }
            (RetireReason::Duplicate, Some(better)) => {
                edit::set(&node.text, one.field(), &better.id)
            }
            _ => edit::set(&node.text, one.field(), "retired"),
        };
        let text = text.ok_or_else(|| ProposalError::Uneditable(one.path.clone()))?;
        one.decision = Decision::Accepted { at: at.to_owned(), before: node.text.clone() };
        let path = one.path.clone();
        one.text.clone_from(&text);
        Ok(Changes::from([(path, Some(text.into_bytes()))]))
    }

    /// Rejects a proposal.
    ///
    /// # Errors
    /// Returns an error if the proposal does not exist or was already decided.
    pub fn reject(&mut self, corpus: &Corpus, id: &str, at: &str) -> Result<(), ProposalError> {
        self.reopen_ineffective(corpus);
        let position = self.position(id)?;
        let one = &mut self.0[position];
        if one.decision != Decision::Open {
            return Err(ProposalError::Decided(id.to_owned()));
        }
        one.decision = Decision::Rejected { at: at.to_owned() };
        Ok(())
    }

    /// Reopens a proposal, and returns the changes that restore its node if it was accepted.
    ///
    /// # Errors
    /// Returns an error if the proposal does not exist or is open, or if it was accepted and its
    /// node has changed since then.
    pub fn undo(&mut self, corpus: &Corpus, id: &str) -> Result<Changes, ProposalError> {
        let position = self.position(id)?;
        let one = &mut self.0[position];
        let changes = match &one.decision {
            Decision::Open => return Err(ProposalError::NotDecided(id.to_owned())),
            Decision::Rejected { .. } => Changes::new(),
            Decision::Accepted { before, .. } => {
                let now = corpus.at(&one.path).map(|node| node.digest);
                // The node already has its previous text if an earlier undo died before it stored
                // the reopened proposal.
                let known = [&one.text, before].map(|text| Some(Digest::of(text.as_bytes())));
                if !known.contains(&now) {
                    let (id, path) = (id.to_owned(), one.path.clone());
                    return Err(ProposalError::Edited { id, path, field: one.field() });
                }
                let before = before.clone();
                one.text.clone_from(&before);
                Changes::from([(one.path.clone(), Some(before.into_bytes()))])
            }
        };
        one.decision = Decision::Open;
        Ok(changes)
    }
}
