//! Derives the artifacts of a project from the findings of its sessions.
//!
//! ```text
//! findings of every session ─┐
//! counts of removed sessions ├─fold──> candidates ──limits──> artifacts
//! the user's decisions ──────┘
//! ```
//!
//! The derivation is a pure function, so a session that is analyzed again replaces its own part and
//! is never counted twice. This module must never evict an artifact pinned by the user.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::artifact::{Artifact, CONFIDENT, Citation, Content, Counts};
use super::imports::subject;
use super::merge::{Candidate, apart, merge};
use super::record::SessionRecord;
use super::tasks::EVIDENCE;

/// Maximum size of one artifact's file, and of all artifact files together, in bytes.
pub const LARGEST: usize = 2 * 1024;
pub const TOTAL: usize = 32 * 1024;
/// Maximum number of artifacts of one type, and of all types together.
pub const PER_TYPE: usize = 20;
pub const MOST: usize = 50;
/// Artifacts with less confidence than this are evicted first.
const WEAK: f64 = 0.5;

/// The user's decisions on artifacts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Decisions {
    pub pinned: BTreeSet<String>,
    pub forgotten: BTreeSet<String>,
    /// The artifacts that are never merged with another one.
    pub split: BTreeSet<String>,
    /// The content written by the user, keyed by artifact id.
    pub edits: BTreeMap<String, Content>,
    /// The state before each decision, oldest first.
    pub history: Vec<Decision>,
}

/// The state of one artifact before a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    pub id: String,
    pub at: Timestamp,
    pub pinned: bool,
    pub forgotten: bool,
    #[serde(default)]
    pub split: bool,
    pub edit: Option<Content>,
    /// The artifact, which undoing the decision restores if it no longer exists.
    #[serde(default)]
    pub artifact: Option<Artifact>,
}

/// The artifacts, and how many candidates were dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folded {
    pub artifacts: Vec<Artifact>,
    /// Number of candidates that exceed the maximum size of one artifact.
    pub too_large: u64,
    /// Number of candidates evicted because of the limits.
    pub evicted: u64,
}

/// The contribution of one session to one artifact.
struct Contribution<'r> {
    content: Content,
    rule: &'static str,
    counts: Counts,
    lines: &'r [u64],
    trust_delta: i32,
}

/// Returns the contributions of a session.
fn contributions(record: &SessionRecord) -> Vec<Contribution<'_>> {
    let once = Counts { count: 1, successes: 1, failures: 0 };
    let mut all = Vec::new();
    for repair in &record.findings.repairs {
        let mut add = |content, rule| {
            let lines = repair.evidence.as_slice();
            all.push(Contribution { content, rule, counts: once, lines, trust_delta: 0 });
        };
        // One step is not a sequence: the repair pattern describes it.
        if repair.steps.len() > 1 {
            let (trigger, sequence) = (repair.trigger.clone(), repair.steps.clone());
            let content =
                Content::DreamPlaybook { trigger, sequence, confidence: 0.0, source_sessions: 0 };
            add(content, "repair-sequence");
        }
        if let Some(fix) = &repair.fix {
            let (error_signature, fix_action) = (repair.signature.clone(), fix.clone());
            let content = Content::RepairPattern {
                error_signature,
                fix_action,
                confidence: 0.0,
                occurrences: 0,
            };
            add(content, "single-repair");
        }
    }
    for observed in &record.findings.conventions {
        let content = Content::ProjectConvention {
            domain: observed.domain.clone(),
            pattern: observed.pattern.clone(),
            evidence_count: 0,
            confidence: 0.0,
        };
        let (successes, failures) = (observed.matches, observed.exceptions);
        let counts = Counts { count: 1, successes, failures };
        let lines = observed.evidence.as_slice();
        all.push(Contribution { content, rule: "frequent-form", counts, lines, trust_delta: 0 });
    }
    for workflow in &record.findings.workflows {
        let content = Content::SuccessfulSequence {
            label: workflow.label.clone(),
            steps: workflow.steps.clone(),
            avg_trust_delta: 0,
            occurrences: 0,
            confidence: 0.0,
        };
        let (lines, trust_delta) = (workflow.evidence.as_slice(), workflow.trust_delta);
        all.push(Contribution { content, rule: "clean-turn", counts: once, lines, trust_delta });
    }
    all
}

