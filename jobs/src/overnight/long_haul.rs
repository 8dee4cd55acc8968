//! Runs the long haul: a second, wider search if the first packets are thin and time is left.
//!
//! ```text
//! few packets, or at least half of low confidence? ──no──> not active
//!   └── yes ──> probe: a brief, if there is none ──> probe: one uncertain packet, then the next …
//!                  └── two in a row that add nothing, none left, MOST, cancelled, no time: the end
//! ```
//!
//! A probe searches the corpus, the history and the tracked files for a packet's words, with a
//! lower threshold than the first pass. No model is called, because an opinion is not evidence. A
//! probe must never add evidence that is already listed, and never lower a confidence.

use std::collections::BTreeSet;

use runner_text::terms::terms;
use serde::{Deserialize, Serialize};

use super::corpus::brief::brief;
use super::corpus::index::Search;
use super::corpus::{Corpus, FOLDER as CORPUS};
use super::facts::Facts;
use super::packet::Packet;
use super::state::Night;
use super::summary::LongHaul;

/// Packets are considered thin if there are fewer than this many.
const FEW: usize = 3;
/// Maximum number of probes.
const MOST: usize = 12;
/// Number of consecutive probes without new evidence after which the long haul ends.
const IDLE: u64 = 2;
/// Maximum number of lines of each kind that one probe adds.
const EACH: usize = 2;
/// Minimum share of a packet's words that a node must contain to count as evidence.
const SPEAKS: f64 = 0.3;
/// Number of words that a commit's subject must share with a title to count as evidence. One word
/// is enough if the commit touches a target file.
const SHARED: usize = 2;
const CORROBORATION: &str = "packet-corroboration.json";
const FALLBACK: &str = "briefing-fallback.json";

/// The content of `packet-corroboration.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Corroboration {
    pub schema_version: u32,
    pub run_id: String,
    /// Why the long haul ran.
    pub trigger_reason: String,
    /// Why the long haul ended.
    pub exit_reason: String,
    pub probes: Vec<Probe>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The probe number, starting at 1.
    pub number: u64,
    /// `briefing` or `packet`.
    pub lens: String,
    /// The packet's id, or `None` for a briefing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<String>,
    /// The packet's title, or `None` for a briefing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The new evidence that the probe found.
    pub added: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence_before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence_after: Option<String>,
}

/// Returns why the packets are thin, or `None` if they are not.
pub fn thin(packets: &[Packet]) -> Option<String> {
    let low = packets.iter().filter(|it| is_low(it)).count();
    match packets.len() {
        0 => Some("there is no packet".to_owned()),
        1 => Some("there is only 1 packet".to_owned()),
        count if count < FEW => Some(format!("there are only {count} packets")),
        count if low * 2 >= count => Some(format!("{low} of {count} packets have low confidence")),
        _ => None,
    }
}

fn is_low(packet: &Packet) -> bool {
    packet.confidence.as_deref().unwrap_or("low") == "low"
}

/// Searches for more evidence for a packet, adds it to the packet and returns it. New evidence also
/// updates the packet's tests, and may raise its confidence.
pub fn corroborate(packet: &mut Packet, search: &Search<'_>, facts: &Facts) -> Vec<String> {
    let words = format!("{}\n{}", packet.title, packet.description);
    let title: BTreeSet<String> = terms(&packet.title).into_iter().collect();
    let mut found: Vec<String> = Vec::new();
    let known = |line: &str, packet: &Packet| packet.evidence.iter().any(|it| it == line);
    let hits = search.hits(&words, 8);
    let speak = hits.iter().filter(|hit| hit.covered >= SPEAKS);
    let lines = speak.map(|hit| format!("{CORPUS}/{}", hit.node.path));
    found.extend(lines.filter(|line| !known(line, packet)).take(EACH));
    let about = facts.sources.commits.iter().filter(|commit| {
        let own: BTreeSet<String> = terms(&commit.subject).into_iter().collect();
        let touches = commit.paths.iter().any(|path| packet.target_files.contains(path));
        let shared = own.intersection(&title).count();
        shared >= SHARED || (touches && shared > 0)
    });
    let lines = about.map(|commit| {
        let short: String = commit.hash.chars().take(7).collect();
        format!("commit {short} {}", commit.subject)
    });
    found.extend(lines.filter(|line| !known(line, packet)).take(EACH));
    // A tracked file counts as evidence if the packet's text contains all the words in the file's
    // name, and these words have at least four letters in total.
    let own: BTreeSet<String> = terms(&words).into_iter().collect();
    let named = facts.tracked.iter().filter(|path| {
        let name = path.rsplit('/').next().unwrap_or(path);
        let stem = name.split('.').next().unwrap_or(name);
        let stem = terms(stem);
        stem.iter().map(String::len).sum::<usize>() >= 4
            && stem.iter().all(|term| own.contains(term))
    });
    let files: Vec<String> = named
        .filter(|path| !path.starts_with(CORPUS) && !known(path, packet))
        .take(EACH)
        .cloned()
        .collect();
    for file in files {
        if !packet.target_files.contains(&file) {
            packet.target_files.push(file.clone());
        }
        found.push(file);
    }
    if !found.is_empty() {
        packet.evidence.extend(found.iter().cloned());
        packet.likely_tests = facts.tests_of(&packet.target_files);
        let more = packet.evidence.len() - 1;
        let sure = match (more, packet.target_files.is_empty()) {
            (0, true) => "low",
            (_, true) | (1, false) => "medium",
            _ => "high",
        };
        if rank(sure) > rank(packet.confidence.as_deref().unwrap_or("low")) {
            packet.confidence = Some(sure.to_owned());
        }
    }
    found
}

