//! Proposals: their fields, their ids, and the checks on a reply.
//!
//! The elements of a reply are checked one by one against an [`Offer`] that was created before the
//! question was asked. An invalid element never invalidates the others, and no proposal has a
//! target that was not offered. This module must never take an id from a reply.

use runner_text::counted;
use std::collections::{BTreeMap, BTreeSet};

use runner_engine::digest::Digest;
use runner_text::redact::Redactor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum length of the evidence and of the rationale, in characters. Longer texts are truncated.
pub(super) const LONGEST: usize = 2000;

/// The status determined for an idea.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum IdeaStatus {
    /// Commits implemented the idea.
    Implemented,
    /// Another idea has the same content.
    Duplicate,
    /// The idea is worth working on.
    Meritorious,
    /// The idea is a note that asks for no work.
    Sidenote,
    /// The idea is meant for publication.
    BlogCandidate,
}

/// The action that is proposed for an idea.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Move the idea to the archived ideas.
    Archive,
    /// Append to the second target the passages that it lacks, and archive the idea.
    Merge,
    /// Turn the idea into a spec.
    Promote,
    /// Mark the idea as meant for publication.
    MarkBlog,
    /// Leave the idea as it is.
    Keep,
}

/// The confidence of a proposal.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// There is hardly any doubt.
    High,
    /// The proposal is probably right.
    Med,
    /// The proposal may be right.
    Low,
}

impl IdeaStatus {
    /// All statuses, in the contract's order.
    pub const ALL: [Self; 5] = [
        Self::Implemented,
        Self::Duplicate,
        Self::Meritorious,
        Self::Sidenote,
        Self::BlogCandidate,
    ];

    /// Returns whether the action may be proposed for an idea with this status. Implemented ideas
    /// and sidenotes may be archived, and each of the other statuses allows one specific action;
    /// keeping is always allowed.
    pub fn allows(self, action: Action) -> bool {
        matches!(
            (self, action),
            (_, Action::Keep)
                | (Self::Implemented | Self::Sidenote, Action::Archive)
                | (Self::Duplicate, Action::Merge)
                | (Self::Meritorious, Action::Promote)
                | (Self::BlogCandidate, Action::MarkBlog)
        )
    }

    /// Returns the status as it is written in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Implemented => "implemented",
            Self::Duplicate => "duplicate",
            Self::Meritorious => "meritorious",
            Self::Sidenote => "sidenote",
            Self::BlogCandidate => "blog-candidate",
        }
    }
}

impl Action {
    /// All actions, in the contract's order.
    pub const ALL: [Self; 5] =
        [Self::Archive, Self::Merge, Self::Promote, Self::MarkBlog, Self::Keep];

    /// Returns the action as it is written in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Archive => "archive",
            Self::Merge => "merge",
            Self::Promote => "promote",
            Self::MarkBlog => "mark-blog",
            Self::Keep => "keep",
        }
    }
}

/// A proposal as published: the contract's keys, and the hash of its targets' content.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Proposal {
    /// An id that is the same for the same targets, status and action.
    pub id: String,
    /// The idea, followed by the destination if the action is a merge.
    pub targets: Vec<String>,
    /// The status determined for the idea.
    pub status: IdeaStatus,
    /// The proposed action.
    pub action: Action,
    /// The evidence for the proposal.
    pub evidence: String,
    pub confidence: Confidence,
    /// The reason for the proposal, in one line.
    pub rationale: String,
    /// The hash of the contents that were triaged. It is compared when the proposal is accepted,
    /// and recorded in the decision.
    pub targets_hash: String,
}

/// The targets that an answer may choose from. The offer is created before the question is asked,
/// from the ideas that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The ideas that were shown.
    pub sources: Vec<String>,
    /// The ideas that another idea may be merged into.
    pub destinations: BTreeSet<String>,
    /// The digests of the contents of these ideas.
    pub digests: BTreeMap<String, Digest>,
}

