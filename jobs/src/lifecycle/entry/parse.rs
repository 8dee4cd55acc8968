//! Parses org text into an entry, in one pass over its lines.
//!
//! This module must never take more than linear time or repair the text.

use super::render::{one_line, prose};
use super::{Entry, HEADINGS, Sections, Verdict, VerdictMove};

/// Maximum size of an entry, in bytes.
pub const LARGEST: usize = 256 * 1024;

/// The dashes that separate a task from its reason.
const DASHES: [&str; 4] = [" — ", " – ", " -- ", " - "];

/// Why a text is not a valid entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Malformed {
    /// The 1-based line number.
    pub line: usize,
    /// A description of the mistake.
    pub why: String,
}

/// Parses an entry whose file is `<id>.org`. The title and the model come from the entry's keywords
/// and are empty without them.
///
/// # Errors
/// Returns an error if the text is larger than [`LARGEST`], has text other than keywords before the
/// first heading, or does not contain exactly the six headings in order.
pub fn parse(id: &str, text: &str) -> Result<Entry, Malformed> {
    let sections = parse_sections(text)?;
    let keywords = |name: &'static str| {
        let preamble = text.lines().take_while(|line| heading(line).is_none());
        preamble.filter_map(move |line| {
            let (head, value) = line.trim().split_once(':')?;
            head.eq_ignore_ascii_case(name).then(|| one_line(value))
        })
    };
    let keyword = |name| keywords(name).next().unwrap_or_default();
    let unseen = keyword("#+UNSEEN");
    let unseen = unseen.split(';').map(str::trim).filter(|what| !what.is_empty());
    Ok(Entry {
        id: id.to_owned(),
        title: keyword("#+TITLE"),
        model: keyword("#+MODEL"),
        unseen: unseen.map(str::to_owned).collect(),
        facts: keywords("#+FACT").filter(|fact| !fact.is_empty()).collect(),
        sections,
    })
}

/// Parses the six sections. Keywords and blank lines may precede the first section.
///
/// # Errors
/// Returns the same errors as [`parse`].
pub fn parse_sections(text: &str) -> Result<Sections, Malformed> {
    let wrong = |line: usize, why: String| Err(Malformed { line, why });
    if text.len() > LARGEST {
        return wrong(1, format!("larger than {LARGEST} bytes"));
    }
    let mut bodies: [Vec<&str>; 6] = Default::default();
    let mut open = 0;
    let mut last = 0;
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        last = at + 1;
        if let Some(name) = heading(line) {
            match HEADINGS.get(open) {
                Some(due) if *due == name => open += 1,
                Some(due) => {
                    return wrong(last, format!("heading {name:?}, but {due:?} is expected"));
                }
                None => return wrong(last, format!("heading {name:?} after the sixth")),
            }
        } else if let Some(body) = open.checked_sub(1) {
            bodies[body].push(line.trim_end());
        } else if !(line.trim().is_empty() || line.starts_with("#+")) {
            return wrong(last, "text before the first heading".to_owned());
        }
    }
    if let Some(due) = HEADINGS.get(open) {
        return wrong(last.max(1), format!("the text ends before the heading {due:?}"));
    }
    let [tale, goals, blue_sky, fears, verdicts, carry] = bodies;
    let mut sections = Sections {
        tale: prose(tale),
        goals: items(&goals),
        blue_sky: items(&blue_sky),
        fears: items(&fears),
        carry: items(&carry),
        ..Sections::default()
    };
    for item in items(&verdicts) {
        match verdict(&item) {
            Some(verdict) => sections.verdicts.push(verdict),
            None => sections.unread.push(item),
        }
    }
    Ok(sections)
}

/// Returns the name of a top-level org heading, the whole line of a deeper one, or `None` if the
/// line is not a heading. A heading begins with stars followed by a space or a tab.
pub(super) fn heading(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches('*');
    let stars = line.len() - rest.len();
    if stars == 0 {
        return None;
    }
    // A deeper heading never matches one of the six, whatever its name.
    let name = rest.strip_prefix([' ', '\t'])?.trim();
    if stars == 1 { Some(name) } else { Some(line.trim_end()) }
}

/// Returns the text of each list item. An indented line continues the previous item, and any other
/// line begins a new item.
fn items(lines: &[&str]) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in lines {
        let trimmed = line.trim();
        if trimmed.is_empty() {
            goes_on = false;
            continue;
        }
        let bullet = trimmed.strip_prefix(['-', '+']);
        let bullet = bullet.filter(|text| text.starts_with([' ', '\t']));
        match (bullet, items.last_mut()) {
            (None, Some(item)) if goes_on && line.starts_with([' ', '\t']) => {
                item.push(' ');
                item.push_str(trimmed);
            }
            _ => {
                items.push(bullet.unwrap_or(trimmed).to_owned());
                goes_on = true;
            }
        }
    }
    let items = items.iter().map(|item| one_line(item));
    items.filter(|item| !item.is_empty()).collect()
}

/// Parses a line below `verdicts` by its first words. Returns `None` if the line is not a verdict.
fn verdict(item: &str) -> Option<Verdict> {
    let (act, rest) = VerdictMove::ALL.into_iter().find_map(|act| {
        let head = item.get(..act.describe().len())?;
        let rest = &item[head.len()..];
        head.eq_ignore_ascii_case(act.describe()).then_some((act, rest))
    })?;
    if act == VerdictMove::KeepCourse {
        // This accepts `keep course`, `keep course — why` and `keep course: why`, but not `keep
        // coursebook`.
        let padded = format!("{rest} ");
        let why = DASHES.iter().find_map(|dash| padded.strip_prefix(dash));
        let why = why.or_else(|| padded.strip_prefix(':'));
        let why = why.map_or_else(|| rest.trim().is_empty().then_some(""), Some)?;
        return Some(Verdict::new(act, None, why));
    }
    let said = rest.trim_start().strip_prefix(':')?.trim();
    if said.is_empty() {
        return None;
    }
    let parted = DASHES.iter().filter_map(|dash| Some((said.find(dash)?, dash.len())));
    let (task, why) = match parted.min() {
        Some((at, dash)) => (&said[..at], &said[at + dash..]),
        None => (said, ""),
    };
    Some(Verdict {
        act,
        task: Some(task.trim().to_owned()),
        why: why.trim().to_owned(),
        said: said.to_owned(),
    })
}
