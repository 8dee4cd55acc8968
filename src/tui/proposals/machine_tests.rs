//! Tests of the review's state machine, key by key.

use runner_jobs::dream::decisions::Decision;
use runner_jobs::dream::proposal::Proposal;
use runner_jobs::dream::review::{IfChanged, IfExposed};

use super::*;

pub(crate) fn item(id: &str, target: &str, action: Action) -> ProposalItem {
    ProposalItem {
        pass: "dreams/20260101T000000Z".into(),
        proposal: Proposal {
            id: id.into(),
            targets: vec![target.into()],
            status: IdeaStatus::Sidenote,
            action,
            evidence: format!("evidence of {id}"),
            confidence: Confidence::High,
            rationale: String::new(),
            targets_hash: "h".into(),
        },
        stale: None,
        superseded: false,
        decision: None,
    }
}

pub(crate) fn three() -> Review {
    let items = vec![
        item("a1", "ideas/a.md", Action::Archive),
        item("b2", "ideas/b.md", Action::Keep),
        item("c3", "ideas/c.md", Action::Archive),
    ];
    Review::new(items, ProposalFilter::default())
}

/// Types the keys in `text`. Only the last key may have an effect.
fn keys(review: &mut Review, text: &str) -> Option<Effect> {
    let mut last = None;
    for letter in text.chars() {
        assert_eq!(last, None, "before {letter:?} of {text:?}");
        last = review.update(match letter {
            '\n' => Input::Enter,
            '\u{1b}' => Input::Escape,
            '\u{8}' => Input::Backspace,
            letter => Input::Char(letter),
        });
    }
    last
}

fn decide(id: &str, verdict: DecisionInput, if_changed: IfChanged) -> Option<Effect> {
    let consent = Consent { if_changed, ..Consent::default() };
    Some(Effect::Decide { id: id.into(), verdict, note: None, consent })
}

/// Applies a decision as the loop does: it reloads the proposals, then passes the result.
fn decided(review: &mut Review, id: &str) {
    let mut items = review.items.clone();
    let at = items.iter().position(|it| it.proposal.id == id).unwrap();
    let now = jiff::Timestamp::UNIX_EPOCH;
    items[at].decision = Some(Decision::new(id, "accepted", Action::Keep, now));
    review.reload(items);
    review.handle_result(News::Decided { id: id.into(), says: "done".into() });
}

fn current(review: &Review) -> &str {
    review.current().map_or("", |item| &item.proposal.id)
}

#[test]
fn proposals_are_decided_one_by_one() {
    let mut review = three();
    assert_eq!(keys(&mut review, "a"), None, "a hidden proposal cannot be decided");
    assert_eq!(review.mode, Mode::Card);
    assert_eq!(keys(&mut review, "a"), decide("a1", DecisionInput::Accept, IfChanged::Refuse));
    decided(&mut review, "a1");
    assert_eq!((current(&review), review.counts()), ("b2", (2, 1)));
    assert_eq!(keys(&mut review, "nr"), decide("c3", DecisionInput::Reject, IfChanged::Refuse));
    decided(&mut review, "c3");
    assert_eq!(current(&review), "b2", "the decided proposal is hidden");
    assert_eq!(keys(&mut review, "s"), decide("b2", DecisionInput::Skip, IfChanged::Refuse));
    decided(&mut review, "b2");
    assert_eq!(keys(&mut review, "arsm"), None, "no proposal is left");
    assert_eq!(keys(&mut review, "q"), None, "q first leaves the card");
    assert_eq!(keys(&mut review, "q"), Some(Effect::Quit));
}

#[test]
fn the_last_decision_is_undone_first() {
    let mut review = three();
    assert_eq!(keys(&mut review, "u"), None);
    assert!(review.said.as_ref().unwrap().1);
    keys(&mut review, "\n");
    for id in ["a1", "b2"] {
        decided(&mut review, id);
    }
    assert_eq!(keys(&mut review, "u"), Some(Effect::Undo("b2".into())));
    let mut items = review.items.clone();
    items[1].decision = None;
    review.reload(items);
    review.handle_result(News::Undone { id: "b2".into(), says: "as before".into() });
    assert_eq!(current(&review), "b2");
    assert_eq!(keys(&mut review, "u"), Some(Effect::Undo("a1".into())));
    review.handle_result(News::Refused { why: "it was changed since".into(), needs: None });
    assert_eq!(review.mode, Mode::Card);
}

