//! Tests of the view at many terminal sizes.

use runner_jobs::dream::proposal::Action;
use runner_jobs::dream::review::PreviewLine;

use super::super::filter::ProposalFilter;
use super::super::machine::Detail;
use super::super::machine::tests::{item, three};
use super::*;
use crate::ui::keys::Input;

fn text(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| row.text().to_owned()).collect()
}

fn opened() -> Review {
    let mut review = three();
    assert_eq!(review.update(Input::Enter), None);
    review.detail = Some(Detail {
        id: "a1".into(),
        text: (0..40).map(|n| format!("line {n} of the idea")).collect(),
        like: Some("you rejected 3 of 4 proposals like this in 90 days".into()),
        plan: Ok((
            "ideas/a.md moves to ideas/done/a.md".into(),
            vec![PreviewLine {
                kind: LineKind::Added,
                text: "a \u{1b}[31mnew\u{202e} line".into(),
            }],
        )),
    });
    review
}

#[test]
fn card_shows_the_proposal_and_its_effect() {
    let mut review = opened();
    let rows = rows(&mut review, 80, 24);
    let seen = text(&rows);
    assert_eq!(seen.len(), 24);
    assert_eq!(seen[0].trim_end(), " 1 of 3");
    assert_eq!(seen[1], "archive ideas/a.md");
    assert!(seen.iter().any(|row| row == "evidence of a1"));
    assert!(seen.iter().any(|row| row.starts_with("you rejected 3 of 4")), "{seen:?}");
    assert!(seen.iter().any(|row| row == "accept: ideas/a.md moves to ideas/done/a.md"));
    assert!(seen.iter().any(|row| row == "+ a \\u{1b}[31mnew\\u{202e} line"), "{seen:?}");
    assert!(seen[23].starts_with(" a r m s") || seen[23].contains("a accept"), "{}", seen[23]);
    review.scroll = usize::MAX;
    let seen = text(&super::rows(&mut review, 80, 24));
    assert_eq!(seen[22], "line 39 of the idea", "scrolling stops at the last line");
}

#[test]
fn no_size_is_too_small() {
    for width in 1..=100 {
        for height in 1..=30 {
            for key in ['\n', '?', 'f', '/', 'c', 'm', 'x'] {
                let mut review = if key == 'x' { three() } else { opened() };
                if key != '\n' && key != 'x' {
                    assert_eq!(review.update(Input::Char(key)), None);
                }
                review.said = Some(("something went wrong with a long word".into(), true));
                let rows = rows(&mut review, width, height);
                assert_eq!(rows.len(), height, "{width}x{height} {key}");
                for row in text(&rows) {
                    assert!(columns(&row) <= width.max(2), "{width}x{height} {key}: {row:?}");
                }
            }
        }
    }
}

#[test]
fn selected_proposal_stays_visible() {
    let items =
        (0..100).map(|n| item(&format!("i{n}"), &format!("ideas/{n}.md"), Action::Keep)).collect();
    let mut review = Review::new(items, ProposalFilter::default());
    for at in [0, 1, 20, 50, 99] {
        review.at = at;
        let seen = text(&rows(&mut review, 80, 24));
        let mark = seen.iter().find(|row| row.starts_with('›')).unwrap();
        assert!(mark.contains(&format!("ideas/{at}.md")), "{mark}");
    }
}
