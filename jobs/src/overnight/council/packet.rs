//! Builds the packet shown to every councillor: the night's figures, and the candidates with their
//! evidence.
//!
//! The rule-based answer is also built from the packet. The packet is short enough for a small
//! model and contains no time of day.

use runner_engine::digest::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::dream::proposal::clean;
use crate::json::pretty;
use crate::overnight::corpus::health::Measured;
use crate::overnight::packet::Packet;
use crate::overnight::summary::{IterationStatus, Summary};

/// The kinds of work that may be recommended.
pub const KINDS: [&str; 6] = ["research", "implement", "validate", "repair", "promote", "document"];
/// The levels of confidence, lowest first.
pub const CONFIDENCES: [&str; 3] = ["low", "medium", "high"];
/// Maximum number of lines in one list.
const LINES: usize = 8;
/// Size in bytes to which the packet is shortened if possible. Together with the instructions, a
/// packet of this size fits the 8,192-token context window of a small local model.
const WINDOW: usize = 20_000;
/// Maximum length of a line in characters.
const LONGEST: usize = 280;

/// The packet shown to every councillor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CouncilPacket {
    pub schema_version: u32,
    pub run_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    pub date: String,
    /// The current fitness of the corpus, or `None` if no uses are known.
    pub fitness: Option<f64>,
    /// The change in the fitness during the night.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitness_delta: Option<f64>,
    pub below_floor: Vec<String>,
    pub iterations: Iterations,
    /// Why the loop ended, if a regression or a plateau ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Soft failures of the night.
    pub degraded: Vec<String>,
    /// The first lines of the brief about the goal.
    pub brief: Vec<String>,
    /// The candidates to choose from, best first according to the rules.
    pub candidates: Vec<Candidate>,
    pub offer: Offer,
}

/// The counts of the night's iterations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iterations {
    /// Number of iterations that were committed.
    pub kept: u64,
    /// Number of iterations that were not committed.
    pub not_kept: u64,
}

/// A piece of work that the user could start with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The candidate's id, which is also the id of its morning packet.
    pub id: String,
    pub title: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub severity: String,
    /// How well the evidence supports the candidate: `low`, `medium` or `high`.
    pub confidence: String,
    /// Why the candidate is listed.
    pub why_now: String,
    /// A longer description of the work.
    pub description: String,
    pub evidence: Vec<String>,
    /// The files that the work concerns.
    pub target_files: Vec<String>,
}

/// The values that an answer may choose from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    pub recommended_kind: Vec<String>,
    pub confidence: Vec<String>,
    pub backs: Vec<String>,
}

impl CouncilPacket {
    /// Builds the packet from the night's results so far.
    pub fn of(summary: &Summary, measured: &Measured, date: &str, candidates: &[Packet]) -> Self {
        let line = |text: &str| clean(text, LONGEST);
        let lines = |all: &[String]| all.iter().take(LINES).map(|it| line(it)).collect();
        let kept = |status| matches!(status, IterationStatus::Done | IterationStatus::Degraded);
        let kept = summary.iterations.iter().filter(|it| kept(it.status)).count();
        let before = summary.iterations.first().and_then(|it| it.fitness_before.as_ref());
        let brief = summary.briefing.as_ref().and_then(|it| it["text"].as_str());
        let ended = summary.regression_reason.as_ref().or(summary.plateau_reason.as_ref());
        let mut packet = Self {
            schema_version: 1,
            run_id: summary.run_id.clone(),
            goal: summary.goal.as_deref().map(line),
            date: date.to_owned(),
            fitness: measured.fitness.composite,
            fitness_delta: before.map(|it| crate::overnight::halt::delta(it, &measured.fitness)),
            below_floor: measured
                .health
                .metrics
                .iter()
                .filter(|metric| metric.below_floor)
                .map(|metric| metric.name.to_owned())
                .collect(),
            iterations: Iterations {
                kept: kept as u64,
                not_kept: (summary.iterations.len() - kept) as u64,
            },
            ended: ended.map(|it| line(it)),
            degraded: lines(&summary.degraded),
            brief: brief.map_or_else(Vec::new, |text| text.lines().take(LINES).map(line).collect()),
            candidates: candidates
                .iter()
                .map(|packet| Candidate {
                    id: packet.id.clone(),
                    title: line(&packet.title),
                    kind: line(&packet.kind),
                    severity: line(&packet.severity),
                    confidence: packet.confidence.clone().unwrap_or_else(|| "low".to_owned()),
                    why_now: line(&packet.why_now),
                    description: line(&packet.description),
                    evidence: lines(&packet.evidence),
                    target_files: lines(&packet.target_files),
                })
                .collect(),
            offer: Offer {
                recommended_kind: KINDS.map(str::to_owned).to_vec(),
                confidence: CONFIDENCES.map(str::to_owned).to_vec(),
                backs: candidates.iter().map(|it| it.id.clone()).collect(),
            },
        };
        packet.shrink(WINDOW);
        packet
    }

