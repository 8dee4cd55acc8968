//! One iteration: INGEST, REDUCE and MEASURE on a staged copy, then COMMIT.
//!
//! ```text
//! checkpoint ──> harvest, close-loop ──> defrag, compile ──> measure ─judge─> commit ──> integrity
//!                                                                └── halt: the copy is removed
//! ```
//!
//! The corpus does not change before COMMIT. The marker contains the iteration's record, so another
//! process can finish and record the iteration after a crash. This module must never commit a state
//! that was not measured.

use std::time::Duration;

use runner_engine::digest::Digest;
use runner_engine::files::{DOCUMENT, read_in};
use runner_engine::ids::{Fence, RunId};
use runner_engine::time::boot_time;
use runner_text::front_matter::edit;
use serde_json::json;

use super::commit::{self, Commit, Target};
use super::corpus::close_loop::close_loop;
use super::corpus::compile::compile;
use super::corpus::defrag::{Options, defrag, merged};
use super::corpus::fitness::{Fitness, MAX_DROP, fitness};
use super::corpus::harvest::harvest;
use super::corpus::oscillation::FileHistory;
use super::corpus::{Changes, Corpus, FOLDER as CORPUS, read};
use super::halt::{HaltRules, IterationVerdict, decide, delta, reference};
use super::iterate::{IterationFailure, LoopResult, NextIteration, measuring};
use super::staging::Staging;
use super::state::Night;
use super::summary::{Iteration, IterationStatus, length};
use super::warn_budget::WarnBudget;

/// Maximum number of lost fields to name.
const NAMED: usize = 20;

impl Night<'_, '_> {
    /// Runs one iteration.
    ///
    /// # Errors
    /// Returns an [`IterationFailure`] that names the failed part. The corpus is unchanged, except
    /// possibly after [`IterationFailure::Job`].
    pub(super) fn one(
        &mut self,
        iteration: &mut Iteration,
        began: Duration,
        rescues: &mut WarnBudget,
        looped: &mut LoopResult,
    ) -> Result<NextIteration, IterationFailure> {
        let root = self.ctx.files.root();
        let cap = self.spec.checkpoint_max_mb.saturating_mul(1024 * 1024);
        self.at("checkpoint");
        let copying = boot_time();
        let staging = Staging::checkpoint(root, iteration.index, cap)?;
        let copying = boot_time().saturating_sub(copying);
        let mut corpus = read(&staging.folder()).map_err(measuring)?;
        corpus.adopt(self.index.take());
        let mut history = self.history();
        self.learn(&corpus, &history);
        let before = self.fitness(&corpus);
        iteration.fitness_before = Some(before.clone());

        self.at("ingest");
        let mut all = Changes::new();
        // Only the originals of changed nodes are kept, because a copy of all nodes would use too
        // much memory.
        let mut original = Corpus::default();
        let (harvested, changes) = harvest(&corpus, &self.facts.sources, &history, self.date);
        let mut apply = |corpus: &mut Corpus, changes: Changes| -> Result<(), IterationFailure> {
            staging.write(&changes)?;
            let first = changes.keys().filter(|path| !all.contains_key(*path));
            original.nodes.extend(first.filter_map(|path| corpus.at(path).cloned()));
            corpus.apply(&changes);
            all.extend(changes);
            Ok(())
        };
        apply(&mut corpus, changes)?;
        let (closed, changes) = close_loop(&corpus, self.facts.known_uses(), self.date, 0);
        apply(&mut corpus, changes)?;
        iteration.ingest = json!({
            "harvested": harvested.added.len(), "known": harvested.known, "left_over": harvested.left_over,
            "promoted": closed.promoted.len(), "held": closed.held,
        });

        self.ctx.progress.step("reduce", iteration.index, 0);
        let (mut defragged, changes) = defrag(&corpus, &history, Options::default());
        defragged.applied = true;
        apply(&mut corpus, changes)?;
        let (compiled, changes) = compile(&corpus, self.date);
        apply(&mut corpus, changes)?;
        iteration.reduce = json!({
            "removed": defragged.removed.len(), "compiled": compiled.len(),
            "left_over": defragged.left_over,
        });

        original.nodes.sort_by(|a, b| a.path.cmp(&b.path));
        self.index = corpus.take_index();
        drop(corpus);

        self.at("measure");
        history.merged.extend(merged(&defragged));
        self.learn(&Corpus::default(), &history);
        let after = match all.is_empty() {
            true => before.clone(),
            false => {
                let mut staged = read(&staging.folder()).map_err(measuring)?;
                let after = self.fitness(&staged);
                self.index = staged.take_index();
                after
            }
        };
        iteration.measure = json!({
            "composite": after.composite, "floors": after.floors,
            "checkpoint_bytes": staging.copied, "checkpoint_shared_bytes": staging.shared,
            "checkpoint_seconds": copying.as_secs_f64(),
        });
        iteration.fitness_delta = delta(&before, &after);
        iteration.fitness_after = Some(after.clone());

        let targets = targets(&staging, &original, &all)?;
        let next = self.judge(iteration, (&before, &after), defragged.left_over > 0, rescues)?;
        let Some(next) = next else {
            staging.discard(root)?;
            return Ok(NextIteration::End);
        };

        self.at("commit");
        let whole = self.commit(iteration, began, targets, &original, &mut history);
        if whole.is_err() {
            // The commit failed, so a plateau that this iteration found must not end the loop.
            self.summary.plateau_reason = None;
        }
        let whole = whole?;
        looped.promoted.extend(closed.promoted.iter().cloned());
        looped.close_loop = serde_json::to_value(&closed).unwrap_or_default();
        // If fields or content were lost, the loop ends, because another iteration could lose more
        // before the user checks the corpus.
        Ok(if whole { next } else { NextIteration::End })
    }