#[test]
fn amend_chooses_action_and_destination() {
    let mut review = three();
    let archive = DecisionInput::Amend { action: Action::Archive, into: None };
    assert_eq!(keys(&mut review, "\nnm1"), decide("b2", archive, IfChanged::Refuse));
    assert_eq!(review.mode, Mode::Card);
    assert_eq!(keys(&mut review, "m\u{1b}m9m2"), None);
    let merge = DecisionInput::Amend { action: Action::Merge, into: Some("ideas/x.md".into()) };
    assert_eq!(keys(&mut review, "ideas/x.mdd\u{8}\n"), decide("b2", merge, IfChanged::Refuse));
    assert_eq!(keys(&mut review, "m2\n"), None, "a merge needs a destination");
    assert_eq!(keys(&mut review, "m2abc\u{1b}"), None);
    assert_eq!(review.mode, Mode::Card);
}

#[test]
fn changed_idea_needs_forced_decision() {
    let mut review = three();
    let forced = Consent { if_changed: IfChanged::Proceed, ..Consent::default() };
    let stale = || News::Refused { why: "it has changed".into(), needs: Some(forced) };
    assert!(keys(&mut review, "\na").is_some());
    review.handle_result(stale());
    assert_eq!(review.mode, Mode::Confirm(DecisionInput::Accept, forced));
    assert_eq!(keys(&mut review, "f"), None, "only a capital F forces a decision");
    assert_eq!(review.mode, Mode::Card);
    assert!(keys(&mut review, "a").is_some());
    review.handle_result(stale());
    assert_eq!(keys(&mut review, "F"), decide("a1", DecisionInput::Accept, IfChanged::Proceed));
    // The user is asked separately about a second objection, and the first consent is kept.
    let both = Consent { if_exposed: IfExposed::Publish, ..forced };
    review.handle_result(News::Refused { why: "it is private".into(), needs: Some(both) });
    let Some(Effect::Decide { consent, .. }) = keys(&mut review, "F") else {
        panic!("no decision");
    };
    assert_eq!(consent, both);
}

#[test]
fn note_is_kept_with_one_decision() {
    let mut review = three();
    assert_eq!(keys(&mut review, "\nc done in May\n"), None);
    let Some(Effect::Decide { note, .. }) = keys(&mut review, "a") else {
        panic!("no decision");
    };
    assert_eq!(note.as_deref(), Some("done in May"));
    decided(&mut review, "a1");
    assert_eq!(review.note, None);
}

#[test]
fn filter_limits_the_visible_proposals() {
    let mut review = three();
    assert_eq!(keys(&mut review, "fa"), None);
    assert_eq!(review.shown().len(), 2);
    keys(&mut review, "aaaa");
    assert_eq!(review.shown().len(), 1, "keep");
    assert_eq!(keys(&mut review, "a\n"), None);
    assert_eq!((review.shown().len(), review.mode.clone()), (3, Mode::List));
    keys(&mut review, "/C.MD\n");
    assert_eq!(current(&review), "c3");
    assert_eq!(keys(&mut review, "\na"), decide("c3", DecisionInput::Accept, IfChanged::Refuse));
    keys(&mut review, "/\u{1b}");
    assert_eq!(review.shown().len(), 3);
    keys(&mut review, "fss");
    assert_eq!(review.shown().len(), 0);
    keys(&mut review, "x");
    assert!(!review.sieve.is_on());
    keys(&mut review, "ccc");
    assert_eq!(review.shown().len(), 0);
}

#[test]
fn every_key_in_every_mode_is_harmless() {
    let all: Vec<Input> = (' '..='~')
        .map(Input::Char)
        .chain([
            Input::Up,
            Input::Down,
            Input::PageUp,
            Input::PageDown,
            Input::Home,
            Input::End,
            Input::Enter,
            Input::Escape,
            Input::Backspace,
            Input::Resized,
        ])
        .collect();
    for first in &all {
        for second in &all {
            for third in ["\n", "\u{1b}", "a", "x", "1", "F"] {
                let mut review = three();
                for key in [first, second] {
                    let _carried_out = review.update(*key);
                }
                let third = third.chars().next().unwrap();
                let _carried_out = review.update(match third {
                    '\n' => Input::Enter,
                    '\u{1b}' => Input::Escape,
                    letter => Input::Char(letter),
                });
                assert!(review.at < 3);
            }
        }
    }
    assert_eq!(three().update(Input::Stop), Some(Effect::Quit));
    let mut none = Review::new(Vec::new(), ProposalFilter::default());
    assert_eq!(keys(&mut none, "\nanpj m"), None);
}
