//! All proposals of all passes, newest first, each with its status.
//!
//! The module reads leniently: an invalid element, a damaged file or an unrelated folder never
//! hides the rest, and each invalid element or file is reported. It must never trust a file: an
//! element whose targets are not paths below the ideas folder is refused.

use runner_text::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::digest::Digest;
use runner_engine::publish::{FsError, PublishFs as _, RealFs, RelPath};
use runner_text::json_extract::extract_array;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::LONGEST;
use super::super::decisions::{Decision, Decisions};
use super::super::inventory::{ReadProblem, Reader};
use super::super::proposal::{self, Action, Proposal, clean};
use super::super::spec::DreamSpec;
use super::super::walk::WalkProblem;

/// Why a proposal does not apply to the current content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stale {
    /// The content of a target differs from the content that was triaged.
    Changed,
    /// A target does not exist or cannot be read.
    Gone,
    /// No record shows which content was triaged.
    Unknown,
}

impl Stale {
    /// Describes why the proposal is stale.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Changed => "it has changed since it was examined",
            Self::Gone => "it no longer exists or cannot be read",
            Self::Unknown => "its content at the time of the proposal was not recorded",
        }
    }
}

/// A proposal with its pass and its decision.
#[derive(Clone, Debug)]
pub struct ProposalItem {
    /// The folder of the pass that made the proposal, relative to the project.
    pub pass: String,
    /// The proposal; its `targets_hash` is empty if the file has none.
    pub proposal: Proposal,
    /// Why the proposal does not apply to the current content, if it does not.
    pub stale: Option<Stale>,
    /// Whether a newer pass has a proposal about the same idea.
    pub superseded: bool,
    /// The decision in effect.
    pub decision: Option<Decision>,
}

impl ProposalItem {
    /// Returns whether the user must decide. A proposal needs no decision if it keeps the idea, if
    /// a newer pass replaced it, or if one of its targets no longer exists or cannot be read.
    pub fn waits(&self) -> bool {
        self.is_open() && self.proposal.action != Action::Keep
    }

    /// Returns whether the user should check an idea that is kept even though it may be done or a
    /// duplicate.
    pub fn is_perhaps(&self) -> bool {
        self.is_open() && self.proposal.is_perhaps()
    }

    /// Returns whether the proposal is undecided, and a decision on it would still have an effect.
    fn is_open(&self) -> bool {
        self.decision.is_none() && !self.superseded && self.stale != Some(Stale::Gone)
    }

    /// Returns the time of the pass that made the proposal, or `None` if the name of the pass's
    /// folder is not a valid time.
    pub fn proposed(&self) -> Option<Timestamp> {
        let name = self.pass.rsplit('/').next()?;
        let stamp = name.split_once('Z').map_or(name, |(stamp, _)| stamp);
        let at = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%S", stamp).ok()?;
        at.to_zoned(TimeZone::UTC).ok().map(|at| at.timestamp())
    }

    /// Returns the hash of the triaged content, if it is known.
    pub fn hash(&self) -> Option<&str> {
        Some(self.proposal.targets_hash.as_str()).filter(|hash| !hash.is_empty())
    }
}

/// The proposals of all passes, and the problems encountered while reading them.
#[derive(Clone, Debug, Default)]
pub struct Proposals {
    /// The proposals, newest pass first and in file order within a pass. No id occurs twice.
    pub items: Vec<ProposalItem>,
    /// All decisions, oldest first.
    pub history: Vec<Decision>,
    /// Files and elements that are not valid proposals.
    pub troubles: Vec<WalkProblem>,
}

/// Why the proposals could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ProposalsError {
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The decisions could not be read, so it is unknown which proposals are undecided.
    #[error("{path} {why}")]
    Decisions { path: String, why: String },
    /// The settings do not name a usable folder.
    #[error("{0}")]
    Folder(String),
}

/// The fields that a proposal may have in a file.
#[derive(Deserialize)]
struct ProposalFields {
    id: String,
    targets: Vec<String>,
    status: proposal::IdeaStatus,
    action: Action,
    evidence: String,
    confidence: proposal::Confidence,
    #[serde(default)]
    rationale: String,
    #[serde(default)]
    targets_hash: Option<String>,
}