/// A rejected element of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The index of the element among those examined, from 0.
    pub index: usize,
    /// The reason for the refusal, safe to print.
    pub why: String,
}

/// The result of checking a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedReply {
    /// The valid proposals, in the reply's order.
    pub proposals: Vec<Proposal>,
    /// The rejected elements.
    pub refused: Vec<Refused>,
    /// The lines that the reply quotes from a commit's changes, by idea.
    pub quotes: BTreeMap<String, String>,
}

/// The fields of a proposal in a reply. Other fields are ignored.
#[derive(Debug, Deserialize)]
struct ReplyElement {
    targets: Vec<String>,
    status: IdeaStatus,
    action: Action,
    evidence: String,
    confidence: Confidence,
    #[serde(default)]
    rationale: String,
    /// The commits that support the claim, listed separately from the prose.
    #[serde(default)]
    commits: Vec<String>,
    /// A line that the reply quotes from a commit's changes.
    #[serde(default)]
    quote: Option<String>,
}

/// Maximum number of commits that one element may cite.
const COMMITS: usize = 8;

/// Checks the elements of a reply. If several valid elements concern the same idea, the first one
/// wins.
pub fn check(
    elements: impl IntoIterator<Item = Result<Value, String>>,
    offer: &Offer,
) -> CheckedReply {
    let mut checked = CheckedReply::default();
    // Keying the map by idea also keeps the ids unique, even if a later check replaces a proposal's
    // action.
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for (index, element) in elements.into_iter().enumerate() {
        let proposal = element.and_then(|value| one(value, offer)).and_then(|(proposal, quote)| {
            let source = &proposal.targets[0];
            match seen.get(source) {
                Some(id) => Err(format!("{source:?} already has a proposal, {id}")),
                None => {
                    seen.insert(source.clone(), proposal.id.clone());
                    if let Some(quote) = quote.filter(|quote| !quote.trim().is_empty()) {
                        checked.quotes.insert(source.clone(), quote);
                    }
                    Ok(proposal)
                }
            }
        });
        match proposal {
            Ok(proposal) => checked.proposals.push(proposal),
            Err(why) => checked.refused.push(Refused { index, why: clean(&why, 300) }),
        }
    }
    checked
}

/// Checks one element, and returns its proposal and its quotation.
fn one(value: Value, offer: &Offer) -> Result<(Proposal, Option<String>), String> {
    let said: ReplyElement = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let ReplyElement { targets, status, action, evidence, confidence, rationale, commits, quote } =
        said;
    let Some(source) = targets.first() else {
        return Err("it has no targets".to_owned());
    };
    if !offer.sources.contains(source) {
        return Err(format!("{source:?} is not one of the ideas that were shown"));
    }
    let (most, what) = match action {
        Action::Merge => (2, "a merge has an idea and a destination"),
        _ => (1, "only a merge has a second target"),
    };
    if targets.len() != most {
        return Err(format!("it has {}; {what}", counted(targets.len(), "target")));
    }
    for (at, target) in targets.iter().enumerate() {
        if !offer.sources.contains(target) && !offer.destinations.contains(target) {
            return Err(format!("the target {target:?} was not offered"));
        }
        if targets[..at].contains(target) {
            return Err(format!("the target {target:?} is listed twice"));
        }
    }
    if action == Action::Merge && !offer.destinations.contains(&targets[1]) {
        return Err(format!("{:?} was not offered as a destination", targets[1]));
    }
    if !status.allows(action) {
        let (status, action) = (status.as_str(), action.as_str());
        return Err(format!("the action {action} is not allowed for the status {status}"));
    }
    let evidence = clean(&with_commits(&commits, evidence)?, LONGEST);
    if evidence.is_empty() {
        return Err("it has no evidence".to_owned());
    }
    let targets_hash = targets_hash(&targets, offer);
    let rationale = clean(&rationale, LONGEST);
    let id = id(&targets, status, action);
    let proposal =
        Proposal { id, targets, status, action, evidence, confidence, rationale, targets_hash };
    Ok((proposal, quote))
}

