//! Renders the review to fill the terminal exactly: one line of text for each terminal row, none
//! wider than the terminal. This module is pure.

use runner_jobs::dream::review::{LineKind, ProposalItem};

use super::machine::{Mode, Review};
use super::{contract_word, status_text};
use crate::tui::rows::{CellStyle, Row, columns};
use crate::ui::safe;

/// The keys for a decision, for wide and for narrow terminals.
const CARD_KEYS: [&str; 2] = [
    "a accept · r reject · m amend · s skip · u undo · n p · f filter · ? · q quit",
    "a r m s · u · n p · f · ? · q",
];
const LIST_KEYS: [&str; 2] = [
    "↑↓ choose  enter open  u undo  f filter  / search  ? help  q quit",
    "↑↓ enter · u · f / · ? · q",
];
const HELP: &str = "\
a        accept: carry out the proposed action
r        reject: the proposal is wrong; change nothing
m        amend: choose another action for the idea
s        skip: change nothing, and ask again when the idea changes
u        undo the last decision of this review
n p      show the next or previous proposal without deciding
c        add a note to the next decision
↑ ↓ space  scroll by a line or a page
f /      filter by status, action, confidence or text
l, esc   return to the list
q        return to the list, or quit from it; no decision is lost

Every file that a decision replaces or removes is backed up, and
`runner dream undo ID` restores it.";

/// Renders all rows of the terminal.
pub fn rows(review: &mut Review, width: usize, height: usize) -> Vec<Row> {
    let mut top = vec![Row::bar(&title(review), width)];
    let mut bottom = bottom(review, width);
    if bottom.len() + top.len() >= height {
        bottom.drain(..bottom.len().saturating_sub(height.saturating_sub(top.len() + 1)));
    }
    let room = height.saturating_sub(top.len() + bottom.len());
    let mut body = match review.mode {
        Mode::List => list(review, width, room),
        Mode::Help => Row::wrapped(CellStyle::Plain, HELP, width),
        _ => {
            let all = card(review, width);
            // Scrolling stops at the end of the text.
            review.scroll = review.scroll.min(all.len().saturating_sub(room));
            all.into_iter().skip(review.scroll).collect()
        }
    };
    body.resize(room, Row::default());
    top.append(&mut body);
    top.append(&mut bottom);
    top.truncate(height);
    top
}

