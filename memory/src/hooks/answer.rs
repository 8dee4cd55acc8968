//! Extracts the commands from a session's answers and executes each command exactly once.
//!
//! Both the transcript and the host's `last_assistant_message` are read, because either may contain
//! text that the other lacks. An effect is identified by the turn, the digest of its element, and
//! the element's number among equal elements of the turn. The effects and the cursor are committed
//! together, so replays, late writes to the transcript and killed hooks neither repeat nor
//! lose a command.

use std::collections::HashMap;
use std::io;

use jiff::Timestamp;
use runner_text::redact::Redacted;
use ulid::Ulid;

use super::transcript::{self, Extent, Turn};
use super::{HookContext, HookEvent, Payload};
use crate::apply::{Actor, RECALLED, Recall, key, recall};
use crate::element::{Element, elements};
use crate::error::{MemoryError, Result};
use crate::node::cut;
use crate::session::{Session, TurnAlias, TurnName};
use crate::store::{Change, Memory, Reader};

/// Maximum number of recalls to store for one prompt.
const RECALLS: usize = 8;
/// Maximum number of warnings in a report.
const WARNINGS: usize = 20;
/// Maximum number of characters in a warning about a refused command. An error may repeat an
/// attribute of any length.
const WARNING: usize = 500;

/// The result of a hook that reads answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerReport {
    /// The number of executed commands.
    pub executed: usize,
    /// Warnings about the commands and the transcript.
    pub warnings: Vec<String>,
    /// The byte offsets of the transcript lines that were skipped.
    pub skipped: Vec<u64>,
}

/// A command of a turn. It may already have been executed.
struct Command<'t> {
    turn: TurnName<'t>,
    element: Element,
    ordinal: u32,
}

impl Memory {
    /// Executes the commands in the answers since the last call. If `response` is given, it is read
    /// instead of the transcript, as a separate turn.
    ///
    /// # Errors
    /// Returns an error if the store cannot be used. An unreadable transcript only causes a
    /// warning.
    pub fn take_answers(
        &mut self,
        event: HookEvent,
        payload: &Payload,
        context: &HookContext,
        response: Option<&str>,
    ) -> Result<AnswerReport> {
        let id = &payload.session(context);
        let mut session = self.session(id)?.unwrap_or_default();
        session.id.clone_from(id);
        session.folder.clone_from(&context.folder);
        session.project = context.scope.project().map(str::to_owned);
        let mut report = AnswerReport::default();
        let cursor = session.cursor;
        let Unread { mut turns, rest } = match (response, &payload.transcript_path) {
            (None, Some(path)) => {
                let begun = begun_turn(self.reader(), &session)?;
                read_turns(path, &mut session, begun, context, &mut report)
            }
            _ => Unread::default(),
        };
        let last = match event {
            HookEvent::Stop => response.or(payload.last_assistant_message.as_deref()),
            _ => response,
        };
        // If the transcript was not read to its end, the last answer is in the unread rows, and its
        // turn is not known yet.
        let last = last.filter(|text| !text.is_empty() && rest.is_none());
        if last.is_some() && !belongs(turns.last(), payload, response) {
            let id = Some(fallback_turn(payload, response, &session));
            turns.push(Turn { id, offset: session.cursor, ..Turn::default() });
        }
        let aliases = match (response, &payload.transcript_path) {
            (None, Some(_)) => aliases_of(&turns, id, cursor),
            // Only a row of a transcript can have two names.
            _ => turns.iter().map(|_| Vec::new()).collect(),
        };
        let mut commands = Vec::new();
        let count = turns.len();
        for (at, (turn, aliases)) in turns.iter().zip(&aliases).enumerate() {
            let name = TurnName { id: turn.id.as_deref().unwrap_or_default(), aliases };
            let last = last.filter(|_| at + 1 == count);
            // The problems of earlier turns were reported when they ended.
            let mut problems = Vec::new();
            let found = commands_of(turn, last, &mut problems);
            report.warnings.extend(problems.into_iter().filter(|_| at + 1 == count));
            commands.extend(found.into_iter().map(|(element, ordinal)| Command {
                turn: name,
                element,
                ordinal,
            }));
        }
        if event == HookEvent::Stop {
            session.answered_at = Some(context.now.to_string());
        }
        let actor = payload.actor(context);
        let what = format!("session {}", id.get(..8).unwrap_or(id));
        let (executed, warnings) = self.change(&what, context.now, |change| {
            let done = change.execute_all(&commands, &actor, context.now)?;
            change.put_session(&session)?;
            if let Some(rest) = &rest {
                let rest = serde_json::to_string(rest).unwrap_or_default();
                change.set_pending(id, key::TURN, &rest)?;
            }
            // Removing the lists here delays no prompt.
            if event == HookEvent::SessionEnd {
                change.prune_sessions()?;
            }
            Ok(done)
        })?;
        report.executed = executed;
        report.warnings.extend(warnings);
        report.warnings.truncate(WARNINGS);
        Ok(report)
    }
}