    /// Clears the evidence and files, and then the descriptions and reasons, from the last
    /// candidate to the first. Stops as soon as the packet is at most `most` bytes long.
    fn shrink(&mut self, most: usize) {
        for drops_text in [false, true] {
            for at in (0..self.candidates.len()).rev() {
                if pretty(self).len() <= most {
                    return;
                }
                let candidate = &mut self.candidates[at];
                candidate.evidence.clear();
                candidate.target_files.clear();
                if drops_text {
                    candidate.description.clear();
                    candidate.why_now.clear();
                }
            }
        }
    }

    /// Returns the digest of the question. The digest excludes the night's progress, because a
    /// resumed night has more to report but the same candidates.
    pub fn question(&self) -> String {
        let about =
            (&self.run_id, &self.goal, &self.date, self.fitness, &self.candidates, &self.offer);
        Digest::of(pretty(&about).as_bytes()).to_string()
    }

    /// Returns the rule-based report, which needs no model.
    pub fn by_rule(&self) -> Value {
        let first = self.candidates.first();
        let kind = match first {
            _ if !self.below_floor.is_empty() && first.is_none() => "repair",
            Some(first) => kind_of(&first.kind),
            None => "research",
        };
        let headline = match first {
            Some(first) => clean(&format!("Begin with: {}", first.title), 200),
            None if self.below_floor.is_empty() => {
                "There is no open work: look for gaps in the corpus".to_owned()
            }
            None => "There is no open work: restore the metrics below their floor".to_owned(),
        };
        let action = match first {
            Some(first) => first.title.clone(),
            None if self.below_floor.is_empty() => "Look for gaps in the corpus".to_owned(),
            None => "Restore the metrics that are below their floor".to_owned(),
        };
        let weak = self.candidates.iter().filter(|it| it.confidence == "low");
        let mut risks: Vec<String> =
            weak.take(2).map(|it| format!("little evidence for: {}", it.title)).collect();
        risks.extend(self.below_floor.iter().take(3).map(|it| format!("{it} is below its floor")));
        let rest = self.candidates.iter().skip(1).take(2);
        json!({
            "headline": headline,
            "recommended_kind": kind,
            "recommended_first_action": action,
            "risks": risks,
            "opportunities": rest.map(|it| it.title.clone()).collect::<Vec<_>>(),
            "confidence": first.map_or("low", |it| it.confidence.as_str()),
            "wildcard_idea": "",
            "backs": first.map(|it| it.id.clone()).into_iter().collect::<Vec<_>>(),
        })
    }
}

/// Returns the kind of work, one of [`KINDS`], that matches a packet's type.
fn kind_of(kind: &str) -> &'static str {
    match kind.to_lowercase().as_str() {
        "bug" | "fix" | "repair" | "improvement" | "tech-debt" => "repair",
        "validate" | "finding" | "test" => "validate",
        "docs" | "document" | "documentation" => "document",
        "learning" | "promote" | "pattern" => "promote",
        "research" | "spike" | "question" => "research",
        _ => "implement",
    }
}