impl Proposals {
    /// Reads the proposals of all passes.
    ///
    /// # Errors
    /// Returns a [`ProposalsError`] if the project folder, the dreams folder or the decisions
    /// cannot be read, or if the setting `dreams` is not a usable path. A pass that cannot be read
    /// is reported in `troubles` instead.
    pub fn read(root: &Path, spec: &DreamSpec) -> Result<Self, ProposalsError> {
        let fs = RealFs::open(root)?;
        let dreams =
            RelPath::new(&spec.dreams).map_err(|bad| ProposalsError::Folder(bad.to_string()))?;
        let reader = Reader::open(root, LONGEST)?;
        let decisions = decisions(&reader, spec)?;
        let mut passes: Vec<(u64, u32, String)> =
            fs.list(&dreams)?.unwrap_or_default().iter().filter_map(|name| pass(name)).collect();
        passes.sort_unstable_by(|a, b| b.cmp(a));
        let mut book = Self::default();
        let mut ids = BTreeSet::new();
        // Ideas for which a newer pass has a proposal.
        let mut reported: BTreeSet<String> = BTreeSet::new();
        for (_, _, name) in passes {
            let folder = format!("{}/{name}", spec.dreams);
            let found = book.elements(&reader, &folder);
            let mut here = Vec::new();
            for (at, element) in found.into_iter().enumerate() {
                let read = element.and_then(|value| checked(value, spec));
                match read {
                    Ok(proposal) => {
                        here.push(proposal.targets[0].clone());
                        if !ids.insert(proposal.id.clone()) {
                            continue;
                        }
                        let superseded = reported.contains(&proposal.targets[0]);
                        book.items.push(ProposalItem {
                            pass: folder.clone(),
                            proposal,
                            stale: None,
                            superseded,
                            decision: None,
                        });
                    }
                    Err(why) => book.troubles.push(WalkProblem {
                        path: format!("{folder}/proposals.json"),
                        why: format!("element {at}: {}", clean(&why, 300)),
                    }),
                }
            }
            reported.extend(here);
        }
        let ideas = Reader::open(root, spec.max_idea_bytes.max(LONGEST))?;
        let mut digests: BTreeMap<String, Option<Digest>> = BTreeMap::new();
        for item in &mut book.items {
            item.decision = decisions.of(&item.proposal.id, item.hash()).cloned();
            let targets = &item.proposal.targets;
            for target in targets {
                if !digests.contains_key(target) {
                    digests.insert(target.clone(), ideas.digest(target).ok());
                }
            }
            let now: Vec<Option<&Digest>> =
                targets.iter().map(|target| digests[target].as_ref()).collect();
            let same = item.hash().map(|hash| hash == proposal::hash_of(now.clone()));
            item.stale = match same {
                _ if now.contains(&None) => Some(Stale::Gone),
                Some(true) => None,
                Some(false) => Some(Stale::Changed),
                None => Some(Stale::Unknown),
            };
        }
        book.history = decisions.history;
        Ok(book)
    }

    /// Returns the undecided proposals.
    pub fn undecided(&self) -> impl Iterator<Item = &ProposalItem> {
        self.items.iter().filter(|item| item.decision.is_none())
    }

    /// Returns the targets of the archives and merges that are awaiting a decision.
    pub(in crate::dream) fn moves(&self) -> Vec<Vec<String>> {
        let moves = |item: &&ProposalItem| {
            item.waits() && matches!(item.proposal.action, Action::Archive | Action::Merge)
        };
        self.items.iter().filter(moves).map(|item| item.proposal.targets.clone()).collect()
    }

    /// Returns the proposal with this id, or the only proposal whose id begins with `id`.
    ///
    /// # Errors
    /// Returns all ids that begin with `id` if their number is not one. The list is empty if `id`
    /// is empty.
    pub fn find(&self, id: &str) -> Result<&ProposalItem, Vec<&str>> {
        let exact = self.items.iter().find(|item| item.proposal.id == id);
        if let Some(item) = exact {
            return Ok(item);
        }
        let begin = |item: &&ProposalItem| !id.is_empty() && item.proposal.id.starts_with(id);
        let found: Vec<&ProposalItem> = self.items.iter().filter(begin).collect();
        match found.as_slice() {
            [only] => Ok(only),
            several => Err(several.iter().map(|item| item.proposal.id.as_str()).collect()),
        }
    }