/// The turns after a session's cursor.
#[derive(Default)]
struct Unread {
    turns: Vec<Turn>,
    /// The turn to continue, if the time limit was reached before the end of the transcript.
    rest: Option<Turn>,
}

/// Returns the turn at a session's cursor as far as an earlier call has read it.
fn begun_turn(reader: Reader<'_>, session: &Session) -> Result<Turn> {
    let text = reader.pending(&session.id, key::TURN)?;
    let turn: Option<Turn> = text.and_then(|text| serde_json::from_str(&text).ok());
    let turn = turn.filter(|turn| turn.offset == session.cursor);
    Ok(turn.unwrap_or_else(|| Turn { offset: session.cursor, ..Turn::default() }))
}

/// Reads the turns after the session's cursor, and moves the cursor to the last turn, or to the
/// first row that was not read. Turns that a fork copied from its parent are omitted.
fn read_turns(
    path: &std::path::Path,
    session: &mut Session,
    begun: Turn,
    context: &HookContext,
    report: &mut AnswerReport,
) -> Unread {
    let read = match transcript::read(path, begun, context.transcript_limit) {
        Ok(read) => read,
        // The transcript does not exist before the first answer.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Unread::default(),
        Err(error) => {
            report.warnings.push(format!("cannot read the transcript: {error}"));
            return Unread::default();
        }
    };
    let since: Option<Timestamp> = session.since.as_deref().and_then(|at| at.parse().ok());
    let since = since.unwrap_or(Timestamp::MIN);
    let mut turns = read.turns;
    for turn in &mut turns {
        turn.id.get_or_insert_with(|| unnamed_turn(&session.id, turn.offset));
    }
    let rest = match read.extent {
        Extent::Whole => None,
        Extent::Cut(next) => {
            report.warnings.push(format!(
                "reading the transcript reached the time limit at byte {next} of {}, and the \
                 session's next hook continues there; fix: export CTX_TRANSCRIPT_TIMEOUT=8 (hosts \
                 end a hook after 10 seconds)",
                read.end
            ));
            Some(rest_of(turns.last(), next))
        }
    };
    if let Some(turn) = rest.as_ref().or(turns.last().filter(|last| last.begun)) {
        session.cursor = turn.offset;
    }
    // The last turn is read again, so its lines are counted only after it has ended.
    session.skipped +=
        read.skipped.iter().filter(|offset| **offset < session.cursor).count() as i64;
    report.skipped = read.skipped;
    turns.retain(|turn| turn.at.is_none_or(|at| at >= since));
    Unread { turns, rest }
}

/// Returns the part of a turn that begins at an offset. Its elements continue the numbering of
/// those before it.
fn rest_of(turn: Option<&Turn>, offset: u64) -> Turn {
    let Some(turn) = turn else { return Turn { offset, ..Turn::default() } };
    let (id, prompt, earlier) = (turn.id.clone(), turn.prompt.clone(), numbers_of(turn));
    Turn { id, prompt, at: turn.at, offset, begun: true, earlier, ..Turn::default() }
}

/// Returns the number of elements in the rows of a turn, by digest.
fn numbers_of(turn: &Turn) -> HashMap<String, u32> {
    let mut numbers = turn.earlier.clone();
    let read = commands_of(turn, None, &mut Vec::new());
    numbers.extend(read.into_iter().map(|(element, number)| (element.digest, number)));
    numbers
}

/// Returns the names under which the effects of each turn may have been recorded before the
/// transcript contained its row:
///
/// - the name of the turn's prompt
/// - for the first turn, the name of a turn without ids at the cursor
/// - for a second turn without a prompt id, the name of the first turn, which then has more effects
///   than elements
fn aliases_of(turns: &[Turn], session: &str, cursor: u64) -> Vec<Vec<TurnAlias>> {
    let named = |name| TurnAlias { name, ..TurnAlias::default() };
    let aliases = turns.iter().enumerate().map(|(at, turn)| {
        let before = match (at, &turn.prompt) {
            (0, _) => Some(named(unnamed_turn(session, cursor))),
            (1, None) if turn.begun => turns[0].id.clone().map(|name| {
                let earlier = numbers_of(&turns[0]);
                TurnAlias { name, earlier }
            }),
            _ => None,
        };
        let prompt = turn.prompt.as_deref().map(|prompt| named(format!("prompt:{prompt}")));
        prompt.into_iter().chain(before).collect()
    });
    aliases.collect()
}

/// Returns the name of a turn without ids.
fn unnamed_turn(session: &str, offset: u64) -> String {
    format!("row:{session}:{offset}")
}