    /// Decides whether to commit the iteration. Returns whether the loop then continues, or `None`
    /// if nothing is to be committed.
    fn judge(
        &mut self,
        iteration: &mut Iteration,
        (before, after): (&Fitness, &Fitness),
        unfinished: bool,
        rescues: &mut WarnBudget,
    ) -> Result<Option<NextIteration>, IterationFailure> {
        let mut deltas: Vec<f64> = self
            .summary
            .iterations
            .iter()
            .filter(|it| it.error.is_none())
            .map(|it| it.fitness_delta)
            .collect();
        deltas.push(iteration.fitness_delta);
        let rules = HaltRules {
            epsilon: self.spec.plateau_epsilon,
            window: self.spec.plateau_window,
            max_drop: MAX_DROP,
            warn_only: self.spec.warn_only,
            unfinished,
        };
        // A drop for which a rescue was spent is accepted. Later drops are measured from the state
        // after that drop.
        let all = &self.summary.iterations;
        let paid = |it: &Iteration| rescues.spent.iter().any(|spent| spent.iteration_id == it.id);
        let from = all.iter().rposition(paid).map_or(0, |at| at + 1);
        let first = all.get(from).and_then(|it| it.fitness_before.as_ref());
        let verdict = decide(rules, &deltas, &reference(first, before), after, rescues.remaining);
        self.log(&format!(
            "iteration {}: fitness {:?} -> {:?} ({verdict:?})",
            iteration.index, before.composite, after.composite
        ));
        Ok(match verdict {
            IterationVerdict::On => Some(NextIteration::On),
            IterationVerdict::Rescued(why) => {
                let spent = rescues.spend(self.ctx.files.root(), &iteration.id, &why);
                spent.map_err(|error| {
                    IterationFailure::NotCommitted(format!(
                        "the use of a rescue could not be recorded: {error}"
                    ))
                })?;
                let what = format!("{why} (a rescue was used, {} left)", rescues.remaining);
                self.degrade(&what);
                iteration.degraded.push(what);
                Some(NextIteration::On)
            }
            IterationVerdict::Settled(why) => {
                self.summary.plateau_reason = Some(why);
                Some(NextIteration::End)
            }
            IterationVerdict::Plateau(why) => {
                iteration.status = IterationStatus::HaltedOnRegressionPreCommit;
                self.summary.plateau_reason = Some(why);
                None
            }
            IterationVerdict::Regression(why) => {
                iteration.status = IterationStatus::HaltedOnRegressionPreCommit;
                self.degrade(&format!("regression: {why}"));
                self.summary.regression_reason = Some(why);
                None
            }
        })
    }

    /// Commits the staged state to the corpus. Returns whether every file has the committed content
    /// and has kept its front matter fields.
    fn commit(
        &mut self,
        iteration: &mut Iteration,
        began: Duration,
        targets: Vec<Target>,
        original: &Corpus,
        history: &mut FileHistory,
    ) -> Result<bool, IterationFailure> {
        let root = self.ctx.files.root();
        if targets.is_empty() {
            return Ok(true);
        }
        let kept = self.out.path_of(&format!("{}/removed", self.summary.run_id));
        commit::keep_removed(root, &root.join(kept), &targets)?;
        iteration.finished_at = self.timestamp();
        iteration.duration = length(boot_time().saturating_sub(began));
        let record = json!({
            "output": self.out.below(), "run_id": self.summary.run_id, "iteration": iteration,
        });
        let expected: Vec<(String, Option<Digest>)> = targets
            .iter()
            .map(|it| (it.path.clone(), it.after.as_deref().map(Digest::of)))
            .collect();
        let store = self.ctx.spender.store();
        let guard = |run: &RunId, fence: Fence| store.holds(run, fence);
        let admitted = self.ctx.admitted;
        Commit {
            root,
            run: admitted.run().clone(),
            fence: admitted.fence(),
            guard: &guard,
            number: iteration.index,
            iteration_id: iteration.id.clone(),
            started_at: iteration.started_at.clone(),
            record,
        }
        .make(targets)?;
        let acts = expected.iter().filter_map(|(path, after)| {
            let (was, is) = (original.at(path).is_some(), after.is_some());
            (was != is).then_some((path.as_str(), is))
        });
        history.note(&iteration.id, acts);
        if let Err(error) = commit::write_history(root, history) {
            iteration.degraded.push(error.to_string());
        }
        let stripped = integrity(root, original, &expected);
        if !stripped.is_empty() {
            iteration.status = IterationStatus::Degraded;
            let count = stripped.len();
            let finding = format!("post-commit metadata integrity: {count} stripped field(s)");
            let named = stripped.into_iter().take(NAMED);
            for finding in std::iter::once(finding).chain(named) {
                self.degrade(&finding);
                iteration.degraded.push(finding);
            }
            return Ok(false);
        }
        Ok(true)
    }