    /// Reads the elements of a pass's file.
    fn elements(&mut self, reader: &Reader, folder: &str) -> Vec<Result<Value, String>> {
        let path = format!("{folder}/proposals.json");
        let bytes = match reader.read(&path) {
            Ok((bytes, _)) => bytes,
            // The pass left no proposals.
            Err(ReadProblem::Gone) => return Vec::new(),
            Err(problem) => {
                let why = problem.to_string();
                self.troubles.push(WalkProblem { path, why });
                return Vec::new();
            }
        };
        if let Ok(values) = serde_json::from_slice::<Vec<Value>>(&bytes) {
            return values.into_iter().map(Ok).collect();
        }
        match extract_array(&String::from_utf8_lossy(&bytes)) {
            Ok(elements) => elements
                .into_iter()
                .map(|element| element.map_err(|error| error.to_string()))
                .collect(),
            Err(error) => {
                let why = format!("is not a list of proposals: {error}");
                self.troubles.push(WalkProblem { path, why });
                Vec::new()
            }
        }
    }
}

/// Reads the user's decisions.
///
/// # Errors
/// Returns an error if the file exists but cannot be read.
pub(super) fn decisions(reader: &Reader, spec: &DreamSpec) -> Result<Decisions, ProposalsError> {
    let path = spec.decisions_path();
    match reader.read(&path) {
        Ok((bytes, _)) => Ok(Decisions::read(&bytes)),
        Err(ReadProblem::Gone) => Ok(Decisions::default()),
        Err(problem) => Err(ProposalsError::Decisions { path, why: problem.to_string() }),
    }
}

/// Parses the name of a pass's folder: the time of the pass and its number within that second.
fn pass(name: &str) -> Option<(u64, u32, String)> {
    let (stamp, number) = match name.split_once("Z-") {
        Some((stamp, number)) => (stamp, number.parse().ok()?),
        None => (name.strip_suffix('Z')?, 1),
    };
    let (day, time) = stamp.split_once('T')?;
    let digits =
        |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(day, 8) || !digits(time, 6) {
        return None;
    }
    Some((format!("{day}{time}").parse().ok()?, number, name.to_owned()))
}

/// Returns whether a string is a valid id, which can safely be used as a folder name.
pub(super) fn good_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=64).contains(&id.len()) && id.bytes().all(plain)
}

/// Parses an element as a proposal that can be acted on.
fn checked(value: Value, spec: &DreamSpec) -> Result<Proposal, String> {
    let ProposalFields {
        id,
        targets,
        status,
        action,
        evidence,
        confidence,
        rationale,
        targets_hash,
    } = serde_json::from_value(value).map_err(|error| error.to_string())?;
    if !good_id(&id) {
        return Err(format!("{id:?} is not an id"));
    }
    let wanted = if action == Action::Merge { 2 } else { 1 };
    if targets.len() != wanted {
        let action = action.as_str();
        return Err(format!("{action} has {}, not {}", counted(wanted, "target"), targets.len()));
    }
    for target in &targets {
        idea(target, spec)?;
    }
    if targets.len() == 2 && targets[0] == targets[1] {
        return Err(format!("{:?} cannot be merged into itself", targets[0]));
    }
    let evidence = clean(&evidence, proposal::LONGEST);
    if evidence.is_empty() {
        return Err("it has no evidence".to_owned());
    }
    Ok(Proposal {
        id,
        targets,
        status,
        action,
        evidence,
        confidence,
        rationale: clean(&rationale, proposal::LONGEST),
        targets_hash: targets_hash.unwrap_or_default(),
    })
}