/// Returns whether the last answer is part of the last turn of the transcript. If the host names
/// another prompt, the transcript does not contain that prompt's row yet.
fn belongs(turn: Option<&Turn>, payload: &Payload, response: Option<&str>) -> bool {
    let Some(turn) = turn.filter(|_| response.is_none()) else { return false };
    match (&turn.prompt, &payload.prompt_id, &payload.turn_id) {
        (Some(prompt), Some(named), _) => prompt == named,
        (None, _, Some(named)) => turn.id.as_ref() == Some(named),
        _ => turn.begun,
    }
}

/// Returns the name of a turn that is not in the transcript yet. Each call with a response, or
/// without a transcript and ids, is a turn of its own.
fn fallback_turn(payload: &Payload, response: Option<&str>, session: &Session) -> String {
    match (&payload.prompt_id, &payload.turn_id) {
        _ if response.is_some() => format!("call:{}", Ulid::new()),
        (Some(prompt), _) => format!("prompt:{prompt}"),
        (_, Some(turn)) => turn.clone(),
        _ if payload.transcript_path.is_some() => unnamed_turn(&session.id, session.cursor),
        _ => format!("call:{}", Ulid::new()),
    }
}

/// Returns the elements of a turn with their numbers among equal elements. The open text of the
/// transcript and `last` are the same message, and either may contain more of it.
fn commands_of(turn: &Turn, last: Option<&str>, problems: &mut Vec<String>) -> Vec<(Element, u32)> {
    let mut numbers = turn.earlier.clone();
    let mut out = Vec::new();
    let mut take = |element: Element, numbers: &mut HashMap<String, u32>| {
        let number = numbers.entry(element.digest.clone()).or_default();
        *number += 1;
        out.push((element, *number));
    };
    for segment in &turn.segments {
        let found = elements(segment);
        problems.extend(found.problems);
        found.found.into_iter().for_each(|element| take(element, &mut numbers));
    }
    let open = elements(&turn.open);
    let mut in_open: HashMap<String, u32> = HashMap::new();
    for element in open.found {
        *in_open.entry(element.digest.clone()).or_default() += 1;
        take(element, &mut numbers);
    }
    match last.map(elements) {
        None => problems.extend(open.problems),
        Some(last) => {
            problems.extend(last.problems);
            for element in last.found {
                match in_open.get_mut(&element.digest).filter(|left| **left > 0) {
                    Some(left) => *left -= 1,
                    None => take(element, &mut numbers),
                }
            }
        }
    }
    out
}

impl Change<'_> {
    /// Executes the commands that have not been executed yet. A refused command is recorded like an
    /// executed one, so it is reported only once.
    fn execute_all(
        &mut self,
        commands: &[Command<'_>],
        actor: &Actor,
        now: Timestamp,
    ) -> Result<(usize, Vec<String>)> {
        let (mut executed, mut warnings) = (0, Vec::new());
        let mut recalls: Vec<Recall> = Vec::new();
        for Command { turn, element, ordinal } in commands {
            if !self.claim(turn, &element.digest, *ordinal)? {
                continue;
            }
            let done = self.attempt(|change| match element.name.as_str() {
                "recall" => {
                    recalls.push(change.recall_for(element, actor, now)?);
                    Ok(None)
                }
                "status" => {
                    let text = change.reader().status_text(actor)?;
                    change.set_pending(&actor.session, key::STATUS, &text)?;
                    Ok(None)
                }
                _ => change.execute(element, actor),
            })?;
            match done {
                Ok(warning) => {
                    executed += 1;
                    warnings.extend(warning);
                }
                Err(error) => {
                    let warning = format!("<ctx:{}>: {error}", element.name);
                    warnings.push(cut(&warning, WARNING));
                }
            }
        }
        if !recalls.is_empty() {
            let waiting = self.pending(&actor.session, key::RECALL)?;
            let mut all: Vec<Recall> =
                waiting.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            all.extend(recalls);
            let value = serde_json::to_string(&all[all.len().saturating_sub(RECALLS)..]);
            self.set_pending(&actor.session, key::RECALL, &value.unwrap_or_default())?;
        }
        Ok((executed, warnings))
    }

    fn recall_for(&self, element: &Element, actor: &Actor, now: Timestamp) -> Result<Recall> {
        let query = element.attribute("query");
        let query = query.ok_or_else(|| {
            MemoryError::Invalid("<ctx:recall> needs the attribute query".to_owned())
        })?;
        let (nodes, found) = recall(self.reader(), query, &actor.scope, now)?;
        let nodes = nodes.into_iter().take(RECALLED).map(|node| node.id).collect();
        Ok(Recall { query: Redacted::of(query).into_string(), found, nodes })
    }
}
