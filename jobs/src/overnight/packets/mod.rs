//! Builds the morning packets: ranked pieces of work to start with, each backed by evidence that
//! exists.
//!
//! ```text
//! pinned queue, unclaimed work, open findings, metrics below their floor, the council
//!      └── one packet per piece of work (dedup key) ──rank──> the first ten
//! ```
//!
//! Evidence is a file that exists, a line of the work file or of the pinned queue, a commit in the
//! history of HEAD, or a node of the corpus. A packet must never name a file that does not exist,
//! and never claim work on anyone's behalf.

pub mod beads;
mod counsel;
pub mod queue;
pub mod sync;

use std::path::Path;

use jiff::civil::Date;
use runner_text::counted;
use runner_text::terms::terms;
use serde::{Deserialize, Serialize};

use super::corpus::compile::slug;
use super::corpus::health::Health;
use super::corpus::index::Search;
use super::corpus::links;
use super::corpus::work::{Claim, OWN_EPIC, WorkItem, dedup_key, short_hash};
use super::corpus::{Corpus, FOLDER as CORPUS, NEXT_WORK, Node, NodeKind};
use super::council::CouncilResult;
use super::facts::Facts;
use super::output::PACKETS;
pub use super::packet::Packet;
use crate::report::{code, one_line};
use queue::Pinned;

/// Maximum number of packets for one morning.
pub const MOST: usize = 10;
/// Maximum number of evidence lines, and maximum number of files, in one packet. The files named in
/// a pinned item's markers are not limited.
const LINES: usize = 6;

/// Score that a packet gains if it contains every word of the goal. It exceeds two levels of
/// severity.
const GOAL: f64 = 25.0;
/// Score that a packet loses for each failure, up to three. It exceeds one level of severity.
const FAILED: f64 = 11.0;
/// Score that a packet loses if it belongs to another repository.
const FOREIGN: f64 = 16.0;
/// Score that a packet loses if a commit probably did its work.
const PROBABLY_DONE: f64 = 25.0;
/// Minimum share of the words in a finding's title that a work item must contain to cover the
/// finding.
const COVERS: f64 = 0.7;

/// The sources of packets for pinned items, and for metrics below their minimum.
const PINNED: &str = "pinned-queue";
const HEALTH: &str = "corpus-health";

/// Minimum share of a title's words that a node must contain to count as evidence.
const SPEAKS: f64 = 0.5;

/// The index of a morning's packets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PacketIndex {
    pub run_id: String,
    /// The project's root folder.
    pub repo_root: String,
    /// The time at which the index was created.
    pub generated_at: String,
    /// The packets, ordered by rank.
    pub packets: Vec<Packet>,
}

pub struct PacketSources<'a> {
    /// The project's root folder.
    pub root: &'a Path,
    pub corpus: &'a Corpus,
    /// The health report of the corpus.
    pub health: &'a Health,
    pub facts: &'a Facts,
    /// The items that the operator pinned.
    pub pinned: &'a [Pinned],
    pub goal: &'a str,
    pub date: Date,
    /// The output folder, relative to the project.
    pub output: &'a str,
    /// The folder that keeps the run's artifacts, relative to the project.
    pub kept: &'a str,
    /// The command for starting work on a packet. `{prompt}`, `{title}`, `{packet}` and `{id}` are
    /// each replaced by one shell word.
    pub command: &'a str,
    pub counsel: &'a CouncilResult,
}

struct Candidate {
    packet: Packet,
    score: f64,
    timestamp: String,
    pinned: bool,
}