/// Adds the separately listed commits to the evidence, so that they are verified like the commits
/// that the evidence cites.
///
/// # Errors
/// Returns a message if there are more than [`COMMITS`] commits, or if one is not a hash.
fn with_commits(commits: &[String], evidence: String) -> Result<String, String> {
    if commits.len() > COMMITS {
        return Err(format!("it names {} commits; at most {COMMITS} are allowed", commits.len()));
    }
    let mut all: Vec<&str> = Vec::new();
    for hash in commits {
        let digits = hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !digits || !(7..=64).contains(&hash.len()) {
            return Err(format!("{hash:?} is not the hash of a commit"));
        }
        if !evidence.contains(hash.as_str()) && !all.contains(&hash.as_str()) {
            all.push(hash);
        }
    }
    if !evidence.trim().is_empty() {
        all.push(&evidence);
    }
    Ok(all.join("; "))
}

/// Returns the id of a proposal: the first 16 hex digits of a hash over the targets in order, the
/// status and the action. JSON keeps the parts separate, whatever characters a path contains.
pub fn id(targets: &[String], status: IdeaStatus, action: Action) -> String {
    let text = serde_json::to_vec(&(targets, status, action)).expect("the parts serialize to JSON");
    Digest::of(&text).short()
}

fn targets_hash(targets: &[String], offer: &Offer) -> String {
    hash_of(targets.iter().map(|target| offer.digests.get(target)))
}

/// Returns the hash over the digests of a proposal's targets, in the form that proposals and
/// decisions record. The hash depends on their order, and on which of them are missing.
pub fn hash_of<'d>(digests: impl IntoIterator<Item = Option<&'d Digest>>) -> String {
    let digests: Vec<Option<&Digest>> = digests.into_iter().collect();
    Digest::of(&serde_json::to_vec(&digests).expect("digests serialize to JSON")).to_string()
}

impl Proposal {
    /// Returns the proposal without its destination, and with another status and action.
    #[must_use]
    pub(super) fn retargeted(mut self, status: IdeaStatus, action: Action, offer: &Offer) -> Self {
        self.targets.truncate(1);
        self.status = status;
        self.targets_hash = targets_hash(&self.targets, offer);
        self.with_action(action)
    }

    /// Returns the proposal with another action and the matching id.
    #[must_use]
    pub fn with_action(mut self, action: Action) -> Self {
        self.action = action;
        self.id = id(&self.targets, self.status, action);
        self
    }

    /// Returns the proposal with secrets removed from its text fields.
    #[must_use]
    pub fn redacted(mut self, redactor: &Redactor) -> Self {
        for words in [&mut self.evidence, &mut self.rationale] {
            *words = redactor.redact(words).into_owned();
        }
        self
    }

    /// Returns whether the idea is kept even though it may be done or a duplicate.
    pub fn is_perhaps(&self) -> bool {
        let claimed = matches!(self.status, IdeaStatus::Implemented | IdeaStatus::Duplicate);
        claimed && self.action == Action::Keep
    }

    /// Formats a proposal that merely names a candidate, as one line for the report.
    pub fn perhaps_line(&self) -> String {
        let what = match self.status {
            IdeaStatus::Duplicate => "perhaps a duplicate",
            _ => "perhaps done",
        };
        format!("{what}: {} — {}", self.targets.join(" into "), clean(&self.evidence, 160))
    }

    /// Formats the proposal as one line for the report.
    pub fn line(&self) -> String {
        let Self { status, action, targets, evidence, .. } = self;
        let target = targets.join(" into ");
        format!("{} {} {target} — {}", status.as_str(), action.as_str(), clean(evidence, 160))
    }
}

