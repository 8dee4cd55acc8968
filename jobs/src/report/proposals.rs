//! The proposals from the night's dreams and the earlier ones that the user can still decide on, as
//! they currently appear in their files, with the current decisions.
//!
//! Each new report reads the files again. The files are not trusted: an entry that is not a
//! proposal is left out, and a command is built only from a valid id.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::Timestamp;
use runner_engine::error_chain::whole;
use runner_engine::ids::ProjectId;
use runner_engine::store::{Store, StoreError};
use runner_text::{counted, shell_word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run_line::RunLine;
use crate::dream::DreamSpec;
use crate::dream::proposal::{Action, Confidence, IdeaStatus, clean};
use crate::dream::review::{PastDecisions, ProposalItem, Proposals, ProposalsError, Stale};

/// The job kind that makes proposals.
const KIND: &str = "dream";
/// Maximum number of proposals in one report.
const MOST: usize = 400;
/// Maximum length of the evidence and the rationale, in characters.
const LONGEST: usize = 400;
/// The name of the file where a pass leaves its proposals.
const FILE: &str = "/proposals.json";

/// A proposal in the report.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ReportedProposal {
    /// The job that made the proposal.
    pub job: String,
    pub id: String,
    /// The idea, followed by the destination if the proposal is a merge.
    pub targets: Vec<String>,
    pub status: IdeaStatus,
    pub action: Action,
    pub confidence: Confidence,
    /// The evidence, truncated.
    pub evidence: String,
    /// The rationale, truncated.
    pub rationale: String,
    /// The name of the current decision, or `None` if there is none.
    pub decided: Option<String>,
    /// The flag that selects the dream job in a command, or an empty string if the default job is
    /// meant.
    #[serde(default)]
    pub flag: String,
    /// The age of the proposal, in whole days, when the night was closed.
    #[serde(default)]
    pub days: u64,
    /// Whether a newer pass replaced the proposal, or its idea no longer exists.
    #[serde(default)]
    pub obsolete: bool,
    /// The user's recent decisions on proposals like this one.
    #[serde(default)]
    pub like: Option<String>,
    /// Whether the user decided against at least half of the proposals like this one. Such
    /// proposals are listed last in their group.
    #[serde(default)]
    pub disfavoured: bool,
}

impl ReportedProposal {
    fn of(item: &ProposalItem, job: &str, flag: &str, until: Timestamp) -> Self {
        let it = &item.proposal;
        let age = item.proposed().map(|at| until.duration_since(at).as_hours() / 24);
        Self {
            job: job.to_owned(),
            id: it.id.clone(),
            targets: it.targets.iter().map(|it| clean(it, 200)).collect(),
            status: it.status,
            action: it.action,
            confidence: it.confidence,
            evidence: clean(&it.evidence, LONGEST),
            rationale: clean(&it.rationale, LONGEST),
            decided: item.decision.as_ref().map(|it| clean(&it.decision, 40)),
            flag: flag.to_owned(),
            days: age.and_then(|days| u64::try_from(days).ok()).unwrap_or(0),
            obsolete: item.superseded || item.stale == Some(Stale::Gone),
            like: None,
            disfavoured: false,
        }
    }

    /// Returns whether the user must decide. A proposal to keep an idea as it is needs no decision.
    pub fn waits(&self) -> bool {
        self.is_open() && self.action != Action::Keep
    }

    /// Returns whether the proposal is undecided, and a decision on it would still have an effect.
    fn is_open(&self) -> bool {
        self.decided.is_none() && !self.obsolete
    }

    /// Describes the age of the proposal, or returns `None` if it is less than a day old.
    pub fn age(&self) -> Option<String> {
        (self.days > 0).then(|| counted(self.days, "day"))
    }

    /// Returns whether the user should check an idea that is kept even though it may be done or a
    /// duplicate.
    pub fn is_perhaps(&self) -> bool {
        let claimed = matches!(self.status, IdeaStatus::Implemented | IdeaStatus::Duplicate);
        claimed && self.action == Action::Keep && self.is_open()
    }

