//! The review as a state machine: it handles keys, returns effects, and handles their results.
//!
//! ```text
//!           enter, a r s m          m                      2 (merge)
//!   List ───────────────> Card ──────────> Amend ─────────────────> Into
//!     ▲ <──────────────── │ ▲ │ a r s        │ 1 3 4 5                │ enter
//!     │       escape      │ │ └──> Decide <──┴────────────────────────┘
//!     │                   │ └────── refused, overrulable:    Confirm ── F ──> Decide, overruled
//!     └── f: Filter, /: Text, c: Note, ?: Help; each returns to the previous mode
//! ```
//!
//! The module is pure: it uses no terminal, no disk and no clock. Each decision is carried out
//! immediately, so the user can leave the review at any time without losing a decision.

use runner_jobs::dream::proposal::{Action, Confidence, IdeaStatus};
use runner_jobs::dream::review::{Consent, DecisionInput, PreviewLine, ProposalItem};

use super::effect::{Effect, News};
use super::filter::ProposalFilter;
use crate::ui::keys::Input;

/// The part of the review that is on screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The list of proposals.
    List,
    /// One proposal.
    Card,
    /// Choosing another action.
    Amend,
    /// Entering a merge destination.
    Into(String),
    /// Choosing a filter.
    Filter,
    /// Entering search text.
    Text(String),
    /// Entering a note for the next decision.
    Note(String),
    /// Asking whether to overrule the objections to a decision.
    Confirm(DecisionInput, Consent),
    /// The help for the keys.
    Help,
}

/// Details of the current proposal, shown in addition to the proposal's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    pub id: String,
    /// The lines of the idea's text, which are safe to print.
    pub text: Vec<String>,
    /// The user's recent decisions on similar proposals.
    pub like: Option<String>,
    /// The effect of accepting the proposal, with a preview, or the reason it would be refused.
    pub plan: Result<(String, Vec<PreviewLine>), String>,
}

/// The state of the review.
#[derive(Clone, Debug)]
pub struct Review {
    /// All proposals, as last read.
    items: Vec<ProposalItem>,
    /// The filter that selects the visible proposals.
    pub sieve: ProposalFilter,
    pub mode: Mode,
    back: Mode,
    /// The index of the current proposal among the visible proposals.
    pub at: usize,
    /// The first visible line of the card.
    pub scroll: usize,
    /// The last message, and whether it is an error.
    pub said: Option<(String, bool)>,
    /// The note for the next decision.
    pub note: Option<String>,
    /// The ids of the proposals decided in this review, most recent last.
    decided: Vec<String>,
    /// The last decision, until its result is known.
    pending: Option<DecisionInput>,
    pub detail: Option<Detail>,
}

impl Review {
    pub fn new(items: Vec<ProposalItem>, sieve: ProposalFilter) -> Self {
        Self {
            items,
            sieve,
            mode: Mode::List,
            back: Mode::List,
            at: 0,
            scroll: 0,
            said: None,
            note: None,
            decided: Vec::new(),
            pending: None,
            detail: None,
        }
    }

    /// Returns the visible proposals: those that are undecided and pass the filter.
    pub fn shown(&self) -> Vec<&ProposalItem> {
        let open = |item: &&ProposalItem| item.decision.is_none() && self.sieve.accepts(item);
        self.items.iter().filter(open).collect()
    }

    /// Returns the number of undecided proposals and the number of proposals decided in this
    /// review.
    pub fn counts(&self) -> (usize, usize) {
        let open = self.items.iter().filter(|item| item.decision.is_none());
        (open.count(), self.decided.len())
    }

    pub fn current(&self) -> Option<&ProposalItem> {
        self.shown().get(self.at).copied()
    }

    /// Returns the current proposal if its details must be loaded.
    pub fn wants_detail(&self) -> Option<&ProposalItem> {
        let wanted = !matches!(self.mode, Mode::List);
        let current = self.current().filter(|_| wanted)?;
        let known = self.detail.as_ref();
        known.is_none_or(|detail| detail.id != current.proposal.id).then_some(current)
    }

    /// Replaces the proposals with newly read ones and keeps the user's position.
    pub fn reload(&mut self, items: Vec<ProposalItem>) {
        let current = self.current().map(|item| item.proposal.id.clone());
        self.items = items;
        self.detail = None;
        let shown = self.shown();
        let place = shown.iter().position(|item| Some(&item.proposal.id) == current.as_ref());
        let last = shown.len().saturating_sub(1);
        if place.is_none() {
            self.scroll = 0;
        }
        self.at = place.unwrap_or(self.at.min(last));
    }