    /// Collects the recorded uses of the corpus's nodes on the first call, and the merged nodes on
    /// every call.
    pub(super) fn learn(&mut self, corpus: &Corpus, history: &FileHistory) {
        let root = self.ctx.files.root();
        let uses = self.facts.learn(root, self.ctx.files.agents(), corpus);
        uses.merged.clone_from(&history.merged);
    }

    /// Returns the fitness of a corpus. The last result is reused if the nodes, the work items and
    /// the number of merged nodes are unchanged.
    pub(super) fn fitness(&mut self, corpus: &Corpus) -> Fitness {
        let nodes = corpus.key();
        let work = Digest::of(&corpus.work.kept.to_bytes());
        let merged = self.facts.known_uses().merged.len();
        let key = Digest::of(format!("{nodes} {work} {merged}").as_bytes());
        if let Some((known, measured)) = &self.known
            && *known == key
        {
            return measured.clone();
        }
        let measured = fitness(corpus, self.facts.known_uses(), self.date);
        self.known = Some((key, measured.clone()));
        measured
    }

    pub(super) fn history(&self) -> FileHistory {
        commit::history(self.ctx.files.root())
    }
}

/// Returns each changed file with its digest at the time of the copy and its new content.
fn targets(
    staging: &Staging,
    original: &Corpus,
    all: &Changes,
) -> Result<Vec<Target>, IterationFailure> {
    all.keys()
        .map(|path| {
            Ok(Target {
                path: path.clone(),
                before: original.at(path).map(|node| node.digest),
                after: staging.bytes(path)?,
            })
        })
        .collect()
}

/// Describes each front matter field that a written file lost. A file that does not have the
/// committed content counts as one lost field.
fn integrity(
    root: &std::path::Path,
    original: &Corpus,
    expected: &[(String, Option<Digest>)],
) -> Vec<String> {
    let mut stripped = Vec::new();
    for (path, after) in expected {
        let live = read_in(root, std::path::Path::new(CORPUS).join(path), DOCUMENT).ok();
        if live.as_deref().map(Digest::of) != *after {
            stripped.push(format!("{CORPUS}/{path} does not have the committed content"));
            continue;
        }
        let (Some(node), Some(live)) = (original.at(path), live) else {
            continue;
        };
        let lost = edit::stripped(&node.text, &String::from_utf8_lossy(&live));
        stripped.extend(lost.iter().map(|field| format!("{CORPUS}/{path} lost its field {field}")));
    }
    stripped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_fields_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let learnings = folder.path().join(CORPUS).join("learnings");
        std::fs::create_dir_all(&learnings).unwrap();
        let text = "---\nid: a\nodd: 1\nmaturity: provisional\n---\n# A\n";
        let mut original = Corpus::default();
        let file = |text: &str| Some(text.as_bytes().to_vec());
        let at = "learnings/a.md".to_owned();
        original.apply(&Changes::from([(at.clone(), file(text))]));
        for (live, expected, stripped) in [
            (text.replace("provisional", "candidate"), None, 0),
            (text.replace("odd: 1\n", ""), None, 1),
            (text.replace("id: a\nodd: 1\n", ""), None, 2),
            // The file has content that was not committed.
            ("# B\n".to_owned(), Some(text), 1),
        ] {
            std::fs::write(learnings.join("a.md"), &live).unwrap();
            let committed = Digest::of(expected.unwrap_or(&live).as_bytes());
            let expected = [(at.clone(), Some(committed))];
            let found = integrity(folder.path(), &original, &expected);
            assert_eq!(found.len(), stripped, "{live}");
            assert!(found.iter().all(|it| it.contains("learnings/a.md")), "{found:?}");
        }
        std::fs::remove_file(learnings.join("a.md")).unwrap();
        assert!(integrity(folder.path(), &original, &[(at, None)]).is_empty());
    }
}
