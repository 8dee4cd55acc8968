//! Merges playbooks that describe the same repair for errors with different wording.
//!
//! Two playbooks are merged if their errors come from the same program and have no compiler code,
//! and if at least three quarters of their combined steps occur in both. A compiler code identifies
//! an error exactly, so errors with different codes are never merged. Each part is kept unchanged,
//! so a merge can be undone. Each run derives the merges again. This module must never merge
//! artifacts split by the user.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::artifact::{Artifact, Content, Counts};
use super::record::compact;

/// Minimum share of two playbooks' combined steps that must occur in both.
const SAME: f64 = 0.75;

/// An artifact while it is being derived.
pub(super) struct Candidate {
    pub artifact: Artifact,
    pub counts: Counts,
    /// The end time of the last session that contributed to the artifact or received it.
    pub recent: Option<Timestamp>,
    pub deltas: Vec<i32>,
}

/// Merges artifacts up to a size of `most` bytes. The first artifact of a group represents the
/// group: a pinned or edited one, or else the one with the smallest id. `split` contains the ids of
/// the artifacts that are never merged.
pub(super) fn merge(
    mut all: Vec<Candidate>,
    split: &BTreeSet<String>,
    most: usize,
) -> Vec<Candidate> {
    all.sort_by_key(|Candidate { artifact, .. }| {
        (!artifact.pinned, !artifact.edited, artifact.id.clone())
    });
    let mut kept: Vec<Candidate> = Vec::new();
    for one in all {
        let takes = |first: &Artifact| {
            let members = first.merged.iter().chain([first]);
            !split.contains(&first.id)
                && !split.contains(&one.artifact.id)
                && members.into_iter().all(|it| alike(&it.content, &one.artifact.content))
                && compact(first).len() + compact(&one.artifact).len() + 32 <= most
        };
        match kept.iter_mut().find(|it| takes(&it.artifact)) {
            Some(group) => group.take(one),
            None => kept.push(one),
        }
    }
    kept
}

impl Candidate {
    /// Adds another artifact with its counts.
    fn take(&mut self, part: Self) {
        self.counts.add(part.counts);
        self.recent = self.recent.max(part.recent);
        let first = &mut self.artifact;
        first.content.count(self.counts);
        (first.successes, first.failures) = (self.counts.successes, self.counts.failures);
        first.merged.push(part.artifact);
    }
}

/// Returns all artifacts, with merged ones separated into their parts.
pub(super) fn apart(artifacts: &[Artifact]) -> Vec<Artifact> {
    let parts = artifacts.iter().flat_map(|it| &it.merged).cloned();
    let first = |it: &Artifact| Artifact { merged: Vec::new(), ..it.clone() };
    artifacts.iter().map(first).chain(parts).collect()
}

/// Returns whether two playbooks describe the same repair.
fn alike(a: &Content, b: &Content) -> bool {
    let (
        Content::DreamPlaybook { trigger: a, sequence: first, .. },
        Content::DreamPlaybook { trigger: b, sequence: second, .. },
    ) = (a, b)
    else {
        return false;
    };
    let same_program = program(a).is_some() && program(a) == program(b);
    let (first, second): (BTreeSet<_>, BTreeSet<_>) =
        (first.iter().collect(), second.iter().collect());
    let (both, all) = (first.intersection(&second).count(), first.union(&second).count());
    same_program && both as f64 >= SAME * all as f64
}

/// Returns the program of a trigger such as `error:go:5edd373794ab9233`, or `None` if the trigger
/// has a compiler code.
fn program(trigger: &str) -> Option<&str> {
    let (program, mask) = trigger.strip_prefix("error:")?.rsplit_once(':')?;
    let is_mask = mask.len() == 16 && mask.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_mask.then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn playbook(trigger: &str, steps: &str) -> Content {
        Content::DreamPlaybook {
            trigger: trigger.to_owned(),
            sequence: steps.split(' ').map(str::to_owned).collect(),
            confidence: 0.7,
            source_sessions: 1,
        }
    }

    #[test]
    fn only_similar_repairs_of_one_program_are_alike() {
        let known = playbook("error:go:5edd373794ab9233", "read edit test commit");
        for (trigger, steps, expected) in [
            ("error:go:ced963d4fdb02f2f", "read edit test commit", true),
            ("error:go:ced963d4fdb02f2f", "edit test commit", true),
            ("error:go:ced963d4fdb02f2f", "edit test", false),
            ("error:gh:ced963d4fdb02f2f", "read edit test commit", false),
            ("error:go:wrapcheck", "read edit test commit", false),
        ] {
            assert_eq!(alike(&known, &playbook(trigger, steps)), expected, "{trigger} {steps}");
        }
    }
}
