//! Task 9, injection effectiveness: what happened after a hook added context.
//!
//! Two effects are measured: the change in trust, focus and debt over the next events, and the
//! number of files named in the text that the session then touched. A correlation is not proof of
//! an effect.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::signals::Signal;
use crate::sessions::event::{Action, Event};

/// The number of events after an injection over which the signals are compared.
const AFTER: usize = 40;
/// Maximum number of injections to measure.
const MOST: usize = 20;

/// The changes after one injection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectionEffect {
    pub line: u64,
    /// The session of the resume packet, if the text contains one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<String>,
    /// The artifacts named in the text.
    pub artifacts: Vec<String>,
    /// The number of files named in the text.
    pub files_named: u32,
    /// The number of these files that the session read or changed afterwards.
    pub files_touched: u32,
    pub trust_delta: i32,
    pub focus_delta: i32,
    /// The change in debt. A decrease is an improvement.
    pub debt_delta: i64,
}

/// The text before the session's id, and the text before an artifact's id, in a rendered resume
/// packet.
pub const PACKET_MARK: &str = "Last session ";
pub const ARTIFACT_MARK: &str = " [artifact ";

/// Returns the effects of the first `MOST` injections.
pub fn effects(events: &[Event], signals: &[Signal]) -> Vec<InjectionEffect> {
    let injections = events.iter().enumerate().filter(|(_, it)| it.action == Action::Injection);
    let effect = |(at, event): (usize, &Event)| {
        let text = event.target.as_str();
        let files = named(text);
        let touched: BTreeSet<&str> = events[at..]
            .iter()
            .filter(|later| {
                later.tool != "Bash" && matches!(later.action, Action::Read | Action::Edit)
            })
            .map(|later| later.target.as_str())
            .filter(|target| files.contains(target))
            .collect();
        let after = signals[(at + AFTER).min(signals.len() - 1)];
        let before = signals[at];
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        InjectionEffect {
            line: event.line,
            packet: after_mark(text, PACKET_MARK, |c| c == ' ' || c == ',').next(),
            artifacts: after_mark(text, ARTIFACT_MARK, |c| c == ']').take(20).collect(),
            files_named: count(files.len()),
            files_touched: count(touched.len()),
            trust_delta: i32::from(after.trust) - i32::from(before.trust),
            focus_delta: i32::from(after.focus) - i32::from(before.focus),
            debt_delta: i64::from(after.debt) - i64::from(before.debt),
        }
    };
    injections.take(MOST).map(effect).collect()
}

/// Returns the text after each occurrence of a mark, up to `end`.
fn after_mark<'t>(
    text: &'t str,
    mark: &'t str,
    end: fn(char) -> bool,
) -> impl Iterator<Item = String> + 't {
    text.split(mark).skip(1).map(move |rest| rest.split(end).next().unwrap_or_default().to_owned())
}

/// Returns the words in a string that have the form of a file path.
fn named(text: &str) -> BTreeSet<&str> {
    let around = |c: char| !c.is_alphanumeric() && !matches!(c, '/' | '_');
    let is_path = |word: &&str| {
        let file = word.rsplit('/').next().unwrap_or(word);
        let dotted = file.rsplit_once('.').is_some_and(|(stem, end)| {
            !stem.is_empty()
                && (1..=5).contains(&end.len())
                && end.bytes().all(|b| b.is_ascii_alphanumeric())
        });
        dotted && !word.contains("://") && file.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    let words = text.split([' ', '\n', '\t', ',', '`', '(', ')']);
    words.map(|it| it.trim_end_matches(around)).filter(is_path).collect()
}