    /// Returns whether keys select proposals instead of answering a question.
    pub fn is_idle(&self) -> bool {
        matches!(self.mode, Mode::List | Mode::Card)
    }

    /// Returns whether the list of proposals is visible.
    pub fn is_listing(&self) -> bool {
        self.mode == Mode::List
    }

    /// Handles a key and returns the effect to carry out, if there is one.
    #[must_use]
    pub fn update(&mut self, key: Input) -> Option<Effect> {
        match key {
            Input::Stop => return Some(Effect::Quit),
            Input::Resized => return None,
            _ => {}
        }
        match self.mode.clone() {
            Mode::List | Mode::Card => self.inspect(key),
            Mode::Amend => self.amend(key),
            Mode::Into(text) => match typed(text, key) {
                Typed::More(text) => {
                    self.mode = Mode::Into(text);
                    None
                }
                Typed::Done(into) if !into.trim().is_empty() => {
                    self.mode = Mode::Card;
                    self.decide(DecisionInput::Amend {
                        action: Action::Merge,
                        into: Some(into.trim().to_owned()),
                    })
                }
                Typed::Done(_) | Typed::Left => self.return_to(Mode::Card),
            },
            Mode::Filter => self.filter(key),
            Mode::Text(text) => match typed(text, key) {
                Typed::More(text) => {
                    self.sieve.text.clone_from(&text);
                    self.mode = Mode::Text(text);
                    self.start_over();
                    None
                }
                Typed::Done(_) => self.return_to(self.back.clone()),
                Typed::Left => {
                    self.sieve.text.clear();
                    self.start_over();
                    self.return_to(self.back.clone())
                }
            },
            Mode::Note(text) => match typed(text, key) {
                Typed::More(text) => {
                    self.mode = Mode::Note(text);
                    None
                }
                Typed::Done(text) => {
                    self.note = Some(text.trim().to_owned()).filter(|text| !text.is_empty());
                    self.return_to(self.back.clone())
                }
                Typed::Left => self.return_to(self.back.clone()),
            },
            Mode::Confirm(verdict, consent) => {
                self.mode = Mode::Card;
                self.said = None;
                match (key, self.current()) {
                    (Input::Char('F'), Some(item)) => {
                        let id = item.proposal.id.clone();
                        self.pending = Some(verdict.clone());
                        Some(self.effect(id, verdict, consent))
                    }
                    _ => None,
                }
            }
            Mode::Help => self.return_to(self.back.clone()),
        }
    }

    pub fn handle_result(&mut self, news: News) {
        match news {
            News::Decided { id, says } => {
                self.decided.push(id);
                self.said = Some((says, false));
                self.note = None;
            }
            News::Undone { id, says } => {
                self.decided.retain(|decided| *decided != id);
                self.said = Some((says, false));
                // The proposal becomes current again.
                let place = self.shown().iter().position(|item| item.proposal.id == id);
                if let Some(place) = place {
                    (self.at, self.scroll) = (place, 0);
                }
            }
            News::Refused { why, needs } => {
                self.said = Some((why, true));
                if let (Some(consent), Some(verdict)) = (needs, self.pending.take()) {
                    self.mode = Mode::Confirm(verdict, consent);
                }
            }
        }
        self.pending = None;
    }

