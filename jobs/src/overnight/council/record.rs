//! The council's record, `council/ledger.json`, which traces each morning packet to its evidence
//! and its councillors.
//!
//! Each pass, whether made or skipped, has an entry. The entry of a pass that was made names its
//! request, and the entry of an answered pass contains the digest of the answer. Each packet names
//! the councillors who support it. A resumed night does not repeat a pass if the digests of the
//! question and of the answer are unchanged.

use std::collections::BTreeMap;

use runner_engine::outcome::Class;
use serde::{Deserialize, Serialize};

use super::synthesis::Synthesis;
use crate::overnight::packet::Packet;

/// The path of the record, relative to the output folder.
pub const LEDGER: &str = "council/ledger.json";

/// The record of the councillors' passes and of the packets' sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CouncilRecord {
    pub schema_version: u32,
    pub run_id: String,
    /// The packet shown to all councillors.
    pub packet: ShownArtifact,
    /// The digest of the question put to the councillors, excluding the night's progress so far.
    pub question: String,
    /// The passes, in the order of the configuration, with the creative lane's pass last.
    pub passes: Vec<Pass>,
    /// The morning packets, ordered by rank.
    pub packets: Vec<TracedPacket>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownArtifact {
    /// The path of the artifact, relative to the output folder.
    pub artifact: String,
    /// Digest of the artifact's bytes.
    pub sha256: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    pub runner: String,
    /// `council`, or `wildcard` for the creative lane.
    pub lane: String,
    /// `answered`, `not-asked`, or the class of the failure.
    pub status: String,
    /// The class of the failure, or of the reason why the councillor was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Why there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The backend kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The model, if the backend names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The request id, as in the run's events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The number of tokens that the backend reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The artifact that contains the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<ShownArtifact>,
}

/// A morning packet with its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedPacket {
    pub id: String,
    pub rank: u64,
    pub title: String,
    /// The source of the packet's work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    pub evidence: Vec<String>,
    /// The councillors who support the packet, each with the artifact of the answer.
    pub voices: Vec<CouncillorText>,
}

/// A councillor and the artifact that contains that councillor's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CouncillorText {
    pub runner: String,
    /// The path of the artifact, relative to the output folder.
    pub artifact: String,
}

impl CouncilRecord {
    /// Records the source and the supporting councillors of each packet.
    pub fn trace(&mut self, packets: &[Packet], synthesis: Option<&Synthesis>) {
        let mut voices: BTreeMap<&str, &[String]> = BTreeMap::new();
        for backed in synthesis.into_iter().flat_map(|it| &it.backed) {
            voices.insert(&backed.id, &backed.voices);
        }
        let leading = synthesis.map(|it| it.positions[0].voices.iter().map(|it| &it.runner));
        let leading: Vec<String> = leading.into_iter().flatten().cloned().collect();
        let wild: Vec<String> = self
            .passes
            .iter()
            .filter(|it| it.lane == super::WILDCARD && it.said.is_some())
            .map(|it| it.runner.clone())
            .collect();
        self.packets = packets
            .iter()
            .map(|packet| {
                let (lane, spoke): (&str, &[String]) = match packet.source.as_deref() {
                    Some(super::SOURCE) => (super::COUNCIL, &leading),
                    Some(super::WILDCARD_SOURCE) => (super::WILDCARD, &wild),
                    _ => (super::COUNCIL, voices.get(packet.id.as_str()).copied().unwrap_or(&[])),
                };
                TracedPacket {
                    id: packet.id.clone(),
                    rank: packet.rank,
                    title: packet.title.clone(),
                    source: packet.source.clone(),
                    evidence: packet.evidence.clone(),
                    voices: self.spoke(lane, spoke),
                }
            })
            .collect();
    }

    fn spoke(&self, lane: &str, voices: &[String]) -> Vec<CouncillorText> {
        let own = |runner: &String| {
            let mut passes = self.passes.iter();
            let pass = passes.find(|it| it.lane == lane && it.runner == *runner)?;
            Some(CouncillorText {
                runner: runner.clone(),
                artifact: pass.said.as_ref()?.artifact.clone(),
            })
        };
        voices.iter().filter_map(own).collect()
    }

    /// Returns the answered pass that an earlier attempt of this run made on the same question,
    /// with its artifact, or `None` if there is none.
    pub fn again(
        &self,
        question: &str,
        runner: &str,
        lane: &str,
    ) -> Option<(&Pass, &ShownArtifact)> {
        if self.question != question {
            return None;
        }
        let mut passes = self.passes.iter();
        let pass = passes.find(|it| it.runner == runner && it.lane == lane)?;
        Some((pass, pass.said.as_ref()?))
    }
}
