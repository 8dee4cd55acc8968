//! Extracts the commands from a session's answers and executes each command exactly once.
//!
//! Both the transcript and the host's `last_assistant_message` are read, because either may contain
//! text that the other lacks. An effect is identified by the turn, the digest of its element, and
//! the element's number among equal elements of the turn. The effects and the cursor are committed
//! together, so that replays, late writes to the transcript and killed hooks neither repeat nor
//! lose a command.

use std::collections::HashMap;
use std::io;

use jiff::Timestamp;
use ulid::Ulid;

use super::transcript::{self, Turn};
use super::{HookContext, HookEvent, Payload};
use crate::apply::{Actor, RECALLED, Recall, key, recall};
use crate::element::{Element, elements};
use crate::error::{MemoryError, Result};
use crate::session::{Session, TurnName};
use crate::store::{Change, Memory};

/// Maximum number of recalls to store for one prompt.
const RECALLS: usize = 8;
/// Maximum number of warnings in a report.
const WARNINGS: usize = 20;

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
        let id = payload.session();
        let mut session = self.session(id)?.unwrap_or_default();
        session.id = id.to_owned();
        session.folder.clone_from(&context.folder);
        session.project = context.scope.project().map(str::to_owned);
        let mut report = AnswerReport::default();
        let mut turns = match (response, &payload.transcript_path) {
            (None, Some(path)) => read_turns(path, &mut session, context, &mut report),
            _ => Vec::new(),
        };
        let last = match event {
            HookEvent::Stop => response.or(payload.last_assistant_message.as_deref()),
            _ => response,
        };
        let fallback = fallback_turn(payload, response);
        let last = last.filter(|text| !text.is_empty());
        if last.is_some() && !belongs(turns.last(), payload, response) {
            turns.push(Turn { id: Some(fallback), offset: session.cursor, ..Turn::default() });
        }
        let aliases: Vec<Option<String>> =
            turns.iter().map(|it| it.prompt.as_deref().map(|it| format!("prompt:{it}"))).collect();
        let mut commands = Vec::new();
        let count = turns.len();
        for (at, (turn, alias)) in turns.iter().zip(&aliases).enumerate() {
            let name =
                TurnName { id: turn.id.as_deref().unwrap_or_default(), alias: alias.as_deref() };
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
            Ok(done)
        })?;
        report.executed = executed;
        report.warnings.extend(warnings);
        report.warnings.truncate(WARNINGS);
        Ok(report)
    }
}

/// Reads the turns after the session's cursor, and moves the cursor to the last turn. Turns that a
/// fork copied from its parent are omitted.
fn read_turns(
    path: &std::path::Path,
    session: &mut Session,
    context: &HookContext,
    report: &mut AnswerReport,
) -> Vec<Turn> {
    let read = match transcript::read(path, session.cursor, context.transcript_limit) {
        Ok(read) => read,
        // The transcript does not exist before the first answer.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            report.warnings.push(format!("cannot read the transcript: {error}"));
            return Vec::new();
        }
    };
    let since: Option<Timestamp> = session.since.as_deref().and_then(|at| at.parse().ok());
    let mut turns = read.turns;
    if let Some(last) = turns.last().filter(|last| last.begun) {
        session.cursor = last.offset;
    }
    // The last turn is read again, so its lines are counted only after it has ended.
    session.skipped +=
        read.skipped.iter().filter(|offset| **offset < session.cursor).count() as i64;
    report.skipped = read.skipped;
    turns.retain(|turn| match (since, turn.at) {
        (Some(since), Some(at)) => at >= since,
        _ => true,
    });
    for turn in &mut turns {
        if turn.id.is_none() {
            turn.id = Some(format!("row:{}:{}", session.id, turn.offset));
        }
    }
    turns
}

/// Returns whether the last answer belongs to the last turn of the transcript. If the host names
/// another prompt, the transcript does not contain that prompt's row yet.
fn belongs(turn: Option<&Turn>, payload: &Payload, response: Option<&str>) -> bool {
    let Some(turn) = turn.filter(|_| response.is_none()) else { return false };
    match (&turn.prompt, &payload.prompt_id, &payload.turn_id) {
        (Some(prompt), Some(named), _) => prompt == named,
        (None, _, Some(named)) => turn.id.as_ref() == Some(named),
        _ => turn.begun,
    }
}

/// Returns the name of a turn that is not in the transcript yet.
fn fallback_turn(payload: &Payload, response: Option<&str>) -> String {
    match (&payload.prompt_id, &payload.turn_id) {
        (Some(prompt), _) if response.is_none() => format!("prompt:{prompt}"),
        (_, Some(turn)) if response.is_none() => turn.clone(),
        _ => format!("call:{}", Ulid::new()),
    }
}

/// Returns the elements of a turn with their numbers among equal elements. The open text of the
/// transcript and `last` are the same message, and either may contain more of it.
fn commands_of(turn: &Turn, last: Option<&str>, problems: &mut Vec<String>) -> Vec<(Element, u32)> {
    let mut numbers: HashMap<String, u32> = HashMap::new();
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
    /// Executes the commands that have not been executed yet. A refused command counts as executed,
    /// so that it is reported only once.
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
                Err(error) => warnings.push(format!("<ctx:{}>: {error}", element.name)),
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
        Ok(Recall { query: query.to_owned(), found, nodes })
    }
}