/// Returns the string as one line of at most `most` printable characters.
pub fn clean(text: &str, most: usize) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let spaced: String =
        text.chars().take(4 * most).map(|c| if hidden(c) { ' ' } else { c }).collect();
    let line = spaced.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= most {
        return line;
    }
    line.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offer() -> Offer {
        let names = ["ideas/a.md", "ideas/b.md", "ideas/dest.md"];
        Offer {
            sources: vec![names[0].into(), names[1].into()],
            destinations: [names[1].into(), names[2].into()].into(),
            digests: names.map(|name| (name.to_owned(), Digest::of(name.as_bytes()))).into(),
        }
    }

    fn keep(target: &str) -> Value {
        json!({"id": "theirs", "targets": [target], "status": "sidenote", "action": "keep",
               "evidence": "short", "confidence": "low", "rationale": "r", "extra": 1})
    }

    fn checked(values: Vec<Value>) -> CheckedReply {
        check(values.into_iter().map(Ok), &offer())
    }

    #[test]
    fn valid_element_survives_among_invalid_ones() {
        let mut stripped = keep("ideas/a.md");
        stripped["evidence"] = json!(" \n ");
        let mut unknown = keep("ideas/a.md");
        unknown["status"] = json!("abandoned");
        let found = checked(vec![stripped, keep("ideas/b.md"), unknown, json!("text")]);
        assert_eq!(found.proposals.len(), 1);
        assert_eq!(found.proposals[0].targets, ["ideas/b.md"]);
        assert_eq!(
            found.refused.iter().map(|refused| refused.index).collect::<Vec<_>>(),
            [0, 2, 3]
        );
        assert!(found.refused[1].why.contains("abandoned"), "{found:?}");
    }

    #[test]
    fn invalid_or_unoffered_proposals_are_refused() {
        let merge = |targets: Value| {
            json!({"targets": targets, "status": "duplicate", "action": "merge", "evidence": "e",
                   "confidence": "high"})
        };
        for bad in [
            keep("../../etc/passwd"),
            keep("CLAUDE.md"),
            keep("ideas/dest.md"),
            keep("./ideas/a.md"),
            keep("ideas/a.md\u{0}"),
            merge(json!([])),
            merge(json!(["ideas/a.md"])),
            merge(json!(["ideas/a.md", "ideas/a.md"])),
            merge(json!(["ideas/b.md", "ideas/a.md"])),
            merge(json!(["ideas/a.md", "README.md"])),
            merge(json!(["ideas/a.md", "ideas/b.md", "ideas/dest.md"])),
            merge(json!("ideas/a.md")),
            json!({"targets": ["ideas/a.md", "ideas/b.md"], "status": "sidenote", "action": "keep",
                   "evidence": "e", "confidence": "high"}),
            json!({"targets": ["ideas/a.md"], "status": "implemented", "action": "delete", "evidence": "e",
                   "confidence": "high"}),
        ] {
            let found = checked(vec![bad.clone()]);
            assert!(found.proposals.is_empty() && found.refused.len() == 1, "{bad}");
        }
        let good = checked(vec![
            merge(json!(["ideas/a.md", "ideas/dest.md"])),
            merge(json!(["ideas/b.md", "ideas/dest.md"])),
        ]);
        assert_eq!((good.proposals.len(), good.refused.len()), (2, 0));
        let twice = checked(vec![keep("ideas/a.md"), keep("ideas/a.md")]);
        assert_eq!((twice.proposals.len(), twice.refused.len()), (1, 1));
    }

    #[test]
    fn separately_named_commits_become_evidence() {
        let with = |commits: Value, evidence: &str| {
            let mut value = keep("ideas/a.md");
            value["commits"] = commits;
            value["evidence"] = json!(evidence);
            checked(vec![value])
        };
        let evidence =
            |commits: Value, evidence: &str| with(commits, evidence).proposals[0].evidence.clone();
        assert_eq!(evidence(json!(["0123456", "0123456"]), "it did"), "0123456; it did");
        assert_eq!(evidence(json!(["0123456"]), "commit 0123456 did"), "commit 0123456 did");
        assert_eq!(evidence(json!(["0123456"]), " "), "0123456");
        assert_eq!(evidence(json!([]), "x"), "x");
        for bad in [
            json!(["main"]),
            json!(["HEAD~1"]),
            json!(["0123456; x"]),
            json!(vec!["0123456"; 9]),
            json!("0123456"),
        ] {
            assert_eq!(with(bad.clone(), "x").refused.len(), 1, "{bad}");
        }
        assert_eq!(with(json!([]), "").refused.len(), 1, "neither commits nor evidence");
    }

    #[test]
    fn each_status_allows_one_action_besides_keep() {
        let mut allowed = Vec::new();
        for status in IdeaStatus::ALL {
            for action in Action::ALL.into_iter().filter(|it| *it != Action::Keep) {
                let mut targets = vec!["ideas/a.md"];
                if action == Action::Merge {
                    targets.push("ideas/b.md");
                }
                let value = json!({"targets": targets, "status": status, "action": action,
                                   "evidence": "e", "confidence": "low"});
                if checked(vec![value]).proposals.len() == 1 {
                    allowed.push(format!("{} {}", status.as_str(), action.as_str()));
                }
            }
            assert!(status.allows(Action::Keep));
        }
        let expected = [
            "implemented archive",
            "duplicate merge",
            "meritorious promote",
            "sidenote archive",
            "blog-candidate mark-blog",
        ];
        assert_eq!(allowed, expected);
    }

    #[test]
    fn first_valid_proposal_per_idea_wins() {
        let mut other = keep("ideas/a.md");
        other["status"] = json!("meritorious");
        let mut bad = keep("ideas/a.md");
        bad["evidence"] = json!("");
        let found = checked(vec![bad, keep("ideas/a.md"), other]);
        assert_eq!(found.proposals.len(), 1);
        assert_eq!(found.proposals[0].status, IdeaStatus::Sidenote);
        let why = &found.refused[1].why;
        assert!(why.contains("already has a proposal"), "{why}");
        assert!(why.contains(&found.proposals[0].id), "{why}");
    }

    #[test]
    fn ids_depend_on_targets_status_and_action() {
        let targets =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let of = |names: &[&str]| id(&targets(names), IdeaStatus::Duplicate, Action::Merge);
        assert_eq!(of(&["a", "b"]).len(), 16);
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
        // This value must not change, because recorded decisions refer to these ids.
        assert_eq!(id(&targets(&["ideas/a.md"]), IdeaStatus::Implemented, Action::Archive), FROZEN);
        let all = [of(&["a", "b"]), of(&["b", "a"]), of(&["a,b"]), of(&["a\",\"b"]), of(&["ab"])];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        let found = checked(vec![keep("ideas/a.md")]).proposals.remove(0);
        assert_ne!(found.id, "theirs");
        let other = found.clone().with_action(Action::Archive);
        assert_ne!(other.id, found.id);
        assert_eq!(other.targets_hash, found.targets_hash);
    }

    const FROZEN: &str = "8d2000cb19b6e0e6";

    #[test]
    fn displayed_text_is_sanitised_and_truncated() {
        let mut value = keep("ideas/a.md");
        value["evidence"] = json!("\u{1b}[2Jgone\r\n\u{202e}txt.exe");
        value["rationale"] = json!("x".repeat(9000));
        let proposal = checked(vec![value]).proposals.remove(0);
        assert_eq!(proposal.evidence, "[2Jgone txt.exe");
        assert_eq!(proposal.rationale.chars().count(), LONGEST);
        assert_eq!(proposal.line(), "sidenote keep ideas/a.md — [2Jgone txt.exe");
    }
}