impl PacketSources<'_> {
    /// Returns the packets, ordered by rank.
    pub fn packets(&self) -> Vec<Packet> {
        let mut found: Vec<Candidate> = self.pinned.iter().map(|it| self.of_pinned(it)).collect();
        let ready = |item: &&WorkItem| self.is_ready(item) && !self.is_withdrawn(item);
        let free: Vec<&WorkItem> = self.corpus.work.items.iter().filter(ready).collect();
        found.extend(free.into_iter().map(|item| self.of_item(item)));
        found.extend(self.of_findings());
        found.extend(self.of_floors());
        found.extend(self.of_council());
        for one in &mut found {
            one.score += self.weight_of_voices(&one.packet.id);
        }
        // The sort is stable, so pinned items keep their order.
        found.sort_by(|a, b| {
            let by_score = || match a.pinned {
                true => std::cmp::Ordering::Equal,
                false => b
                    .score
                    .total_cmp(&a.score)
                    .then_with(|| b.timestamp.cmp(&a.timestamp))
                    .then_with(|| a.packet.title.cmp(&b.packet.title)),
            };
            b.pinned.cmp(&a.pinned).then_with(by_score)
        });
        let mut seen = std::collections::BTreeSet::new();
        // Claimed or finished work becomes a packet only if it is pinned.
        let taken = self.corpus.work.items.iter().filter(|item| !item.is_free());
        let taken: std::collections::BTreeSet<&str> =
            taken.map(|item| item.dedup_key.as_str()).collect();
        let mut packets: Vec<Packet> = found
            .into_iter()
            .filter(|it| it.pinned || !taken.contains(it.packet.dedup_key.as_str()))
            .map(|it| it.packet)
            .filter(|packet| seen.insert(packet.dedup_key.clone()))
            .take(MOST)
            .collect();
        packets.extend(self.wildcard(&packets));
        for (at, packet) in packets.iter_mut().enumerate() {
            packet.rank = at as u64 + 1;
            // The same work keeps its bead, even if its packet comes from another source.
            let mut known = self.corpus.work.items.iter();
            let known = known.find(|item| item.dedup_key == packet.dedup_key);
            packet.bead_id =
                packet.bead_id.take().or_else(|| known.and_then(|item| item.bead_id.clone()));
            let path = format!(
                "{}/{PACKETS}/{:02}-{}-{}.json",
                self.kept,
                packet.rank,
                slug(&packet.title),
                packet.id
            );
            packet.morning_command = fill(
                self.command,
                &[
                    ("{prompt}", &format!("Read {path} and begin: {}", packet.title)),
                    ("{packet}", &path),
                    ("{title}", &packet.title),
                    ("{id}", &packet.id),
                ],
            );
            packet.artifact_path = Some(path);
        }
        packets
    }

    /// Returns whether the item is free and every required item is finished. A required item that
    /// is not in the work file is treated as finished.
    fn is_ready(&self, item: &WorkItem) -> bool {
        let done = |title: &String| {
            let mut all = self.corpus.work.items.iter();
            !all.any(|it| {
                it.claim != Claim::Consumed && (it.title == *title || it.id.as_ref() == Some(title))
            })
        };
        item.is_free() && item.requires.iter().all(done)
    }

    /// Returns whether runner proposed the item for a pinned item or a metric below its minimum,
    /// and the pinned item is gone or the metric has recovered.
    fn is_withdrawn(&self, item: &WorkItem) -> bool {
        let key = &item.dedup_key;
        item.is_own_proposal()
            && match item.source.as_str() {
                PINNED => !self.pinned.iter().any(|it| dedup_key("pinned", &it.title) == *key),
                HEALTH => !self.of_floors().any(|it| it.packet.dedup_key == *key),
                _ => false,
            }
    }

    fn of_item(&self, item: &WorkItem) -> Candidate {
        let line = format!("{CORPUS}/{NEXT_WORK}:{}", item.line);
        let words = format!("{}\n{}\n{}", item.title, item.description, item.evidence);
        let mut packet = Packet {
            title: item.title.clone(),
            kind: item.kind.clone(),
            severity: item.severity.clone(),
            source: Some(item.source.clone()).filter(|it| !it.is_empty()),
            source_epic: item.source_epic.clone(),
            target_repo: item.target_repo.clone(),
            queue_backed: Some(true),
            bead_id: item.bead_id.clone(),
            dedup_key: item.dedup_key.clone(),
            description: item.description.clone(),
            finder_evidence: match (&item.finder_evidence, item.source_epic.as_deref()) {
                (Some(evidence), _) => evidence.clone(),
                (None, Some(OWN_EPIC)) => String::new(),
                (None, _) => item.evidence.clone(),
            },
            failures: item.failures,
            requires: item.requires.clone(),
            ..Packet::default()
        };
        packet.id =
            item.id.clone().filter(|id| is_packet_id(id)).unwrap_or_else(|| id_of(&item.dedup_key));
        let score = self.ground(&mut packet, &words, vec![line]);
        let found = item.found_at.as_ref().unwrap_or(&item.timestamp);
        self.date(&mut packet, found, &words);
        let foreign = self.facts.is_foreign(item.target_repo.as_deref());
        let other = packet.target_repo.as_deref().filter(|_| foreign);
        packet.why_now = why_now(&packet, item.source_epic.as_deref(), other);
        let lower = [
            (item.status.as_deref() == Some("proposed"), 3.0),
            (item.failures > 0, FAILED * item.failures.min(3) as f64),
            (foreign, FOREIGN),
            (packet.probably_done.is_some(), PROBABLY_DONE),
        ];
        let lower: f64 = lower.iter().filter(|(is, _)| *is).map(|(_, by)| by).sum();
        Candidate { packet, score: score - lower, timestamp: item.timestamp.clone(), pinned: false }
    }

    /// Adds the age of the work, and the commit that probably did it.
    fn date(&self, packet: &mut Packet, timestamp: &str, text: &str) {
        let born = crate::overnight::corpus::node::day(timestamp);
        packet.age_days = born.map(|day| i64::from((self.date - day).get_days()).max(0));
        let born = born.and_then(|day| day.to_zoned(jiff::tz::TimeZone::UTC).ok());
        let born = born.map(|born| born.timestamp());
        let note = format!("# {}\n\n{text}", packet.title);
        packet.probably_done = self.facts.done_since(&slug(&packet.title), &note, born);
    }

    fn of_pinned(&self, pinned: &Pinned) -> Candidate {
        let key = dedup_key("pinned", &pinned.title);
        let mut packet = Packet {
            id: id_of(&key),
            title: pinned.title.clone(),
            kind: "pinned".to_owned(),
            severity: pinned.severity.clone().unwrap_or_else(|| "high".to_owned()),
            source: Some(PINNED.to_owned()),
            queue_backed: Some(true),
            why_now: "pinned by the operator".to_owned(),
            dedup_key: key,
            description: pinned.description.clone(),
            ..Packet::default()
        };
        let words = format!("{}\n{}\n{}", pinned.title, pinned.description, pinned.files.join(" "));
        self.ground(&mut packet, &words, vec![format!("{}:{}", pinned.path, pinned.line)]);
        // A file named in a pinned item's marker is a target, even if its path contains no folder.
        for file in pinned.files.iter().rev() {
            if let Some(file) = self.facts.file(self.root, file)
                && !packet.target_files.contains(&file)
            {
                packet.target_files.insert(0, file);
            }
        }
        packet.likely_tests = self.facts.tests_of(&packet.target_files);
        Candidate { packet, score: f64::MAX, timestamp: String::new(), pinned: true }
    }

    fn of_findings(&self) -> impl Iterator<Item = Candidate> {
        let open = self.corpus.active().filter(|node| {
            node.kind == NodeKind::Finding
                && !node.generated
                && !self.is_covered(node)
                && node.value("severity").is_some_and(|it| weight(it) >= 3.0)
        });
        open.map(|node| {
            let severity = node.value("severity").unwrap_or("high").to_lowercase();
            let key = dedup_key("validate", &node.title);
            let mut packet = Packet {
                id: id_of(&key),
                title: node.title.clone(),
                kind: "validate".to_owned(),
                why_now: format!("{severity} finding that no work item covers"),
                severity,
                source: Some("finding".to_owned()),
                queue_backed: Some(true),
                dedup_key: key,
                description: node
                    .value("checklist_item")
                    .map_or_else(|| node.body().trim().to_owned(), str::to_owned),
                finder_evidence: node.value("evidence").unwrap_or_default().to_owned(),
                ..Packet::default()
            };
            let words = format!("{}\n{}", node.title, node.body());
            let born = node.date.map(|date| date.to_string()).unwrap_or_default();
            self.date(&mut packet, &born, &words);
            let score = self.ground(&mut packet, &words, vec![format!("{CORPUS}/{}", node.path)]);
            let packet_done = packet.probably_done.is_some();
            Candidate {
                packet,
                score: score - 2.0 - if packet_done { PROBABLY_DONE } else { 0.0 },
                timestamp: born,
                pinned: false,
            }
        })
    }

    /// Returns whether a work item covers a finding. An item covers a finding if it contains the
    /// finding's id, or most of the words in the finding's title.
    fn is_covered(&self, node: &Node) -> bool {
        let title = terms(&node.title);
        let mut offered = self.corpus.work.items.iter().filter(|item| !self.is_withdrawn(item));
        offered.any(|item| {
            let text = format!("{} {} {}", item.title, item.description, item.evidence);
            if item.source.contains(&node.id) || text.contains(&node.id) {
                return true;
            }
            let own = terms(&text);
            let shared = title.iter().filter(|term| own.contains(term)).count();
            !title.is_empty() && shared as f64 / title.len() as f64 >= COVERS
        })
    }

    fn of_floors(&self) -> impl Iterator<Item = Candidate> {
        let below = self.health.metrics.iter().filter(|metric| metric.below_floor);
        below.map(|metric| {
            let title = format!(
                "Raise the corpus's {} above {}",
                metric.name.replace('_', " "),
                metric.floor
            );
            let key = dedup_key("improvement", &title);
            Candidate {
                packet: Packet {
                    id: id_of(&key),
                    title,
                    kind: "improvement".to_owned(),
                    severity: "low".to_owned(),
                    confidence: Some("high".to_owned()),
                    source: Some(HEALTH.to_owned()),
                    why_now: format!("{} is below its floor", metric.name.replace('_', " ")),
                    evidence: vec![format!("{}/metrics-health.json", self.output)],
                    queue_backed: Some(true),
                    dedup_key: key,
                    description: metric.definition.to_owned(),
                    ..Packet::default()
                },
                score: 5.0,
                timestamp: String::new(),
                pinned: false,
            }
        })
    }

    /// Looks up the files and commits that the text mentions, and the nodes that match the title.
    /// Fills in the packet's evidence, files, tests and confidence, and returns the score.
    fn ground(&self, packet: &mut Packet, words: &str, mut evidence: Vec<String>) -> f64 {
        let origins = evidence.len();
        for named in links::paths(words) {
            if let Some(file) = self.facts.file(self.root, named) {
                if !file.starts_with(CORPUS)
                    && packet.target_files.len() < LINES
                    && !packet.target_files.contains(&file)
                {
                    packet.target_files.push(file.clone());
                }
                evidence.push(file);
            }
        }
        for named in links::commits(words) {
            let short: String = named.chars().take(7).collect();
            if let Some((hash, subject)) = self.facts.commits.get(&short)
                && hash.starts_with(named)
            {
                evidence.push(format!("commit {short} {subject}"));
            }
        }
        let title = &packet.title;
        for hit in Search::active(self.corpus, self.date).hits(title, 3) {
            if hit.covered >= SPEAKS {
                evidence.push(format!("{CORPUS}/{}", hit.node.path));
            }
        }
        let mut known = std::collections::BTreeSet::new();
        evidence.retain(|line| known.insert(line.clone()));
        evidence.truncate(LINES);
        packet.likely_tests = self.facts.tests_of(&packet.target_files);
        let found = evidence.len() - origins.min(evidence.len());
        packet.confidence = Some(
            match (found, packet.target_files.len()) {
                (0, 0) => "low",
                (_, 0) | (1, _) => "medium",
                _ => "high",
            }
            .to_owned(),
        );
        packet.evidence = evidence;
        let goal = terms(self.goal);
        let own = terms(words);
        let shared = goal.iter().filter(|term| own.contains(term)).count();
        let fits = if goal.is_empty() { 0.0 } else { shared as f64 / goal.len() as f64 };
        weight(&packet.severity) * 10.0 + fits * GOAL + (found.min(3) as f64) * 2.0
    }
}

