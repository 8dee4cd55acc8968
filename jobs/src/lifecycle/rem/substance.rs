//! Decides whether an entry conveys anything about what happened.
//!
//! A small model often fills the form with one phrase, with dates, or with the names of the form's
//! own fields. Such an entry would move tasks and give the impression of a successful night. This
//! module must never base its decision on a list of known phrases, or judge whether a statement is
//! true.

use std::collections::BTreeSet;

use runner_text::org::{Resolved, fold};

use super::super::entry::{Sections, VerdictMove};
use super::gather::Slice;

/// Minimum number of letters in a tale. Letters are counted because not every language separates
/// words.
const LETTERS: usize = 12;

/// Checks that the tale has enough letters, that no line of a list is repeated, and that no task
/// gets two verdicts. The carry is not checked, because it may state in any form that nothing is in
/// flight, and a waking run takes the task from the board.
///
/// # Errors
/// Returns the first problem, as a sentence for the model.
pub fn check(sections: &Sections, slice: &Slice) -> Result<(), String> {
    let tale = &sections.tale;
    if tale.chars().filter(|c| c.is_alphabetic()).count() < LETTERS {
        return Err(format!("the tale {tale:?} does not say what happened"));
    }
    for (name, lines) in
        [("goals", &sections.goals), ("blue sky", &sections.blue_sky), ("fears", &sections.fears)]
    {
        let mut known = BTreeSet::new();
        if let Some(line) = lines.iter().find(|line| !known.insert(fold(line).to_lowercase())) {
            return Err(format!("{name} lists {line:?} twice"));
        }
    }
    let mut judged = BTreeSet::new();
    for verdict in sections.verdicts.iter().filter(|it| it.act != VerdictMove::KeepCourse) {
        if let Resolved::One { task, .. } = slice.board.resolve(&verdict.said)
            && !judged.insert(task.line)
        {
            return Err(format!("two verdicts name the task {:?}", task.heading));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use runner_text::org::{Board, BoardForm};

    use super::super::super::entry::Verdict;
    use super::super::mentions::tests::slice as sample;
    use super::*;

    fn slice() -> Slice {
        let board = "* TODO fix the roof\n* DOING paint the door\n";
        Slice { board: Board::read(board, BoardForm::Org), ..sample() }
    }

    fn entry() -> Sections {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        Sections {
            tale: "Words on re-entry were added, and one command failed.".to_owned(),
            goals: lines(&["fix the roof", "paint the door", "rest"]),
            blue_sky: lines(&["a garden", "a pond"]),
            fears: lines(&["rain", "wind"]),
            verdicts: vec![Verdict::new(VerdictMove::PickUp, Some("fix the roof"), "it rains")],
            unread: Vec::new(),
            carry: lines(&["DOING: paint the door", "next action: buy paint"]),
        }
    }

    #[test]
    fn an_entry_with_substance_passes() {
        assert_eq!(check(&entry(), &slice()), Ok(()));
        let mut twice = entry();
        twice.verdicts = vec![Verdict::new(VerdictMove::KeepCourse, None, "it is right"); 2];
        assert_eq!(check(&twice, &slice()), Ok(()));
    }

    #[test]
    fn filled_forms_are_refused() {
        let changed = |change: &dyn Fn(&mut Sections)| {
            let mut sections = entry();
            change(&mut sections);
            check(&sections, &slice()).unwrap_err()
        };
        for tale in ["by rule", "2026-06-01 13:00 UTC", "", "done: 1 2 3 4 5 6 7"] {
            let why = changed(&|it| it.tale = tale.to_owned());
            assert!(why.ends_with("does not say what happened"), "{why}");
        }
        let why = changed(&|it| it.goals = vec!["Go on".to_owned(), "go  on".to_owned()]);
        assert_eq!(why, "goals lists \"go  on\" twice");
        let why = changed(&|it| {
            let again = Verdict::new(VerdictMove::Cancel, Some("fix the roof"), "it is dry");
            it.verdicts.push(again);
        });
        assert_eq!(why, "two verdicts name the task \"fix the roof\"");
    }
}
