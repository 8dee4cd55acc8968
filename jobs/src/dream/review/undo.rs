//! Undoes a decision: restores every file to its content before the decision, byte for byte.
//!
//! ```text
//! current content        no file before    a file before
//! as the act left it     remove            restore
//! as before the act      –                 –
//! changed since          leave (forced)    back up, then restore (forced)
//! ```
//!
//! An undo is a separate act: one publication, with a backup of the content that it replaces or
//! removes. That content can therefore be recovered after a mistaken undo.

use runner_engine::digest::Digest;
use runner_engine::publish::{PublishFs as _, RealFs, RelPath};
use runner_engine::scope::Scope;
use serde_json::json;

use super::super::LONGEST;
use super::super::decisions::{Decision, UNDONE};
use super::super::inventory::Reader;
use super::super::state::Mark;
use super::backup::{self, ChangedFile, DecisionRecord};
use super::decide::{AppliedDecision, Decider, IfChanged, IfExposed, ReviewError, source};
use super::plan::{ActionPlan, FileChange, LineKind, PreviewLine, Source};
use super::proposals;

impl Decider<'_> {
    /// Undoes the decision in effect for a proposal.
    ///
    /// # Errors
    /// Returns [`ReviewError::Changed`] if a file has changed since the decision and `if_changed`
    /// is `Refuse`, and any other [`ReviewError`] if the undo fails.
    pub fn undo(
        &mut self,
        id: &str,
        if_changed: IfChanged,
    ) -> Result<AppliedDecision, ReviewError> {
        let mut held = self.take_locks()?;
        let mut tries = 0;
        loop {
            tries += 1;
            let before = self.decision(id)?;
            let now = self.now()?;
            let plan = match self.act(&before)? {
                Some((folder, act)) => self.back(&folder, &act, if_changed, &before)?,
                None if acted(&before) => {
                    let why = format!(
                        "there is no backup for the decision on {} at {}",
                        before.proposal_id, before.at
                    );
                    return Err(ReviewError::Cannot(why));
                }
                None => ActionPlan {
                    says: format!("{} can be decided again", before.proposal_id),
                    ..ActionPlan::default()
                },
            };
            let mut plan = plan;
            for (_, mark) in &mut plan.marks {
                mark.happened["at"] = now.to_string().into();
            }
            let decision =
                Decision { decision: UNDONE.to_owned(), at: now.to_string(), note: None, ..before };
            // An undo only restores text at its earlier path, so nothing new is exposed.
            match self.place(&mut held, &plan, &decision, IfExposed::Publish) {
                Ok(run) => {
                    let changes = plan.changes.iter().map(|it| it.path().to_owned()).collect();
                    return Ok(AppliedDecision {
                        decision,
                        says: plan.says,
                        changes,
                        already: false,
                        run: Some(run),
                    });
                }
                Err(ReviewError::Changed(_)) if tries == 1 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the decision in effect on the proposal with this id, or on the only decided proposal
    /// whose id begins with `id`.
    fn decision(&self, id: &str) -> Result<Decision, ReviewError> {
        let reader = Reader::open(self.root, LONGEST).map_err(proposals::ProposalsError::from)?;
        let decisions = proposals::decisions(&reader, self.spec)?;
        if let Some(found) = decisions.of(id, None) {
            return Ok(found.clone());
        }
        let found: Vec<String> = decisions.ids(id).map(str::to_owned).collect();
        match found.as_slice() {
            [only] if !id.is_empty() => {
                Ok(decisions.of(only, None).expect("only ids with a decision were listed").clone())
            }
            [] | [_] => Err(ReviewError::NotFound(format!("{id} with a decision"))),
            _ => Err(ReviewError::Several { id: id.to_owned(), found }),
        }
    }

    /// Returns the folder and the record of a decision's backup, or `None` if the decision has no
    /// backup.
    fn act(&self, decision: &Decision) -> Result<Option<(String, DecisionRecord)>, ReviewError> {
        if !proposals::good_id(&decision.proposal_id) {
            return Ok(None);
        }
        let folder = backup::folder(self.spec, &decision.proposal_id);
        let fs = RealFs::open(self.root).map_err(proposals::ProposalsError::from)?;
        let rel = RelPath::new(&folder).map_err(|bad| ReviewError::Guard(bad.to_string()))?;
        let mut runs = fs.list(&rel).map_err(proposals::ProposalsError::from)?.unwrap_or_default();
        // Run ids sort by time, so the descending order is newest first.
        runs.sort_unstable_by(|a, b| b.cmp(a));
        let reader = Reader::open(self.root, LONGEST).map_err(proposals::ProposalsError::from)?;
        for run in runs {
            let folder = format!("{folder}/{run}");
            let Ok((bytes, _)) = reader.read(&format!("{folder}/act.json")) else {
                continue;
            };
            let act: DecisionRecord = serde_json::from_slice(&bytes)
                .map_err(|error| ReviewError::Cannot(format!("{folder}/act.json: {error}")))?;
            if act.decision.at == decision.at && act.decision.decision == decision.decision {
                return Ok(Some((folder, act)));
            }
        }
        Ok(None)
    }

    /// Plans the changes that restore the state before an act.
    fn back(
        &self,
        folder: &str,
        act: &DecisionRecord,
        if_changed: IfChanged,
        before: &Decision,
    ) -> Result<ActionPlan, ReviewError> {
        let scope = self.read_scope()?;
        let mut plan = ActionPlan::default();
        // Files are restored before other files are removed, so that every text always has a copy.
        let (mut comes, mut goes) = (Vec::new(), Vec::new());
        for touched in &act.changes {
            proposals::idea(&touched.path, self.spec)
                .or_else(|why| self.own_place(&touched.path).then_some(()).ok_or(why))
                .map_err(ReviewError::Guard)?;
            match self.one_back(&scope, folder, touched, if_changed)? {
                Some(change @ FileChange::Put { .. }) => comes.push(change),
                Some(change @ FileChange::Remove(_)) => goes.push(change),
                None => {}
            }
        }
        plan.changes = comes;
        plan.changes.append(&mut goes);
        for stood in &act.state {
            let happened = json!({
                "at": "", "proposal_id": before.proposal_id,
                "decision": UNDONE, "action": before.action,
            });
            let mark = Mark {
                status: stood.status.clone().unwrap_or_else(|| "active".to_owned()),
                hash: Some(stood.hash.map_or_else(String::new, |hash| hash.to_string())),
                happened,
            };
            plan.marks.push((stood.path.clone(), mark));
        }
        let back: Vec<&str> = plan
            .changes
            .iter()
            .filter_map(|change| match change {
                FileChange::Put { path, .. } => Some(path.as_str()),
                FileChange::Remove(_) => None,
            })
            .collect();
        plan.says = match back.as_slice() {
            [] => format!("{} can be decided again", before.proposal_id),
            back => format!("restored {}", back.join(" and ")),
        };
        plan.preview = plan
            .changes
            .iter()
            .map(|change| PreviewLine { kind: LineKind::File, text: change.path().to_owned() })
            .collect();
        Ok(plan)
    }

    /// Returns whether a path is in the folder for archived ideas or the folder for promoted ideas.
    fn own_place(&self, path: &str) -> bool {
        let Ok(path) = RelPath::new(path) else {
            return false;
        };
        [&self.spec.done, &self.spec.specs]
            .iter()
            .any(|folder| RelPath::new(folder).is_ok_and(|folder| path.is_within(&folder)))
    }

    fn one_back(
        &self,
        scope: &Scope,
        folder: &str,
        touched: &ChangedFile,
        if_changed: IfChanged,
    ) -> Result<Option<FileChange>, ReviewError> {
        let path = &touched.path;
        let now = match source(scope, path) {
            Ok(source) => Some(source),
            Err(ReviewError::Cannot(_)) => None,
            Err(error) => return Err(error),
        };
        let holds = now.as_ref().map(Source::digest);
        let was = touched.before.as_ref().map(|held| held.sha256);
        if holds == was {
            return Ok(None);
        }
        if holds != touched.after && if_changed == IfChanged::Refuse {
            let why = match &now {
                Some(_) => format!("{path} has changed since the decision"),
                None => format!("{path} was removed after the decision"),
            };
            return Err(ReviewError::Changed(why));
        }
        let Some(held) = &touched.before else {
            // A file that an act created and the user has changed since is not removed.
            let ours = holds == touched.after;
            return Ok(now.filter(|_| ours).map(FileChange::Remove));
        };
        let kept = source(scope, &format!("{folder}/{}", held.file))?;
        if Digest::of(&kept.bytes) != held.sha256 {
            let why = format!("{folder}/{}, the backup of {path}, is damaged", held.file);
            return Err(ReviewError::Cannot(why));
        }
        Ok(Some(FileChange::Put {
            path: path.clone(),
            bytes: kept.bytes,
            over: now,
            looks: Some(held.looks),
        }))
    }
}

/// Returns whether a decision must have changed ideas.
fn acted(decision: &Decision) -> bool {
    let carried_out = matches!(decision.decision.as_str(), "accepted" | "amended");
    // `mark-blog` changes nothing if the mark already exists.
    carried_out && !matches!(decision.action.as_str(), "keep" | "mark-blog")
}
