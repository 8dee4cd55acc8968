//! Applies the councillors' answers to the packets. Support raises a packet's score, a different
//! recommendation becomes one new packet, and the wildcard comes last.
//!
//! A file or commit that a councillor mentions counts as evidence only if it exists. A wildcard is
//! never the first packet.

use super::{Candidate, MOST, Packet, PacketSources, dedup_key, id_of};
use crate::dream::proposal::clean;
use crate::overnight::council::{self, SOURCE, WILDCARD_SOURCE};

/// Score that one councillor's support adds to a packet. The support of three councillors exceeds
/// one level of severity.
const VOICE: f64 = 4.0;
/// Maximum length of a title in characters.
const TITLE: usize = 120;

impl PacketSources<'_> {
    /// Returns the score that the councillors' support adds to a packet.
    pub(super) fn weight_of_voices(&self, id: &str) -> f64 {
        let synthesis = self.counsel.synthesis.as_ref();
        let mut backed = synthesis.into_iter().flat_map(|it| &it.backed);
        let voices = backed.find(|it| it.id == id).map_or(0, |it| it.voices.len());
        voices as f64 * VOICE
    }

    /// Returns a packet for the first action that the leading position recommends, if none of the
    /// councillors who take that position supports an existing packet.
    pub(super) fn of_council(&self) -> Option<Candidate> {
        let synthesis = self.counsel.synthesis.as_ref()?;
        let leading = synthesis.positions.first()?;
        if leading.voices.iter().any(|it| !it.backs.is_empty()) {
            return None;
        }
        let action = &synthesis.recommended_first_action;
        let title = title(action)?;
        let key = dedup_key("council", &title);
        let voices: Vec<&str> = leading.voices.iter().map(|it| it.runner.as_str()).collect();
        let mut packet = Packet {
            id: id_of(&key),
            title,
            kind: synthesis.recommended_kind.clone(),
            severity: "medium".to_owned(),
            source: Some(SOURCE.to_owned()),
            queue_backed: Some(true),
            why_now: format!(
                "{} of {} councillors recommend it: {}",
                synthesis.agreement.voices,
                synthesis.agreement.of,
                voices.join(", ")
            ),
            dedup_key: key,
            description: action.clone(),
            ..Packet::default()
        };
        let said = voices.iter().map(|name| format!("{}/{}", self.output, council::file_of(name)));
        let score = self.ground(&mut packet, action, said.collect());
        Some(Candidate {
            packet,
            // The recommendation of a single councillor is only a proposal and ranks lower. Each
            // additional councillor raises the score.
            score: score - 3.0 + VOICE * (synthesis.agreement.voices as f64 - 1.0),
            timestamp: String::new(),
            pinned: false,
        })
    }

    /// Returns the creative lane's packet, which comes after the packets in `before`. Returns
    /// `None` if there is no wildcard, if `before` is full, or if `before` is empty, because a
    /// wildcard is never the first packet.
    pub(super) fn wildcard(&self, before: &[Packet]) -> Option<Packet> {
        let wildcard = self.counsel.wildcard.as_ref()?;
        if before.is_empty() || before.len() >= MOST {
            return None;
        }
        let title = title(&wildcard.wildcard_idea)?;
        let key = dedup_key("wildcard", &title);
        Some(Packet {
            id: id_of(&key),
            title,
            kind: "wildcard".to_owned(),
            severity: "low".to_owned(),
            confidence: Some("low".to_owned()),
            source: Some(WILDCARD_SOURCE.to_owned()),
            queue_backed: Some(false),
            why_now: format!(
                "an idea from {} that nobody asked for; it is not counted",
                wildcard.runner
            ),
            evidence: vec![format!("{}/council/{}.json", self.output, council::WILDCARD)],
            dedup_key: key,
            description: wildcard.why.clone(),
            ..Packet::default()
        })
    }
}

/// Converts a model's output to a title, or returns `None` if the output has no letter or digit.
/// The title begins with a letter or digit, so no program mistakes it for a flag.
fn title(text: &str) -> Option<String> {
    let text = text.trim_start_matches(|c: char| !c.is_alphanumeric());
    let title = clean(text, TITLE);
    (!title.is_empty()).then_some(title)
}