/// Describes why a packet is listed: its severity and origin, and anything that lowers its rank.
/// `other` is the repository that the work belongs to, if it is not the project's.
fn why_now(packet: &Packet, epic: Option<&str>, other: Option<&str>) -> String {
    let from = epic.unwrap_or("the work file");
    let mut why = format!("{} {} from {from}, not claimed yet", packet.severity, packet.kind);
    if packet.failures > 0 {
        why.push_str(&format!("; it failed {}", counted(packet.failures, "time")));
    }
    if let Some(repo) = other {
        why.push_str(&format!("; it belongs to the repository {repo}"));
    }
    if let Some(commit) = &packet.probably_done {
        why.push_str(&format!("; probably done by commit {commit}"));
    }
    why
}

fn weight(severity: &str) -> f64 {
    match severity.trim().to_lowercase().as_str() {
        "critical" | "p0" | "blocker" => 4.0,
        "high" | "significant" | "major" | "p1" => 3.0,
        "low" | "minor" | "p3" | "p4" => 1.0,
        _ => 2.0,
    }
}

pub fn id_of(key: &str) -> String {
    format!("dream-{}", short_hash(key))
}

fn is_packet_id(id: &str) -> bool {
    let hex = id.strip_prefix("dream-");
    hex.is_some_and(|hex| hex.len() == 16 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Replaces each placeholder with its value, quoted for the shell. A placeholder inside a value is
/// not replaced, because its quotes would end those of the value.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match values.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, value)) => {
                out.push_str(&quoted(value));
                rest = &rest[name.len()..];
            }
            None => {
                out.push('{');
                rest = &rest[1..];
            }
        }
    }
    out + rest
}