/// Checks that a path is below the ideas folder, and in neither the folder for archived ideas nor
/// the dreams folder.
///
/// # Errors
/// Returns the reason if the check fails.
pub(super) fn idea(path: &str, spec: &DreamSpec) -> Result<(), String> {
    let rel = RelPath::new(path).map_err(|bad| bad.to_string())?;
    let within = |folder: &str| RelPath::new(folder).is_ok_and(|folder| rel.is_within(&folder));
    if !within(&spec.ideas) || rel.as_str() == spec.ideas {
        return Err(format!("{path:?} is not below {}", spec.ideas));
    }
    if within(&spec.done) || within(&spec.dreams) {
        return Err(format!("{path:?} is not an idea that can be decided on"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn proposal(id: &str, target: &str, content: &[u8]) -> String {
        let hash = proposal::hash_of([Some(&Digest::of(content))]);
        format!(
            r#"{{"id":"{id}","targets":["{target}"],"status":"sidenote","action":"keep","evidence":"e","confidence":"low","rationale":"r","targets_hash":"{hash}"}}"#
        )
    }

    fn place(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn read(folder: &tempfile::TempDir) -> Proposals {
        Proposals::read(folder.path(), &DreamSpec::default()).unwrap()
    }

    #[test]
    fn valid_proposal_survives_and_others_are_reported() {
        let good = proposal("01", "ideas/a.md", b"a");
        let no_evidence = good.replace(r#""e""#, r#""""#).replace("01", "02");
        let foreign = good.replace("sidenote", "abandoned");
        let outside = good.replace("ideas/a.md", "../etc/passwd");
        let file = format!("[{no_evidence},{good},{foreign},{outside}]");
        let folder =
            place(&[("ideas/a.md", "a"), ("dreams/20260101T000000Z/proposals.json", &file)]);
        let book = read(&folder);
        assert_eq!(book.items.len(), 1);
        assert_eq!((&*book.items[0].proposal.id, book.items[0].stale), ("01", None));
        assert_eq!(book.troubles.len(), 3, "{:?}", book.troubles);
        // The file is truncated in the middle of an element; the complete element is still read.
        let cut = format!("[{good},{}", &good[..40]);
        fs::write(folder.path().join("dreams/20260101T000000Z/proposals.json"), cut).unwrap();
        let book = read(&folder);
        assert_eq!((book.items.len(), book.troubles.len()), (1, 1), "{:?}", book.troubles);
    }

    #[test]
    fn proposals_of_all_passes_are_listed_newest_first() {
        let (a, b) = (proposal("a", "ideas/a.md", b"a"), proposal("b", "ideas/b.md", b"b"));
        let older = proposal("old", "ideas/a.md", b"before");
        let folder = place(&[
            ("ideas/a.md", "a"),
            ("dreams/20260101T000000Z/proposals.json", &format!("[{older},{b}]")),
            ("dreams/20260101T000000Z-2/proposals.json", &format!("[{b}]")),
            ("dreams/20260102T000000Z/proposals.json", &format!("[{a}]")),
            ("dreams/20260103T000000Z/other.json", "[]"),
            ("dreams/20260104T000000Z/proposals.json", "gone wrong"),
            ("dreams/notes/proposals.json", &format!("[{older}]")),
        ]);
        let book = read(&folder);
        let reported: Vec<(&str, Option<Stale>, bool)> =
            book.items.iter().map(|it| (&*it.proposal.id, it.stale, it.superseded)).collect();
        assert_eq!(
            reported,
            [
                ("a", None, false),
                ("b", Some(Stale::Gone), false),
                ("old", Some(Stale::Changed), true)
            ]
        );
        assert_eq!(book.items[1].pass, "dreams/20260101T000000Z-2");
        assert_eq!(book.items[1].proposed().unwrap().to_string(), "2026-01-01T00:00:00Z");
        // None needs a decision, because each proposes to keep its idea.
        assert_eq!(book.items.iter().filter(|it| it.waits()).count(), 0);
        assert_eq!(book.troubles.len(), 1);
        assert_eq!(book.find("ol").unwrap().proposal.id, "old");
        assert!(book.find("").is_err() && book.find("x").is_err());
    }

    #[test]
    fn decision_applies_to_id_and_content_hash() {
        let a = proposal("a", "ideas/a.md", b"a");
        let hash = proposal::hash_of([Some(&Digest::of(b"a"))]);
        let line = |hash: &str| {
            format!(
                "- {{\"proposal_id\":\"a\",\"decision\":\"rejected\",\"action\":\"keep\",\"at\":\"x\",\"targets_hash\":\"{hash}\"}}\n"
            )
        };
        let folder = place(&[
            ("ideas/a.md", "a"),
            ("dreams/20260101T000000Z/proposals.json", &format!("[{a}]")),
            ("dreams/ledger.md", &line("another")),
        ]);
        assert_eq!(read(&folder).undecided().count(), 1);
        fs::write(folder.path().join("dreams/ledger.md"), line(&hash)).unwrap();
        let book = read(&folder);
        assert_eq!(book.undecided().count(), 0);
        assert_eq!(book.items[0].decision.as_ref().unwrap().decision, "rejected");
        fs::remove_file(folder.path().join("dreams/ledger.md")).unwrap();
        fs::create_dir(folder.path().join("dreams/ledger.md")).unwrap();
        let error = Proposals::read(folder.path(), &DreamSpec::default()).unwrap_err();
        assert!(error.to_string().contains("dreams/ledger.md"), "{error}");
    }
}