/// Derives the artifacts. `known` are the previous artifacts, and `records` are the sessions,
/// ordered by end time.
pub fn fold(records: &[&SessionRecord], known: &[Artifact], decisions: &Decisions) -> Folded {
    let mut all: BTreeMap<String, Candidate> = BTreeMap::new();
    let known = apart(known);
    for artifact in &known {
        let kept = Artifact {
            evidence: Vec::new(),
            conflicts: Vec::new(),
            edited: false,
            ..artifact.clone()
        };
        let (counts, recent) = (artifact.earlier, artifact.last_used);
        all.insert(
            kept.id.clone(),
            Candidate { artifact: kept, counts, recent, deltas: Vec::new() },
        );
    }
    for record in records {
        for part in contributions(record) {
            let id = part.content.id();
            let new = || Candidate {
                artifact: Artifact::new(part.content.clone(), part.rule, record.ended_at),
                counts: Counts::default(),
                recent: None,
                deltas: Vec::new(),
            };
            let candidate = all.entry(id).or_insert_with(new);
            candidate.counts.add(part.counts);
            candidate.recent = candidate.recent.max(record.ended_at);
            candidate.deltas.push(part.trust_delta);
            // The text of the newest session replaces that of earlier sessions.
            candidate.artifact.content.take_text(&part.content);
            let session = &record.session;
            let cites =
                part.lines.iter().map(|line| Citation { session: session.clone(), line: *line });
            let evidence = &mut candidate.artifact.evidence;
            evidence.splice(0..0, cites);
            evidence.truncate(EVIDENCE);
        }
    }
    note_failures(records, &mut all);
    note_uses(records, &mut all);
    let mut candidates = Vec::new();
    for (id, mut candidate) in all {
        if decisions.forgotten.contains(&id) {
            continue;
        }
        settle(&mut candidate, decisions);
        let artifact = &candidate.artifact;
        let was_known = known.iter().any(|it| it.id == id);
        // A session that continued may no longer make its earlier contributions.
        let is_empty = candidate.counts == Counts::default();
        let is_kept = artifact.pinned || artifact.edited;
        let is_found = !is_empty && (was_known || artifact.content.confidence() >= CONFIDENT);
        if is_kept || is_found {
            candidates.push(candidate);
        }
    }
    note_conflicts(&mut candidates);
    limit(merge(candidates, &decisions.split, LARGEST))
}

/// Counts the sessions that received an artifact as context but still ended with its error.
fn note_failures(records: &[&SessionRecord], all: &mut BTreeMap<String, Candidate>) {
    for candidate in all.values_mut() {
        let failures = records.iter().filter(|it| has_failed(it, &candidate.artifact)).count();
        candidate.counts.failures += u32::try_from(failures).unwrap_or(u32::MAX);
    }
}

/// Returns whether a session received an artifact as context but still ended with its error.
fn has_failed(record: &SessionRecord, artifact: &Artifact) -> bool {
    let got = record.findings.injections.iter().any(|it| it.artifacts.contains(&artifact.id));
    got && record.findings.errors.iter().any(|error| {
        !error.resolved
            && match &artifact.content {
                Content::DreamPlaybook { trigger, .. } => *trigger == error.trigger,
                Content::RepairPattern { error_signature, .. } => {
                    *error_signature == error.signature
                }
                _ => false,
            }
    })
}