/// Quotes a string as one word of a shell command.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

pub fn markdown(index: &PacketIndex) -> String {
    let mut out = format!("# Morning packets\n\nRun {}\n", one_line(&index.run_id));
    if index.packets.is_empty() {
        out.push_str("\nNothing is open.\n");
    }
    for packet in &index.packets {
        out.push_str(&format!(
            "\n## {}. {}\n\n{} · {} · confidence {}\n\n{}\n",
            packet.rank,
            one_line(&packet.title),
            one_line(&packet.severity),
            one_line(&packet.kind),
            packet.confidence.as_deref().unwrap_or("low"),
            one_line(&packet.why_now)
        ));
        for text in [&packet.description, &packet.finder_evidence] {
            if !text.trim().is_empty() {
                out.push_str(&format!("\n{}\n", one_line(text)));
            }
        }
        let known = [
            ("Age in days", packet.age_days.map(|days| days.to_string())),
            ("Failures", Some(packet.failures).filter(|it| *it > 0).map(|it| it.to_string())),
            ("Repository", packet.target_repo.clone()),
            ("Requires", Some(packet.requires.join(", ")).filter(|it| !it.is_empty())),
            ("Probably done by", packet.probably_done.clone()),
        ];
        for (name, value) in known.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)))
        {
            out.push_str(&format!("\n{name}: {}\n", one_line(value)));
        }
        for (name, lines) in [
            ("Evidence", &packet.evidence),
            ("Files", &packet.target_files),
            ("Tests", &packet.likely_tests),
        ] {
            if !lines.is_empty() {
                out.push_str(&format!("\n{name}:\n"));
                for line in lines {
                    out.push_str(&format!("- {}\n", one_line(line)));
                }
            }
        }
        out.push_str(&format!("\n{}\n", code(&packet.morning_command)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_inside_values_stay_quoted() {
        let values = [("{prompt}", "begin: {title}; touch x #"), ("{title}", "it's {id}")];
        assert_eq!(
            fill("claude {prompt} {other} {title} {", &values),
            r"claude 'begin: {title}; touch x #' {other} 'it'\''s {id}' {"
        );
    }
}
