//! Writes the packets to the work file: existing items are amended, and missing items are added
//! once.
//!
//! An item that is claimed or done is never changed, not even to add a field. Items are recognized
//! by their dedup keys. Unknown keys and invalid lines are kept unchanged.

use jiff::ToSpan as _;
use runner_text::jsonl::keep::Object;
use serde_json::{Value, json};

use super::Packet;
use crate::overnight::corpus::node::day;
use crate::overnight::corpus::work::{OWN_EPIC, WorkFile};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncResult {
    /// Number of items that were amended.
    pub amended: usize,
    /// Number of items that were added.
    pub added: usize,
}

/// Updates the work file from the packets. `at` is the time recorded in a new row.
pub fn sync(work: &mut WorkFile, packets: &[Packet], at: &str) -> SyncResult {
    let mut synced = SyncResult::default();
    let mut fresh: Vec<Object> = Vec::new();
    // An unsolicited packet becomes work only if the user adopts it.
    for packet in packets.iter().filter(|it| it.queue_backed != Some(false)) {
        let mut fields: Vec<(&str, Value)> = vec![
            ("id", json!(packet.id)),
            ("why_now", json!(packet.why_now)),
            ("morning_command", json!(packet.morning_command)),
            ("packet_path", json!(packet.artifact_path)),
        ];
        if let Some(confidence) = &packet.confidence {
            fields.push(("confidence", json!(confidence)));
        }
        if let Some(bead) = &packet.bead_id {
            fields.push(("bead_id", json!(bead)));
        }
        let known: Vec<_> =
            work.items.iter().filter(|item| item.dedup_key == packet.dedup_key).cloned().collect();
        if let Some(item) = known.iter().find(|item| item.is_free()) {
            // An item that already has an id keeps it.
            let named = item.id.is_some();
            fields.retain(|(key, _)| *key != "id" || !named);
            synced.amended += usize::from(work.edit(item, &fields));
            continue;
        }
        // The item is claimed or done and belongs to its claimant.
        if !known.is_empty() {
            continue;
        }
        let mut item = Object::new([
            ("title", json!(packet.title)),
            ("type", json!(packet.kind)),
            ("severity", json!(packet.severity)),
            ("source", json!(packet.source)),
            ("description", json!(packet.description)),
            ("evidence", json!(packet.evidence.join("; "))),
            ("dedup_key", json!(packet.dedup_key)),
            ("status", json!("proposed")),
            ("claim_status", json!("available")),
        ]);
        if !packet.finder_evidence.is_empty() {
            item.set("finder_evidence", &json!(packet.finder_evidence));
        }
        let found = packet.age_days.zip(day(at));
        if let Some(found) = found.and_then(|(age, day)| day.checked_sub(age.days()).ok()) {
            item.set("found_at", &json!(found.to_string()));
        }
        if let Some(repo) = &packet.target_repo {
            item.set("target_repo", &json!(repo));
        }
        for (key, value) in &fields {
            item.set(key, value);
        }
        fresh.push(item);
        synced.added += 1;
    }
    if !fresh.is_empty() {
        let mut row = Object::new([
            ("source_epic", json!(OWN_EPIC)),
            ("timestamp", json!(at)),
            ("items", json!([])),
            ("consumed", json!(false)),
            ("claim_status", json!("available")),
            ("claimed_by", Value::Null),
            ("claimed_at", Value::Null),
            ("consumed_by", Value::Null),
            ("consumed_at", Value::Null),
        ]);
        row.set_objects("items", &fresh);
        work.kept.push(row);
    }
    if synced != SyncResult::default() {
        *work = WorkFile::parse(&work.kept.to_bytes());
    }
    synced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_keeps_claims_and_adds_once() {
        let file = concat!(
            "{\"items\":[{\"title\":\"Mine\",\"type\":\"bug\",\"claim_status\":\"in_progress\"},{\"title\":\"Free\",\"type\":\"bug\",\"odd\":1.50}]}\n",
            "broken\n",
        );
        let mut work = WorkFile::parse(file.as_bytes());
        let packet = |title: &str, id: &str| Packet {
            id: id.to_owned(),
            title: title.to_owned(),
            dedup_key: crate::overnight::corpus::work::dedup_key("bug", title),
            ..Packet::default()
        };
        let packets =
            [packet("Mine", "dream-1"), packet("Free", "dream-2"), packet("New", "dream-3")];
        let synced = sync(&mut work, &packets, "2026-11-22T02:30:00Z");
        assert_eq!((synced.amended, synced.added), (1, 1));
        let text = String::from_utf8(work.kept.to_bytes()).unwrap();
        assert!(text.starts_with("{\"items\":[{\"title\":\"Mine\",\"type\":\"bug\",\"claim_status\":\"in_progress\"},{\"title\":\"Free\",\"type\":\"bug\",\"odd\":1.50,\"id\":\"dream-2\""), "{text}");
        assert!(text.contains("\nbroken\n") && !text.contains("dream-1"));
        assert_eq!(sync(&mut work, &packets, "later"), SyncResult::default());
        assert_eq!(String::from_utf8(work.kept.to_bytes()).unwrap(), text);
    }
}
