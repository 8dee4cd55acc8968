//! Audits a carry's claims: gives the audit agent a checklist, and records its finding on each
//! claim next to the entry.
//!
//! ```text
//! Entry::claims ──checklist──> the audit's prompt ──> final message
//!     ──read──> CheckedClaim ──record──> <id>.audit.json
//! ```
//!
//! Runner checks simple claims itself (`claims.rs`). A claim that neither runner nor the audit
//! checked is *unknown*, and is never treated as confirmed. This module must never change an entry.

use std::fmt::{self, Write as _};

use jiff::Timestamp;
use runner_engine::ids::RunId;
use runner_engine::scope::{Expect, Scope};
use serde::{Deserialize, Serialize};

use super::entry::Entry;
use crate::JobError;
use crate::json::pretty;

/// Maximum size of an audit record, in bytes.
const LARGEST: u64 = 1024 * 1024;
/// Maximum length of a reason, in characters.
const LONGEST: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimFinding {
    /// The claim is true.
    Holds,
    /// The claim is false.
    Fails,
    /// Neither runner nor the audit found the claim to be true or false.
    Unknown,
}

impl fmt::Display for ClaimFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::Unknown => "not checked",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedClaim {
    /// The claim as stated in the carry.
    pub claim: String,
    pub finding: ClaimFinding,
    /// The reason for the finding, from runner or from the audit.
    pub why: String,
}

/// An entry's audit record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    pub entry: String,
    pub run: RunId,
    pub at: Timestamp,
    pub claims: Vec<CheckedClaim>,
}

impl Audit {
    /// Returns the claims that were found to be false.
    pub fn failed(&self) -> impl Iterator<Item = &CheckedClaim> {
        let failed = |it: &&CheckedClaim| it.finding == ClaimFinding::Fails;
        self.claims.iter().filter(failed)
    }
}

/// Returns the path of an entry's audit record, relative to the project.
pub fn path(folder: &str, entry: &str) -> String {
    format!("{folder}/{entry}.audit.json")
}

/// Returns the checklist for the audit agent. It is empty if there are no claims. The caller must
/// fence the checklist, because a model wrote the claims.
pub fn checklist(claims: &[String]) -> String {
    let mut out = String::new();
    for (at, claim) in claims.iter().enumerate() {
        let _ = writeln!(out, "claim {}: {claim}", at + 1);
    }
    out
}

/// The answer format for the audit agent.
pub const INSTRUCTIONS: &str = "Look at each claim yourself, as it is now. End your answer with one line for \
each claim and nothing after them: `claim N: holds — why`, `claim N: fails — why`, or `claim N: unknown — why`.";

/// Parses an audit's final message into a finding on each claim. A claim without a finding is
/// unknown. A later line about the same claim replaces an earlier one.
pub fn read(claims: &[String], answer: &str) -> Vec<CheckedClaim> {
    let mut checked: Vec<CheckedClaim> = claims
        .iter()
        .map(|claim| CheckedClaim {
            claim: claim.clone(),
            finding: ClaimFinding::Unknown,
            why: "the audit reported no finding".to_owned(),
        })
        .collect();
    for line in answer.lines() {
        if let Some((number, finding, why)) = line_of(line)
            && let Some(one) = number.checked_sub(1).and_then(|at| checked.get_mut(at))
        {
            one.finding = finding;
            one.why = why;
        }
    }
    checked
}

/// Parses a line about one claim, such as `claim 2: fails — why`, `2. unknown`,
/// `**Claim 2** - holds` or a table row.
fn line_of(line: &str) -> Option<(usize, ClaimFinding, String)> {
    let mark = |c: char| c.is_whitespace() || "-*_`#>|:—–.)([]".contains(c);
    let rest = line.trim_start_matches(mark);
    let named = rest.get(.."claim".len()).is_some_and(|head| head.eq_ignore_ascii_case("claim"));
    let rest = if named { rest["claim".len()..].trim_start_matches(mark) } else { rest };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number = rest[..digits].parse().ok()?;
    let rest = rest[digits..].trim_start_matches(mark);
    let word: String = rest.chars().take_while(|c| c.is_ascii_alphabetic()).collect();
    let finding = match word.to_ascii_lowercase().as_str() {
        "holds" | "hold" | "true" | "confirmed" => ClaimFinding::Holds,
        "fails" | "fail" | "failed" | "false" => ClaimFinding::Fails,
        "unknown" | "unclear" => ClaimFinding::Unknown,
        _ => return None,
    };
    let why = rest[word.len()..].trim_matches(mark);
    let why: String = why.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
    Some((number, finding, why))
}

