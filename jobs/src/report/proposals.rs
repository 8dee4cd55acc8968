//! The proposals of the night's dreams, as their files currently state them, with the current
//! decisions.
//!
//! The proposals exist only in the files: each report reads them again and never stores them. The
//! files are not trusted: an entry that is not a proposal is left out and counted, and a command is
//! built only from a valid id.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::run_line::RunLine;
use crate::dream::decisions::Decisions;
use crate::dream::inventory::Reader;
use crate::dream::proposal::{Action, Confidence, IdeaStatus, clean};

/// Maximum size in bytes of a file that is read.
const LARGEST: u64 = 16 * 1024 * 1024;
/// Maximum number of proposals in one report.
const MOST: usize = 400;
/// Maximum length of the evidence and the rationale, in characters.
const LONGEST: usize = 400;
/// The name of the file in which a pass leaves its proposals.
const FILE: &str = "/proposals.json";

/// A proposal in the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// The name of the current decision, or `None` if the proposal still waits for a decision.
    pub decided: Option<String>,
    /// The flag that selects the dream job in a command, if there are several dream jobs.
    #[serde(default)]
    pub flag: String,
}

impl ReportedProposal {
    /// Checks whether a person must decide. A proposal to keep an idea as it is needs no decision.
    pub fn waits(&self) -> bool {
        self.decided.is_none() && self.action != Action::Keep
    }

    /// Checks whether the idea is kept although it is perhaps done or a duplicate.
    pub fn is_perhaps(&self) -> bool {
        let claimed = matches!(self.status, IdeaStatus::Implemented | IdeaStatus::Duplicate);
        claimed && self.action == Action::Keep
    }

    /// Returns the command that does `verb` with the proposal: `show`, `accept` or `reject`.
    pub fn command(&self, verb: &str) -> String {
        format!("runner dream {verb} {}{}", self.id, self.flag)
    }
}

/// The fields that a proposal may have in a file.
#[derive(Deserialize)]
struct ProposalFields {
    id: String,
    targets: Vec<String>,
    status: IdeaStatus,
    action: Action,
    confidence: Confidence,
    #[serde(default)]
    evidence: String,
    #[serde(default)]
    rationale: String,
    #[serde(default)]
    targets_hash: Option<String>,
}

/// Reads the proposals that these runs left, those that wait for a person first, and the number of
/// proposals that were left out.
pub(super) fn read(root: &Path, runs: &[RunLine], several: bool) -> (Vec<ReportedProposal>, usize) {
    let Ok(reader) = Reader::open(root, LARGEST) else {
        return (Vec::new(), 0);
    };
    let mut found = Vec::new();
    for run in runs.iter().filter(|run| run.kind == "dream") {
        for path in &run.artifacts {
            let Some(dreams) = path
                .strip_suffix(FILE)
                .and_then(|pass| pass.rsplit_once('/'))
                .map(|(dreams, _)| dreams)
            else {
                continue;
            };
            let Ok((bytes, _)) = reader.read(path) else {
                continue;
            };
            let decisions = reader
                .read(&format!("{dreams}/ledger.md"))
                .map_or_else(|_| Decisions::default(), |(bytes, _)| Decisions::read(&bytes));
            let flag = flag(&run.job, several);
            let elements: Vec<Value> = serde_json::from_slice(&bytes).unwrap_or_default();
            let written =
                elements.into_iter().filter_map(|element| serde_json::from_value(element).ok());
            found.extend(written.filter_map(|it| proposed(it, &run.job, &flag, &decisions)));
        }
    }
    found.sort_by_key(|it| (!it.waits(), it.decided.is_some()));
    let more = found.len().saturating_sub(MOST);
    found.truncate(MOST);
    (found, more)
}

/// Returns the flag that selects this dream job in a command.
fn flag(job: &str, several: bool) -> String {
    if several || job != "dream" { format!(" --job {}", shell_word(job)) } else { String::new() }
}

fn proposed(
    it: ProposalFields,
    job: &str,
    flag: &str,
    decisions: &Decisions,
) -> Option<ReportedProposal> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !(1..=64).contains(&it.id.len()) || !it.id.bytes().all(plain) || it.id.starts_with('-') {
        return None;
    }
    let hash = it.targets_hash.as_deref().filter(|hash| !hash.is_empty());
    let decided = decisions.of(&it.id, hash).map(|it| clean(&it.decision, 40));
    Some(ReportedProposal {
        job: job.to_owned(),
        targets: it.targets.iter().take(2).map(|it| clean(it, 200)).collect(),
        status: it.status,
        action: it.action,
        confidence: it.confidence,
        evidence: clean(&it.evidence, LONGEST),
        rationale: clean(&it.rationale, LONGEST),
        decided,
        flag: flag.to_owned(),
        id: it.id,
    })
}

/// Quotes a text as one word of a shell command, if it needs quotes.
pub(super) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':');
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample_tests as sample;
    use std::fs;

    fn element(id: &str, action: &str, status: &str) -> Value {
        serde_json::json!({
            "id": id, "targets": ["ideas/a.md"], "status": status, "action": action,
            "evidence": "three\u{202e} words", "confidence": "high", "targets_hash": "h",
        })
    }

    #[test]
    fn waiting_proposals_come_first() {
        let root = tempfile::tempdir().unwrap();
        let pass = root.path().join("dreams/20261121T000000Z");
        fs::create_dir_all(&pass).unwrap();
        let all = serde_json::json!([
            element("aa", "keep", "sidenote"),
            element("bb", "archive", "implemented"),
            element("cc", "archive", "implemented"),
            element("-x", "archive", "implemented"),
            element("a;rm -rf ~", "archive", "implemented"),
            7,
        ]);
        fs::write(pass.join("proposals.json"), all.to_string()).unwrap();
        let decided = r#"- {"proposal_id":"bb","decision":"accepted","targets_hash":"h"}"#;
        fs::write(root.path().join("dreams/ledger.md"), decided).unwrap();
        let mut run = sample::run("dream", "dream");
        run.artifacts = vec!["dreams/20261121T000000Z/proposals.json".into(), "b.md".into()];
        let (found, more) = read(root.path(), &[run.clone()], false);
        let reported: Vec<(&str, bool)> = found.iter().map(|it| (&*it.id, it.waits())).collect();
        assert_eq!(reported, [("cc", true), ("aa", false), ("bb", false)]);
        assert_eq!(more, 0);
        assert_eq!(found[0].command("accept"), "runner dream accept cc");
        assert!(!found[0].evidence.contains('\u{202e}'), "{found:?}");
        assert_eq!(found[2].decided.as_deref(), Some("accepted"));
        let (found, _) = read(root.path(), &[run], true);
        assert_eq!(found[0].command("show"), "runner dream show cc --job dream");
    }

    #[test]
    fn a_name_is_one_word_of_a_shell() {
        assert_eq!(shell_word("night.1"), "night.1");
        assert_eq!(shell_word("a b;c'd"), "'a b;c'\\''d'");
        assert_eq!(shell_word("--all"), "'--all'");
    }
}
