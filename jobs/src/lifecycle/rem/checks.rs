//! The checks that an entry must pass before it is accepted.
//!
//! Every commit hash in the entry must appear in the sources that were shown. Every line below
//! `verdicts` must be a verdict, and every verdict about a task must resolve to exactly one task.
//! The tale must not repeat the previous tale. The entry must have substance (see `substance`).
//! This module must never fix an entry.

use runner_text::org::{self, Board, Resolved};

use super::super::entry::{Entry, Sections, VerdictMove, render};
use super::gather::Slice;
use super::mentions;
use super::repeats::{REPEATED, likeness};
use super::substance;

/// A reason to refuse an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The answer is not an entry.
    #[error("{0}")]
    Malformed(String),
    /// The answer reached the backend's length limit, in tokens.
    #[error("the answer was truncated at {0} tokens")]
    TooLong(u64),
    /// A verdict is invalid, the entry mentions a commit that appears in none of the sources, or
    /// the second question was not answered.
    #[error("{0}")]
    Untrue(String),
    /// The entry has no substance.
    #[error("{0}")]
    Empty(String),
    /// The tale repeats that of the previous entry.
    #[error("parrot: the tale repeats that of the previous entry")]
    Parrot,
}

/// Checks an entry's verdicts, commit hashes, substance and tale.
///
/// # Errors
/// Returns the first reason to refuse the entry.
pub fn check(sections: &Sections, slice: &Slice) -> Result<(), Refusal> {
    if let Some(line) = sections.unread.first() {
        let why = format!("{line:?} is listed below verdicts but is not a verdict");
        return Err(Refusal::Untrue(why));
    }
    verdicts(sections, &slice.board).map_err(Refusal::Untrue)?;
    let text = render(&Entry { sections: sections.clone(), ..Entry::default() });
    if let Some(hash) = mentions::unknown_hash(&text, slice) {
        let why = format!("commit {hash} does not occur in the sources that were shown");
        return Err(Refusal::Untrue(why));
    }
    substance::check(sections, slice).map_err(Refusal::Empty)?;
    let previous = slice.previous.as_ref().map(|it| it.entry.sections.tale.as_str());
    if previous.is_some_and(|tale| likeness(&sections.tale, tale) >= REPEATED) {
        return Err(Refusal::Parrot);
    }
    Ok(())
}

fn verdicts(sections: &Sections, board: &Board) -> Result<(), String> {
    for verdict in sections.verdicts.iter().filter(|it| it.act != VerdictMove::KeepCourse) {
        let (act, said) = (verdict.act.describe(), &verdict.said);
        match board.resolve(said) {
            Resolved::One { .. } => {}
            Resolved::Ambiguous { heading, lines } => {
                let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
                let lines = lines.join(", ");
                return Err(format!(
                    "{act:?} names {heading:?}, which occurs on lines {lines} of the board"
                ));
            }
            Resolved::Unknown => return Err(format!("`{act}: {said}` names no task on the board")),
        }
    }
    Ok(())
}

/// Checks that no verdict in a JSON answer resolves to a different task once the verdict is written
/// as org text with its reason.
///
/// # Errors
/// Returns [`Refusal::Untrue`] for the first verdict that resolves to a different task.
pub fn same_tasks(sections: &Sections, board: &Board) -> Result<(), Refusal> {
    for verdict in sections.verdicts.iter().filter(|it| it.act != VerdictMove::KeepCourse) {
        let named = verdict.task.as_deref().unwrap_or_default();
        if let Resolved::One { task, .. } = board.resolve(&verdict.said)
            && org::fold(&task.heading) != org::fold(named)
        {
            let heading = &task.heading;
            let why = format!("{named:?} together with its reason could be read as {heading:?}");
            return Err(Refusal::Untrue(why));
        }
    }
    Ok(())
}