fn rank(confidence: &str) -> usize {
    super::council::packet::CONFIDENCES.iter().position(|it| *it == confidence).unwrap_or(0)
}

impl Night<'_, '_> {
    /// Searches for more evidence if the packets are thin and time is left. The summary states why
    /// the long haul ended or did not run.
    pub(super) fn long_haul(&mut self, corpus: &Corpus, packets: &mut [Packet]) {
        let mut reported = LongHaul { enabled: true, ..LongHaul::default() };
        let Some(why) = thin(packets) else {
            reported.exit_reason =
                format!("the first {} packets need no more evidence", packets.len());
            self.summary.long_haul = Some(reported);
            return;
        };
        reported.trigger_reason = why;
        if self.time_left().is_zero() {
            reported.exit_reason = "no time is left".to_owned();
            self.summary.long_haul = Some(reported);
            return;
        }
        reported.active = true;
        self.log(&format!("long haul: {}", reported.trigger_reason));
        self.ctx.progress.step("long haul", 0, 0);
        let search = Search::active(corpus, self.date);
        let mut probes: Vec<Probe> = Vec::new();
        if self.summary.briefing.is_none() {
            probes.push(self.brief_instead(corpus, packets));
        }
        let wanted: Vec<usize> = (0..packets.len())
            .filter(|at| packets[*at].confidence.as_deref() != Some("high"))
            .filter(|at| packets[*at].queue_backed != Some(false))
            .collect();
        let mut wanted = wanted.into_iter();
        reported.exit_reason = loop {
            if idle(&probes) >= IDLE {
                break format!("{IDLE} probes in a row added nothing");
            }
            if probes.len() >= MOST {
                break format!("{MOST} probes were made");
            }
            if self.time_left().is_zero() || self.ctx.cancel.is_cancelled() {
                break "no time was left, or the run was cancelled".to_owned();
            }
            let Some(at) = wanted.next() else {
                break "every packet that needed more evidence was probed".to_owned();
            };
            let packet = &mut packets[at];
            let before = packet.confidence.clone();
            let added = corroborate(packet, &search, &self.facts);
            probes.push(Probe {
                number: probes.len() as u64 + 1,
                lens: "packet".to_owned(),
                packet: Some(packet.id.clone()),
                title: Some(packet.title.clone()),
                added,
                confidence_before: before.or_else(|| Some("low".to_owned())),
                confidence_after: packet.confidence.clone().or_else(|| Some("low".to_owned())),
            });
        };
        reported.probe_count = probes.len() as u64;
        reported.zero_delta_probe_streak = idle(&probes);
        let kept = Corroboration {
            schema_version: 1,
            run_id: self.summary.run_id.clone(),
            trigger_reason: reported.trigger_reason.clone(),
            exit_reason: reported.exit_reason.clone(),
            probes,
        };
        self.summary.long_haul = Some(reported);
        self.leave("packet-corroboration", CORROBORATION, &kept);
    }

