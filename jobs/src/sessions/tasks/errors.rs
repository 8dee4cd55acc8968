//! Task 2, error clusters: the errors of a session, grouped by signature.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::cite;
use crate::sessions::event::{Event, Outcome};
use runner_text::redact::Redacted;

/// Maximum number of groups.
const MOST: usize = 40;

/// The errors in a session that have the same trigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorGroup {
    pub trigger: String,
    /// The masked line of the first error.
    pub signature: String,
    pub count: u32,
    /// Whether a call with the same intent succeeded after the last error.
    pub resolved: bool,
    /// The subject of the failed call, such as `cargo test`.
    pub subject: String,
    pub evidence: Vec<u64>,
}

/// Returns the groups, most frequent first.
pub fn groups(events: &[Event]) -> Vec<ErrorGroup> {
    let mut groups: Vec<(ErrorGroup, usize)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for (at, event) in events.iter().enumerate() {
        let Some(error) = event.error() else { continue };
        match known.get(error.trigger.as_str()).and_then(|at| groups.get_mut(*at)) {
            Some((group, last)) => {
                group.count += 1;
                *last = at;
                cite(&mut group.evidence, event.line);
            }
            None => {
                known.insert(&error.trigger, groups.len());
                let group = ErrorGroup {
                    trigger: error.trigger.clone(),
                    signature: error.line.clone(),
                    count: 1,
                    resolved: false,
                    subject: brief(event.about().1, 80),
                    evidence: vec![event.line],
                };
                groups.push((group, at));
            }
        }
    }
    groups.sort_by_key(|(group, _)| std::cmp::Reverse(group.count));
    groups.truncate(MOST);
    groups
        .into_iter()
        .map(|(group, last)| ErrorGroup { resolved: resolved(events, last), ..group })
        .collect()
}

/// Returns whether a call with the same intent as the failed one passed afterwards.
fn resolved(events: &[Event], failed: usize) -> bool {
    let error = &events[failed];
    // A wrong file name is treated as corrected once the same tool succeeds with any name.
    let same = |later: &Event| match error.tool.as_str() {
        "Bash" => later.about() == error.about(),
        tool => later.tool == tool,
    };
    events[failed + 1..].iter().any(|later| later.outcome == Outcome::Passed && same(later))
}

/// Returns the first non-blank line of a string, redacted and truncated to `most` characters.
pub(in crate::sessions) fn brief(text: &str, most: usize) -> String {
    let text = Redacted::of(text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    Redacted::of(line).head(most).into_string()
}