    /// Returns the command that applies `verb`, for example `show` or `accept`, to the proposal.
    pub fn command(&self, verb: &str) -> String {
        format!("runner dream {verb} {}{}", self.id, self.flag)
    }
}

/// The settings of a project's dream jobs, keyed by job name.
pub type DreamJobs = BTreeMap<String, DreamSpec>;

/// Returns the settings of the dream jobs from the configuration stored in the database. A job has
/// the default settings if an earlier build did not store its settings.
pub(super) fn dream_jobs(store: &Store, project: &ProjectId) -> Result<DreamJobs, StoreError> {
    #[derive(Default, Deserialize)]
    struct Kept {
        #[serde(default)]
        dreams: DreamJobs,
    }
    let kept = store.projections(Some(project))?;
    let kept = kept.get(project).and_then(|text| serde_json::from_str::<Kept>(text).ok());
    let mut kept = kept.unwrap_or_default().dreams;
    let jobs = store.jobs(project)?;
    let dreams = jobs.into_iter().filter(|job| job.kind == KIND);
    Ok(dreams.map(|job| (job.name.clone(), kept.remove(&job.name).unwrap_or_default())).collect())
}

/// The proposals that the user has not decided on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct WaitingProposals {
    /// Number of proposals awaiting a decision.
    pub count: usize,
    /// The time of the pass that made the oldest of them.
    pub oldest: Option<Timestamp>,
    /// Number of undecided proposals that keep an idea even though it may be done or a duplicate.
    #[serde(default)]
    pub perhaps: usize,
}

/// Counts these jobs' proposals that are awaiting a decision, and the ideas that may be done or
/// duplicates. A folder that cannot be read is treated as empty.
pub fn waiting(root: &Path, jobs: &DreamJobs) -> WaitingProposals {
    let mut found = WaitingProposals::default();
    for (_, book) in books(root, jobs) {
        let items = || book.iter().flat_map(|book| &book.items);
        found.perhaps += items().filter(|item| item.is_perhaps()).count();
        for item in items().filter(|item| item.waits()) {
            found.count += 1;
            found.oldest = match (found.oldest, item.proposed()) {
                (Some(oldest), Some(at)) => Some(oldest.min(at)),
                (oldest, at) => oldest.or(at),
            };
        }
    }
    found
}

/// Reads the proposals of each folder once, with the first job that uses the folder.
fn books<'j>(
    root: &'j Path,
    jobs: &'j DreamJobs,
) -> impl Iterator<Item = (&'j str, Result<Proposals, ProposalsError>)> {
    let mut seen = BTreeSet::new();
    let jobs = jobs.iter().filter(move |(_, spec)| seen.insert(spec.dreams.as_str()));
    let there = jobs.filter(|(_, spec)| root.join(&spec.dreams).is_dir());
    there.map(|(job, spec)| (job.as_str(), Proposals::read(root, spec)))
}

/// The proposals in a report.
#[derive(Default)]
pub(super) struct FoundProposals {
    /// The proposals, starting with those awaiting a decision.
    pub proposals: Vec<ReportedProposal>,
    /// Number of proposals that were left out.
    pub more: usize,
    /// Why proposals could not be read.
    pub unread: Vec<String>,
}