/// Stages an entry's audit record. An entry without claims gets no record.
///
/// # Errors
/// Returns an error if the file cannot be staged.
pub fn record(
    scope: &mut Scope,
    folder: &str,
    entry: &Entry,
    claims: Vec<CheckedClaim>,
    (run, at): (&RunId, Timestamp),
) -> Result<Option<Audit>, JobError> {
    if claims.is_empty() {
        return Ok(None);
    }
    let audit = Audit { entry: entry.id.clone(), run: run.clone(), at, claims };
    let text = pretty(&audit);
    scope.stage(&path(folder, &entry.id), text.as_bytes(), Expect::Current)?;
    Ok(Some(audit))
}

/// Returns an entry's audit record, or `None` if there is none or it cannot be read.
pub fn read_record(scope: &Scope, folder: &str, entry: &str) -> Option<Audit> {
    let (bytes, _) = scope.inspect(&path(folder, entry), LARGEST).ok()??;
    let audit: Audit = serde_json::from_slice(&bytes).ok()?;
    (audit.entry == entry).then_some(audit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_without_a_finding_are_unknown() {
        let claims: Vec<String> =
            ["the check is clean", "the table renders", "nothing else"].map(str::to_owned).into();
        let answer = "Claim 1: fails — I guess\nwords\n- claim 1: **holds** — ran it\nclaim 2: FAILS: it does not\n\
                      claim 9: holds\nclaim 0: fails\nclaim x: holds\nclaim 3: perhaps\n";
        let checked = read(&claims, answer);
        let found: Vec<(ClaimFinding, &str)> =
            checked.iter().map(|it| (it.finding, it.why.as_str())).collect();
        assert_eq!(
            found,
            [
                (ClaimFinding::Holds, "ran it"),
                (ClaimFinding::Fails, "it does not"),
                (ClaimFinding::Unknown, "the audit reported no finding"),
            ]
        );
        assert_eq!(checklist(&claims).lines().count(), 3);
    }

    #[test]
    fn lenient_forms_of_findings_are_read() {
        let claims: Vec<String> = (1..=9).map(|n| format!("claim text {n}")).collect();
        let answer = "- **claim 1**: fails\n**Claim 2:** holds — yes\n3. holds\n| 4 | fails | it broke |\n\
                      Claim #5 - true, I ran it\n* `claim 6`: unknown\n### Claim 7 — **FAILED**: no\n\
                      8) confirmed\n9 tests ran and 1 failed\n2026 holds\n";
        let found: String = (read(&claims, answer).iter())
            .map(|it| match it.finding {
                ClaimFinding::Holds => 'h',
                ClaimFinding::Fails => 'f',
                ClaimFinding::Unknown => '?',
            })
            .collect();
        assert_eq!(found, "fhhfh?fh?");
        assert_eq!(read(&claims, answer)[3].why, "it broke");
    }

    #[test]
    fn audit_record_round_trips() {
        let folder = tempfile::tempdir().unwrap();
        let mut scope = Scope::open(folder.path(), &["rem"], ".runner/staging/x").unwrap();
        let entry = Entry { id: "2026-06-10-1430".into(), ..Entry::default() };
        let now = Timestamp::UNIX_EPOCH;
        let run = RunId::new(now);
        assert_eq!(record(&mut scope, "rem", &entry, Vec::new(), (&run, now)).unwrap(), None);
        let mut entry = entry;
        entry.sections.carry = vec!["verified this cycle: a; b".into()];
        let claims = read(&entry.claims(), "claim 2: fails — no");
        let audit = record(&mut scope, "rem", &entry, claims, (&run, now)).unwrap().unwrap();
        assert_eq!(audit.failed().count(), 1);
        std::fs::create_dir(folder.path().join("rem")).unwrap();
        let path = folder.path().join(path("rem", &entry.id));
        std::fs::write(&path, serde_json::to_vec(&audit).unwrap()).unwrap();
        assert_eq!(read_record(&scope, "rem", &entry.id), Some(audit));
        std::fs::write(&path, "{}").unwrap();
        assert_eq!(read_record(&scope, "rem", &entry.id), None);
    }
}