    /// Builds a brief about the goal and the titles of the first packets, for a night without a
    /// brief.
    fn brief_instead(&mut self, corpus: &Corpus, packets: &[Packet]) -> Probe {
        let titles = packets.iter().take(FEW).map(|it| it.title.as_str());
        let goal = self.summary.goal.as_deref();
        let about: Vec<&str> = goal.into_iter().chain(titles).collect();
        let about = about.join("; ");
        let found = Some(brief(corpus, &about, self.date));
        let found = found.filter(|brief| !brief.nodes.is_empty());
        let nodes = found.iter().flat_map(|brief| &brief.nodes);
        let added: Vec<String> = nodes.map(|node| format!("{CORPUS}/{}", node.path)).collect();
        if let Some(brief) = found {
            self.leave("briefing-fallback", FALLBACK, &brief);
            self.summary.briefing = Some(serde_json::json!({
                "nodes": brief.nodes.iter().map(|node| &node.path).collect::<Vec<_>>(),
                "text": brief.text, "fallback": true,
            }));
        }
        Probe { number: 1, lens: "briefing".to_owned(), added, ..Probe::default() }
    }

    fn leave(&mut self, key: &str, name: &str, value: &impl Serialize) {
        match self.out.json(name, value) {
            Ok(()) => {
                self.summary.artifacts.insert(key.to_owned(), name.to_owned());
            }
            Err(error) => self.degrade(&error.to_string()),
        }
    }
}

/// Returns the number of consecutive probes at the end that added nothing.
fn idle(probes: &[Probe]) -> u64 {
    probes.iter().rev().take_while(|it| it.added.is_empty()).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overnight::corpus::Changes;
    use crate::overnight::corpus::harvest::CommitSource;
    use jiff::civil::date;

    fn packet(title: &str, confidence: &str) -> Packet {
        Packet {
            id: "dream-0123456789abcdef".into(),
            title: title.into(),
            confidence: Some(confidence.into()),
            evidence: vec![".agents/rpi/next-work.jsonl:1".into()],
            ..Packet::default()
        }
    }

    #[test]
    fn few_or_low_confidence_packets_are_thin() {
        let of = |all: &[&str]| {
            let packets: Vec<Packet> = all.iter().map(|it| packet("t", it)).collect();
            thin(&packets)
        };
        assert_eq!(of(&[]).unwrap(), "there is no packet");
        assert_eq!(of(&["high", "high"]).unwrap(), "there are only 2 packets");
        assert_eq!(
            of(&["low", "high", "low", "high"]).unwrap(),
            "2 of 4 packets have low confidence"
        );
        assert_eq!(of(&["low", "high", "medium"]), None);
    }

    #[test]
    fn a_probe_adds_matching_evidence_once() {
        let mut corpus = Corpus::default();
        let text =
            "---\ndate: 2026-11-01\n---\n# Retries\n\nThe uploader must retry with jitter.\n";
        corpus.apply(&Changes::from([
            ("learnings/retry.md".to_owned(), Some(text.as_bytes().to_vec())),
            ("learnings/tea.md".to_owned(), Some(b"# Tea\n\nBuy more of it.\n".to_vec())),
        ]));
        let day = date(2026, 11, 22);
        let search = Search::active(&corpus, day);
        let tracked = ["src/uploader.rs", "src/tea.rs", "README.md"];
        let mut facts = Facts { tracked: tracked.map(str::to_owned).into(), ..Facts::default() };
        facts.sources.commits.push(CommitSource {
            date: day,
            hash: "0123456789abcdef".into(),
            subject: "Let the uploader retry once".into(),
            body: String::new(),
            paths: Vec::new(),
        });
        let mut one = packet("Retry in the uploader", "low");
        let added = corroborate(&mut one, &search, &facts);
        assert_eq!(
            added,
            [
                ".agents/learnings/retry.md",
                "commit 0123456 Let the uploader retry once",
                "src/uploader.rs"
            ]
        );
        assert_eq!(one.confidence.as_deref(), Some("high"));
        assert_eq!(one.target_files, ["src/uploader.rs"]);
        assert_eq!(corroborate(&mut one, &search, &facts), [""; 0]);
        let mut other = packet("Paint the shed", "low");
        assert!(corroborate(&mut other, &search, &facts).is_empty());
        assert_eq!(other.confidence.as_deref(), Some("low"));
    }
}