    fn inspect(&mut self, key: Input) -> Option<Effect> {
        self.said = None;
        let card = self.mode == Mode::Card;
        let last = self.shown().len().saturating_sub(1);
        match key {
            Input::Char('q') | Input::Escape if card => self.mode = Mode::List,
            Input::Char('q') | Input::Escape => return Some(Effect::Quit),
            Input::Char('?' | 'h') => self.aside(Mode::Help),
            Input::Char('f') => self.aside(Mode::Filter),
            Input::Char('/') => self.aside(Mode::Text(self.sieve.text.clone())),
            Input::Char('c') => self.aside(Mode::Note(self.note.clone().unwrap_or_default())),
            Input::Char('l') => self.mode = Mode::List,
            Input::Char('n') => self.go((self.at + 1).min(last)),
            Input::Char('p') => self.go(self.at.saturating_sub(1)),
            Input::Down | Input::Char('j') if card => self.scroll = self.scroll.saturating_add(1),
            Input::Up | Input::Char('k') if card => self.scroll = self.scroll.saturating_sub(1),
            Input::Down | Input::Char('j') => self.go((self.at + 1).min(last)),
            Input::Up | Input::Char('k') => self.go(self.at.saturating_sub(1)),
            Input::PageDown | Input::Char(' ') if card => {
                self.scroll = self.scroll.saturating_add(10)
            }
            Input::PageUp if card => self.scroll = self.scroll.saturating_sub(10),
            Input::PageDown => self.go((self.at + 10).min(last)),
            Input::PageUp => self.go(self.at.saturating_sub(10)),
            Input::Home if card => self.scroll = 0,
            Input::End if card => self.scroll = usize::MAX,
            Input::Home => self.go(0),
            Input::End => self.go(last),
            Input::Enter if !card && self.current().is_some() => {
                (self.mode, self.scroll) = (Mode::Card, 0);
            }
            Input::Char('u') => {
                match self.decided.last() {
                    Some(id) => return Some(Effect::Undo(id.clone())),
                    None => {
                        let why = "nothing has been decided in this review; `runner dream undo ID` undoes earlier decisions";
                        self.said = Some((why.to_owned(), true));
                    }
                };
            }
            // A decision is made only on a visible card, so the key opens the card first.
            Input::Char('a' | 'r' | 's' | 'm') if !card && self.current().is_some() => {
                (self.mode, self.scroll) = (Mode::Card, 0);
            }
            Input::Char('a') => return self.decide(DecisionInput::Accept),
            Input::Char('r') => return self.decide(DecisionInput::Reject),
            Input::Char('s') => return self.decide(DecisionInput::Skip),
            Input::Char('m') if self.current().is_some() => self.mode = Mode::Amend,
            _ => {}
        }
        None
    }

    fn amend(&mut self, key: Input) -> Option<Effect> {
        let action = match key {
            Input::Char(digit @ '1'..='5') => Action::ALL[digit as usize - '1' as usize],
            _ => return self.return_to(Mode::Card),
        };
        if action == Action::Merge {
            let known = self.current().and_then(|item| item.proposal.targets.get(1));
            self.mode = Mode::Into(known.cloned().unwrap_or_default());
            return None;
        }
        self.mode = Mode::Card;
        self.decide(DecisionInput::Amend { action, into: None })
    }

    fn filter(&mut self, key: Input) -> Option<Effect> {
        const SURE: [Confidence; 3] = [Confidence::High, Confidence::Med, Confidence::Low];
        match key {
            Input::Char('s') => self.sieve.status = next_of(self.sieve.status, &IdeaStatus::ALL),
            Input::Char('a') => self.sieve.action = next_of(self.sieve.action, &Action::ALL),
            Input::Char('c') => self.sieve.confidence = next_of(self.sieve.confidence, &SURE),
            Input::Char('x') => self.sieve = ProposalFilter::default(),
            Input::Char('/') => {
                self.mode = Mode::Text(self.sieve.text.clone());
                return None;
            }
            _ => return self.return_to(self.back.clone()),
        }
        self.start_over();
        None
    }

    fn decide(&mut self, verdict: DecisionInput) -> Option<Effect> {
        let id = self.current()?.proposal.id.clone();
        self.said = None;
        self.pending = Some(verdict.clone());
        Some(self.effect(id, verdict, Consent::default()))
    }

    fn effect(&self, id: String, verdict: DecisionInput, consent: Consent) -> Effect {
        let note = self.note.clone();
        Effect::Decide { id, verdict, note, consent }
    }

    fn go(&mut self, at: usize) {
        if at != self.at {
            (self.at, self.scroll) = (at, 0);
        }
    }

    fn start_over(&mut self) {
        (self.at, self.scroll) = (0, 0);
    }

    fn aside(&mut self, mode: Mode) {
        self.back = std::mem::replace(&mut self.mode, mode);
    }

    fn return_to(&mut self, mode: Mode) -> Option<Effect> {
        self.mode = mode;
        None
    }
}

enum Typed {
    More(String),
    Done(String),
    Left,
}

fn typed(mut text: String, key: Input) -> Typed {
    match key {
        Input::Enter => return Typed::Done(text),
        Input::Escape => return Typed::Left,
        Input::Backspace => {
            text.pop();
        }
        Input::Char(letter) => text.push(letter),
        _ => {}
    }
    Typed::More(text)
}

/// Returns the choice after `now`, or `None` after the last choice.
fn next_of<T: Copy + PartialEq>(now: Option<T>, all: &[T]) -> Option<T> {
    let next = now.map_or(0, |now| all.iter().position(|one| *one == now).map_or(0, |at| at + 1));
    all.get(next).copied()
}

#[cfg(test)]
#[path = "machine_tests.rs"]
pub(in crate::tui) mod tests;
