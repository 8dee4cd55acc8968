//! Applies a user's decision on an artifact: edit, pin, unpin, forget, split or undo.
//!
//! Each decision is recorded with the state before it, so that the last [`HISTORY`] decisions can
//! be undone. This module must never change an artifact itself, because [`super::fold`] applies the
//! decisions. The exception is undoing a decision, which may restore the artifact's text, or an
//! artifact that no longer exists.

use jiff::Timestamp;
use runner_engine::outcome::Class;

use super::artifact::{Artifact, Content};
use super::fold::{Decision, LARGEST, bytes};
use super::folder::SessionFolder;
use super::merge::apart;
use crate::JobError;

/// Maximum number of decisions that can be undone.
const HISTORY: usize = 50;
/// Number of bytes reserved in an edited artifact's file for counts and times that are added later.
const ROOM: usize = 256;

/// Applies a change such as `pin ID` or `edit ID {...}` and describes it.
///
/// # Errors
/// Returns an error if the decision is unknown, if its id does not match exactly one artifact, if
/// there is no decision to undo, if the new text is not an artifact with the same id, or if the
/// edited artifact would be too large.
pub(super) fn apply(
    folder: &mut SessionFolder,
    change: &str,
    at: Timestamp,
) -> Result<String, JobError> {
    let bad = |why: String| JobError::failed(Class::Environment, why);
    let mut words = change.splitn(3, ' ');
    let (verb, wanted) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let id = named(folder, wanted, verb).map_err(bad)?;
    let found = apart(&folder.artifacts).into_iter().find(|artifact| artifact.id == id);
    let decisions = &mut folder.decisions;
    if verb == "undo" {
        let found = decisions.history.iter().rposition(|earlier| earlier.id == id);
        let found = found.ok_or_else(|| bad(format!("there is no decision about {id} to undo")))?;
        let before = decisions.history.remove(found);
        restore(folder, before);
        return Ok(format!("{id}: the last decision was undone"));
    }
    let before = Decision {
        id: id.clone(),
        at,
        pinned: decisions.pinned.contains(&id),
        forgotten: decisions.forgotten.contains(&id),
        split: decisions.split.contains(&id),
        edit: decisions.edits.get(&id).cloned(),
        artifact: found.map(|artifact| Artifact {
            evidence: Vec::new(),
            conflicts: Vec::new(),
            ..artifact
        }),
    };
    let description = match verb {
        "pin" => {
            decisions.pinned.insert(id.clone());
            format!("{id} is pinned")
        }
        "unpin" => {
            decisions.pinned.remove(&id);
            format!("{id} is no longer pinned")
        }
        "forget" => {
            decisions.pinned.remove(&id);
            decisions.forgotten.insert(id.clone());
            format!("{id} is forgotten")
        }
        "split" => {
            decisions.split.insert(id.clone());
            format!("{id} is no longer merged with others")
        }
        "edit" => {
            let text = words.next().unwrap_or_default();
            let new = edited(before.artifact.as_ref(), text).map_err(bad)?;
            decisions.edits.insert(id.clone(), new);
            format!("the text of {id} was replaced")
        }
        other => {
            return Err(bad(format!(
                "unknown decision {other:?}; expected edit, pin, unpin, forget, split or undo"
            )));
        }
    };
    decisions.history.push(before);
    let old = decisions.history.len().saturating_sub(HISTORY);
    decisions.history.drain(..old);
    Ok(description)
}

/// Checks the text that the user wrote for an artifact, and returns its content.
fn edited(old: Option<&Artifact>, text: &str) -> Result<Content, String> {
    let old = old.ok_or("the artifact no longer exists")?;
    let new = Artifact::read(text.as_bytes()).map(|new| new.content);
    let new = new.filter(|new| new.id() == old.content.id()).ok_or_else(|| {
        format!("the new text must be an artifact with the same type and trigger as {}", old.id)
    })?;
    let mut result = old.clone();
    result.content.take_text(&new);
    let size = bytes(&result).len() + ROOM;
    match size.checked_sub(LARGEST) {
        None | Some(0) => Ok(new),
        Some(over) => Err(format!(
            "the new text is {over} bytes too long: the file of {} may have at most {LARGEST} \
             bytes, of which {ROOM} are reserved for counts",
            old.id
        )),
    }
}

/// Restores the state before a decision.
fn restore(folder: &mut SessionFolder, before: Decision) {
    let Decision { id, pinned, forgotten, split, edit, artifact, .. } = before;
    folder.artifacts = apart(&folder.artifacts);
    let edit_changes = folder.decisions.edits.get(&id) != edit.as_ref();
    if let Some(before) = artifact {
        match folder.artifacts.iter_mut().find(|known| known.id == id) {
            // If no session record is left, nothing else replaces the text that the user wrote.
            Some(known) if edit_changes => known.content.take_text(&before.content),
            Some(_) => {}
            None => folder.artifacts.push(before),
        }
    }
    let decisions = &mut folder.decisions;
    for (set, is) in [
        (&mut decisions.pinned, pinned),
        (&mut decisions.forgotten, forgotten),
        (&mut decisions.split, split),
    ] {
        match is {
            true => set.insert(id.clone()),
            false => set.remove(&id),
        };
    }
    match edit {
        Some(edit) => decisions.edits.insert(id, edit),
        None => decisions.edits.remove(&id),
    };
}

/// Returns the id of the only artifact whose id starts with `wanted`. For `undo`, only the
/// artifacts with a recorded decision are searched, including those that no longer exist.
fn named(folder: &SessionFolder, wanted: &str, verb: &str) -> Result<String, String> {
    let known = folder.artifacts.iter().map(|artifact| &artifact.id);
    let decided = folder.decisions.history.iter().map(|decision| &decision.id);
    let mut found: Vec<&String> = match verb {
        "undo" => decided.filter(|id| id.starts_with(wanted)).collect(),
        _ => known.filter(|id| id.starts_with(wanted)).collect(),
    };
    found.sort();
    found.dedup();
    match found.as_slice() {
        [one] if !wanted.is_empty() => Ok((*one).clone()),
        [] => Err(format!("there is no artifact {wanted:?}")),
        several => Err(format!(
            "{wanted:?} matches {} artifacts; use more characters of the id",
            several.len()
        )),
    }
}