fn title(review: &Review) -> String {
    let shown = review.shown().len();
    let (open, decided) = review.counts();
    let mut title = match shown {
        0 if review.sieve.is_on() => " none".to_owned(),
        0 => format!(" {open} undecided"),
        _ => format!(" {} of {shown}", review.at + 1),
    };
    if review.sieve.is_on() {
        let sieve = &review.sieve;
        let words = [
            sieve.status.map(|it| it.as_str().to_owned()),
            sieve.action.map(|it| it.as_str().to_owned()),
            sieve.confidence.map(|it| contract_word(&it)),
            (!sieve.text.is_empty()).then(|| format!("{:?}", safe::line(&sieve.text))),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        title.push_str(&format!(" of {open} · only {}", words.join(", ")));
    }
    if decided > 0 {
        title.push_str(&format!(" · {decided} decided"));
    }
    title
}

/// Renders the prompt or message, and the keys.
fn bottom(review: &Review, width: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some((said, bad)) = &review.said {
        let look = if *bad { CellStyle::Bad } else { CellStyle::Good };
        rows.extend(Row::wrapped(look, &safe::line(said), width));
    }
    if let Some(note) = &review.note {
        rows.extend(Row::wrapped(CellStyle::Faint, &format!("note: {}", safe::line(note)), width));
    }
    let asked = |what: &str, text: &str| {
        Row::wrapped(CellStyle::Strong, &format!("{what}: {}▏", safe::line(text)), width)
    };
    let keys = match &review.mode {
        Mode::List => LIST_KEYS,
        Mode::Card => CARD_KEYS,
        Mode::Amend => {
            rows.extend(Row::wrapped(
                CellStyle::Strong,
                "action:  1 archive  2 merge  3 promote  4 mark-blog  5 keep",
                width,
            ));
            ["any other key: cancel"; 2]
        }
        Mode::Into(text) => {
            rows.extend(asked("merge into (a path below the project)", text));
            ["enter: merge  esc: cancel"; 2]
        }
        Mode::Text(text) => {
            rows.extend(asked("search text", text));
            ["enter: keep  esc: clear"; 2]
        }
        Mode::Note(text) => {
            rows.extend(asked("note", text));
            ["enter: keep  esc: cancel"; 2]
        }
        Mode::Filter => {
            rows.extend(Row::wrapped(
                CellStyle::Strong,
                "show only: s status  a action  c confidence  / text  x everything",
                width,
            ));
            ["any other key: done"; 2]
        }
        Mode::Confirm(..) => ["F: decide anyway (a backup is kept)  any other key: cancel"; 2],
        Mode::Help => ["any key: back"; 2],
    };
    let keys = if columns(keys[0]) < width { keys[0] } else { keys[1] };
    rows.push(Row::bar(&format!(" {keys}"), width));
    rows
}

fn list(review: &Review, width: usize, room: usize) -> Vec<Row> {
    let shown = review.shown();
    if shown.is_empty() {
        let (open, _) = review.counts();
        let text = match open {
            0 => "No undecided proposals.".to_owned(),
            1 => "The only undecided proposal does not match the filter; f x shows all.".to_owned(),
            open => {
                format!("None of the {open} undecided proposals matches the filter; f x shows all.")
            }
        };
        return Row::wrapped(CellStyle::Strong, &text, width);
    }
    // Keeps the current proposal visible.
    let from = review.at.saturating_sub(room.saturating_sub(1));
    let rows = shown.iter().enumerate().skip(from).take(room);
    rows.map(|(at, item)| {
        let mark = if at == review.at { "› " } else { "  " };
        let line = format!("{mark}{}", summary(item, width));
        let look = if at == review.at { CellStyle::Strong } else { CellStyle::Plain };
        Row::cut(look, &line, width)
    })
    .collect()
}

fn summary(item: &ProposalItem, width: usize) -> String {
    let it = &item.proposal;
    let stale = if item.stale.is_some() || item.superseded { " !" } else { "" };
    let target = safe::line(&it.targets[0]);
    if width < 60 {
        return format!("{} {target}{stale}", it.action.as_str());
    }
    let (action, status) = (it.action.as_str(), it.status.as_str());
    format!("{action:<10}{status:<16}{:<6}{target}{stale}", contract_word(&it.confidence))
}

fn card(review: &Review, width: usize) -> Vec<Row> {
    let Some(item) = review.current() else {
        let (open, decided) = review.counts();
        let text = match (open, decided) {
            (0, 0) => "No undecided proposals.",
            (0, _) => "Everything is decided. u undoes the last decision, q quits.",
            _ => "Nothing else matches the filter; f x shows all.",
        };
        return Row::wrapped(CellStyle::Strong, text, width);
    };
    let it = &item.proposal;
    let mut rows = Vec::new();
    let head = format!("{} {}", it.action.as_str(), it.targets.join(" into "));
    rows.extend(Row::wrapped(CellStyle::Strong, &safe::line(&head), width));
    let found = format!(
        "{} · confidence {} · {} · {}",
        it.status.as_str(),
        contract_word(&it.confidence),
        it.id,
        item.pass
    );
    rows.extend(Row::wrapped(CellStyle::Faint, &safe::line(&found), width));
    let stands = status_text(item);
    if !stands.is_empty() {
        rows.extend(Row::wrapped(CellStyle::Bad, &stands, width));
    }
    rows.push(Row::default());
    rows.extend(Row::wrapped(CellStyle::Plain, &safe::line(&it.evidence), width));
    if !it.rationale.is_empty() {
        rows.extend(Row::wrapped(CellStyle::Faint, &safe::line(&it.rationale), width));
    }
    let Some(detail) = review.detail.as_ref().filter(|detail| detail.id == it.id) else {
        return rows;
    };
    if let Some(like) = &detail.like {
        rows.extend(Row::wrapped(CellStyle::Faint, like, width));
    }
    rows.push(Row::default());
    match &detail.plan {
        Err(why) => rows.extend(Row::wrapped(
            CellStyle::Bad,
            &format!("accept would be refused: {}", safe::line(why)),
            width,
        )),
        Ok((says, preview)) => {
            rows.extend(Row::wrapped(
                CellStyle::Strong,
                &format!("accept: {}", safe::line(says)),
                width,
            ));
            for line in preview {
                let (look, sign) = match line.kind {
                    LineKind::File => (CellStyle::Plain, "  "),
                    LineKind::Added => (CellStyle::Good, "+ "),
                    LineKind::Kept => (CellStyle::Faint, "  "),
                };
                let text = format!("{sign}{}", safe::line(&line.text));
                rows.extend(Row::wrapped(look, &text, width));
            }
        }
    }
    rows.push(Row::default());
    let rule = format!("── {} ", safe::line(&it.targets[0]));
    let fill = width.saturating_sub(columns(&rule));
    rows.push(Row::cut(CellStyle::Faint, &(rule + &"─".repeat(fill)), width));
    for line in &detail.text {
        rows.extend(Row::wrapped(CellStyle::Plain, line, width));
    }
    rows
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