/// Updates the last use of the artifacts that a session received as context.
fn note_uses(records: &[&SessionRecord], all: &mut BTreeMap<String, Candidate>) {
    for record in records {
        let used = record.findings.injections.iter().flat_map(|it| &it.artifacts);
        for id in used {
            if let Some(candidate) = all.get_mut(id) {
                let last = &mut candidate.artifact.last_used;
                *last = (*last).max(record.ended_at);
                candidate.recent = candidate.recent.max(record.ended_at);
            }
        }
    }
}

/// Sets the counts, and applies the user's decisions.
fn settle(candidate: &mut Candidate, decisions: &Decisions) {
    let Candidate { artifact, counts, deltas, .. } = candidate;
    artifact.content.count(*counts);
    (artifact.successes, artifact.failures) = (counts.successes, counts.failures);
    if let Content::SuccessfulSequence { avg_trust_delta, .. } = &mut artifact.content
        && !deltas.is_empty()
    {
        let count = i32::try_from(deltas.len()).unwrap_or(i32::MAX);
        *avg_trust_delta = deltas.iter().sum::<i32>() / count;
    }
    if let Some(edit) = decisions.edits.get(&artifact.id) {
        artifact.content.take_text(edit);
        artifact.edited = true;
    }
    artifact.pinned = decisions.pinned.contains(&artifact.id);
}

/// Records which conventions contradict each other: different forms for the same kind of item.
fn note_conflicts(candidates: &mut [Candidate]) {
    let sort = |content: &Content| match content {
        Content::ProjectConvention { domain, pattern, .. } => {
            let first = || pattern.split(' ').next().unwrap_or_default().to_owned();
            Some((domain.clone(), subject(pattern).unwrap_or_else(first)))
        }
        _ => None,
    };
    let sorts: Vec<_> =
        candidates.iter().map(|it| (it.artifact.id.clone(), sort(&it.artifact.content))).collect();
    for candidate in candidates {
        let own = sort(&candidate.artifact.content);
        let against = sorts
            .iter()
            .filter(|(id, other)| own.is_some() && *other == own && *id != candidate.artifact.id);
        candidate.artifact.conflicts = against.map(|(id, _)| id.clone()).take(3).collect();
    }
}

/// Drops the artifacts that exceed the limits. A pinned artifact is dropped only if it is too
/// large.
fn limit(mut candidates: Vec<Candidate>) -> Folded {
    let mut folded = Folded::default();
    // Pinned artifacts come first, then confident ones. Within each group, the most recent ones
    // come first.
    candidates.sort_by_key(|candidate| {
        let artifact = &candidate.artifact;
        let weak = artifact.content.confidence() < WEAK;
        (!artifact.pinned, weak, std::cmp::Reverse(candidate.recent), artifact.id.clone())
    });
    let mut per_type: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut total = 0;
    for Candidate { mut artifact, .. } in candidates {
        let mut size = bytes(&artifact).len();
        if size > LARGEST {
            artifact.evidence.clear();
            size = bytes(&artifact).len();
        }
        if size > LARGEST {
            folded.too_large += 1;
            continue;
        }
        let of_type = per_type.entry(artifact.content.kind()).or_default();
        let full = *of_type >= PER_TYPE || folded.artifacts.len() >= MOST || total + size > TOTAL;
        if full && !artifact.pinned {
            folded.evicted += 1;
            continue;
        }
        *of_type += 1;
        total += size;
        folded.artifacts.push(artifact);
    }
    folded.artifacts.sort_by(|a, b| a.id.cmp(&b.id));
    folded
}

/// Returns the content of an artifact's file, with secrets removed.
pub fn bytes(artifact: &Artifact) -> Vec<u8> {
    super::record::compact(artifact)
}

/// Returns the counts that a session adds to an artifact.
pub fn counts(record: &SessionRecord, artifact: &Artifact) -> Counts {
    let mut counts = Counts::default();
    for part in contributions(record).iter().filter(|part| part.content.id() == artifact.id) {
        counts.add(part.counts);
    }
    counts.failures += u32::from(has_failed(record, artifact));
    counts
}
