//! Adds to each idea's evidence the notes that coding sessions left about the idea.
//!
//! Notes inform the user and the model. They must never change the rule's verdict, and a memory
//! that cannot be read never fails a pass.

use std::collections::BTreeMap;

use runner_memory::MemoryError;
use serde_json::json;

use super::classify::ClassifiedIdeas;
use super::recalled;
use crate::Context;
use crate::session_notes::{ProjectMemory, SessionNote};

/// The recording key for the session notes about each shown idea.
const SESSIONS: &str = "session notes";

/// Notes by idea path.
type FoundNotes = BTreeMap<String, Vec<SessionNote>>;

fn found(ctx: &Context<'_>, judged: &ClassifiedIdeas) -> Result<FoundNotes, MemoryError> {
    if ctx.recording.replays() {
        // Recordings of earlier versions contain no notes.
        let recorded = ctx.recording.has(SESSIONS, "").then(|| recalled(&ctx.recording, SESSIONS));
        return Ok(recorded.and_then(Result::ok).unwrap_or_default());
    }
    let Some(memory) = ProjectMemory::open(ctx)? else { return Ok(FoundNotes::new()) };
    let mut notes = FoundNotes::new();
    for one in &judged.shown {
        let about = memory.about(&one.gist())?;
        if !about.is_empty() {
            notes.insert(one.path.clone(), about);
        }
    }
    Ok(notes)
}

/// Adds the session notes to the shown ideas. If the memory cannot be read, adds none and returns
/// the reason.
pub(super) fn add(ctx: &Context<'_>, judged: &mut ClassifiedIdeas) -> Option<String> {
    let mut notes = match found(ctx, judged) {
        Ok(notes) => notes,
        Err(error) => return Some(format!("without the notes of sessions: {error}")),
    };
    if ctx.recording.records() {
        ctx.recording.note(SESSIONS, "", json!(notes), None);
    }
    for one in &mut judged.shown {
        one.rest_on(notes.remove(&one.path).unwrap_or_default());
    }
    None
}