/// Reads the proposals left by the runs of a night, and the earlier ones that the user can still
/// decide on. `until` is the time when the night was closed.
pub(super) fn read(
    root: &Path,
    jobs: &DreamJobs,
    runs: &[RunLine],
    until: Timestamp,
) -> FoundProposals {
    let left = runs.iter().filter(|run| run.kind == KIND).flat_map(|run| &run.artifacts);
    let tonight: BTreeSet<&str> = left.filter_map(|path| path.strip_suffix(FILE)).collect();
    let mut found = FoundProposals::default();
    for (job, book) in books(root, jobs) {
        let book = match book {
            Ok(book) => book,
            Err(error) => {
                found.unread.push(clean(&whole(&error), LONGEST));
                continue;
            }
        };
        let one = jobs.len() == 1 && job == "dream";
        let flag = if one { String::new() } else { format!(" --job {}", shell_word(job)) };
        let past = PastDecisions::of(&book, until);
        for item in &book.items {
            let new = tonight.contains(item.pass.as_str());
            let earlier = item.proposed().is_none_or(|at| at <= until);
            if new || ((item.waits() || item.is_perhaps()) && earlier) {
                let like = past.like(&item.proposal);
                found.proposals.push(ReportedProposal {
                    like: like.describe(),
                    disfavoured: like.is_disfavoured(),
                    ..ReportedProposal::of(item, job, &flag, until)
                });
            }
        }
    }
    found
        .proposals
        .sort_by_key(|it| (!it.waits(), !it.is_perhaps(), it.decided.is_some(), it.disfavoured));
    found.more = found.proposals.len().saturating_sub(MOST);
    found.proposals.truncate(MOST);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_tests as sample;
    use serde_json::Value;
    use std::fs;

    fn element(id: &str, target: &str, action: &str, status: &str) -> Value {
        serde_json::json!({
            "id": id, "targets": [target], "status": status, "action": action,
            "evidence": "three\u{202e} words", "confidence": "high", "targets_hash": "h",
        })
    }

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn jobs(names: &[&str]) -> DreamJobs {
        names.iter().map(|name| ((*name).to_owned(), DreamSpec::default())).collect()
    }

    #[test]
    fn undecided_proposals_of_all_nights_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["a", "b", "c", "d"] {
            write(root, &format!("ideas/{name}.md"), name);
        }
        let old = serde_json::json!([
            element("old", "ideas/d.md", "archive", "implemented"),
            element("keep", "ideas/d.md", "keep", "sidenote"),
            element("gone", "ideas/gone.md", "archive", "implemented"),
            element("bb", "ideas/b.md", "archive", "implemented"),
        ]);
        write(root, "dreams/20261118T020000Z/proposals.json", &old.to_string());
        let new = serde_json::json!([
            element("aa", "ideas/a.md", "keep", "sidenote"),
            element("b2", "ideas/b.md", "archive", "implemented"),
            element("cc", "ideas/c.md", "archive", "implemented"),
            element("a;rm -rf ~", "ideas/c.md", "archive", "implemented"),
            7,
        ]);
        write(root, "dreams/20261121T020000Z/proposals.json", &new.to_string());
        let decided = r#"- {"proposal_id":"b2","decision":"accepted","targets_hash":"h"}"#;
        write(root, "dreams/ledger.md", decided);
        let mut run = sample::run("dream", "dream");
        run.artifacts = vec!["dreams/20261121T020000Z/proposals.json".into(), "b.md".into()];
        let until: Timestamp = "2026-11-21T03:00:00Z".parse().unwrap();
        let found = read(root, &jobs(&["dream"]), &[run.clone()], until);
        let reported: Vec<(&str, bool, u64)> =
            found.proposals.iter().map(|it| (&*it.id, it.waits(), it.days)).collect();
        // "bb" was replaced by a newer pass, and nobody needs to decide on a missing idea.
        let expected = [("cc", true, 0), ("old", true, 3), ("aa", false, 0), ("b2", false, 0)];
        assert_eq!(reported, expected);
        assert_eq!((found.more, found.unread.len()), (0, 0));
        assert_eq!(found.proposals[0].command("accept"), "runner dream accept cc");
        assert!(!found.proposals[0].evidence.contains('\u{202e}'), "{:?}", found.proposals);
        assert_eq!(found.proposals[3].decided.as_deref(), Some("accepted"));
        // A night without a pass still reports the proposals awaiting a decision, and `waiting`
        // counts them.
        let later: Timestamp = "2026-11-25T03:00:00Z".parse().unwrap();
        let found = read(root, &jobs(&["dream", "other"]), &[], later);
        let ages: Vec<Option<String>> = found.proposals.iter().map(ReportedProposal::age).collect();
        assert_eq!(ages, [Some("4 days".to_owned()), Some("7 days".to_owned())]);
        assert_eq!(found.proposals[0].command("show"), "runner dream show cc --job dream");
        let oldest = "2026-11-18T02:00:00Z".parse().ok();
        assert_eq!(
            waiting(root, &jobs(&["dream"])),
            WaitingProposals { count: 2, oldest, perhaps: 0 }
        );
        // Each undecided proposal shows the decisions on proposals like it. One rejection in two
        // decisions is enough for them to be listed last in their group.
        let rejected =
            r#"- {"proposal_id":"bb","decision":"rejected","at":"2026-11-20T02:00:00Z"}"#;
        let accepted = decided.replace("}", r#","at":"2026-11-22T02:00:00Z"}"#);
        write(root, "dreams/ledger.md", &format!("{rejected}\n{accepted}\n"));
        let found = read(root, &jobs(&["dream"]), &[], later);
        let like = "you accepted 1 and rejected 1 of 2 proposals like this in the last 90 days";
        assert_eq!(found.proposals[0].like.as_deref(), Some(like));
        assert!(found.proposals[0].disfavoured);
        // After 90 days, the decisions no longer count.
        let much_later: Timestamp = "2027-03-01T03:00:00Z".parse().unwrap();
        let found = read(root, &jobs(&["dream"]), &[], much_later);
        assert_eq!(found.proposals[0].like, None);
        write(root, "dreams/ledger.md", decided);
        // The report for an earlier night does not list later proposals.
        let before: Timestamp = "2026-11-19T03:00:00Z".parse().unwrap();
        let found = read(root, &jobs(&["dream"]), &[], before);
        assert_eq!(found.proposals.iter().map(|it| &*it.id).collect::<Vec<_>>(), ["old"]);
    }

    #[test]
    fn possibly_done_ideas_are_listed_until_decided() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["a", "b", "c"] {
            write(root, &format!("ideas/{name}.md"), name);
        }
        let items = serde_json::json!([
            element("done", "ideas/a.md", "keep", "implemented"),
            element("twin", "ideas/b.md", "keep", "duplicate"),
            element("note", "ideas/c.md", "keep", "sidenote"),
        ]);
        write(root, "dreams/20261118T020000Z/proposals.json", &items.to_string());
        let later: Timestamp = "2026-11-25T03:00:00Z".parse().unwrap();
        let perhaps = || -> Vec<(String, Option<String>)> {
            let found = read(root, &jobs(&["dream"]), &[], later).proposals;
            assert!(found.iter().all(ReportedProposal::is_perhaps), "{found:?}");
            found.iter().map(|it| (it.id.clone(), it.age())).collect()
        };
        let days = Some("7 days".to_owned());
        assert_eq!(perhaps(), [("done".to_owned(), days.clone()), ("twin".to_owned(), days)]);
        assert_eq!(waiting(root, &jobs(&["dream"])).perhaps, 2);
        // A decision settles the question, and so does the removal of the idea.
        let accepted = r#"- {"proposal_id":"done","decision":"accepted","targets_hash":"h"}"#;
        write(root, "dreams/ledger.md", accepted);
        fs::remove_file(root.join("ideas/b.md")).unwrap();
        assert_eq!(perhaps(), []);
        assert_eq!(waiting(root, &jobs(&["dream"])), WaitingProposals::default());
    }

    #[test]
    fn unreadable_decisions_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("dreams/ledger.md")).unwrap();
        let found = read(folder.path(), &jobs(&["dream"]), &[], Timestamp::UNIX_EPOCH);
        assert!(found.unread[0].contains("dreams/ledger.md"), "{:?}", found.unread);
    }
}
