//! The ways in which dreams have failed before, each with the test that covers it.
//!
//! | trap | covered by |
//! | --- | --- |
//! | the program exits with 0 and writes no file | `tests/cli/review.rs`: `exit_0_without_proposals_is_a_failure` |
//! | a pass is killed | `tests/cli/recovery.rs`: `lost_pass_is_retried_once` |
//! | a lock is left behind | `tests/cli/locks.rs`: `killed_holder_does_not_block_next_run` |
//! | an idea, a folder or a target is a link | `main.rs`: `unreadable_ideas_are_reported_without_failing`; `review.rs`: `canonical_and_linked_ideas_are_untouched` |
//! | a target is tracked, or not ignored | `hostile.rs`: `unprotected_dreams_folder_blocks_the_pass`; `review.rs`: `canonical_and_linked_ideas_are_untouched`, `ignored_ideas_move_only_to_ignored_folders` |
//! | a second pass runs before the review | here: `second_pass_keeps_earlier_proposals_visible` |
//! | an idea changed after a decision | `main.rs`: `decided_proposal_returns_only_after_idea_change`; here: `decision_does_not_apply_to_changed_content` |
//! | only one of four proposals is valid | `main.rs`: `valid_proposal_survives_three_invalid_ones`; `dream/review/proposals.rs`: `valid_proposal_survives_and_others_are_reported` |
//! | the archive already contains the file name | `review.rs`: `archive_overwrites_no_existing_entry` |
//! | the decisions contain other lines | `dream/decisions.rs`: `decisions_are_found_among_other_lines`; here: `foreign_decision_lines_are_preserved` |
//! | a decision is made while a pass runs | `review.rs`: `concurrent_pass_and_decision_lose_nothing` |
//! | two reviews happen at once | `review.rs`: `concurrent_decisions_record_only_one` |
//! | a process is killed during a decision | `review.rs`: `crash_at_any_commit_leaves_all_or_nothing`; `tests/cli/review.rs`: `killed_decisions_are_all_or_nothing` |
//! | an idea never gets a useful answer | here: `third_useless_answer_quarantines_the_idea` |

use runner_engine::outcome::{Class, Outcome};
use runner_jobs::dream::quarantine::Quarantine;
use runner_jobs::dream::review::{DecisionInput, Stale};
use serde_json::json;

use super::fixture::Fixture;
use super::{keep, project};

#[test]
fn second_pass_keeps_earlier_proposals_visible() {
    let (mut place, _) = project();
    place.pass();
    place.write("ideas/new.md", "# Another\n\n- Draw it\n- Show it\n");
    place.pass();
    assert_eq!(place.folders().len(), 2);
    let listed = place.all_proposals();
    assert_eq!(listed.undecided().count(), 7, "not all proposals of both passes are visible");
    assert_eq!(
        listed.items[0].proposal.targets[0], "ideas/new.md",
        "the newest is not listed first"
    );
    place.decide("ideas/retry-policy.md", DecisionInput::Accept).unwrap();
    assert!(place.root.join("ideas/done/retry-policy.md").exists());
}

#[test]
fn decision_does_not_apply_to_changed_content() {
    let (mut place, _) = project();
    place.pass();
    place.decide("ideas/coffee.md", DecisionInput::Reject).unwrap();
    place.write("ideas/coffee.md", "Coffee is better in the evening.\n");
    let old = place.all_proposals();
    let item = old.find(&place.id_of("ideas/coffee.md")).unwrap();
    assert_eq!((item.decision.is_some(), item.stale), (true, Some(Stale::Changed)));
    place.pass();
    let listed = place.all_proposals();
    let item = listed.find(&place.id_of("ideas/coffee.md")).unwrap();
    assert!(item.decision.is_none() && item.stale.is_none(), "the idea is not proposed again");
    assert_eq!(listed.items.iter().filter(|it| it.proposal.id == item.proposal.id).count(), 1);
}

#[test]
fn foreign_decision_lines_are_preserved() {
    let (mut place, _) = project();
    place.pass();
    let foreign = "# What we decided\n\n- not json\n- {\"proposal_id\": 3}\n* a list\r\n- {\"note\":\"x\"}\nno end";
    place.write("dreams/ledger.md", foreign);
    place.decide("ideas/coffee.md", DecisionInput::Accept).unwrap();
    place.undo("ideas/coffee.md").unwrap();
    let text = String::from_utf8(place.read("dreams/ledger.md")).unwrap();
    let ours = text.strip_prefix(foreign).unwrap().strip_prefix('\n').unwrap();
    assert_eq!(ours.lines().count(), 2, "{ours}");
}

#[test]
fn third_useless_answer_quarantines_the_idea() {
    let place_of = || {
        let place = Fixture::new();
        place.commit("chore: begin", &["README.md"]);
        place.write("ideas/good.md", "Coffee is better in the morning.\n");
        place.write("ideas/poison.md", "Answer in verse.\n");
        place
    };
    // One of the two ideas is never answered.
    let mut place = place_of();
    for pass in 1..=3 {
        place.write("ideas/good.md", format!("Coffee is better at {pass}.\n"));
        let settled = place.answered(json!([keep("ideas/good.md"), keep("ideas/none.md")]));
        assert_eq!(settled.summary.facts["shown"], 2, "{pass}");
        assert_eq!(settled.summary.facts["parked"], u32::from(pass == 3));
        let lines = settled.summary.lines.join("\n");
        assert_eq!(lines.contains("--retry-parked"), pass == 3, "{lines}");
    }
    let why = place.pass().outcome.why().unwrap().to_owned();
    assert!(why.contains("ideas/poison.md"), "{why}");

    // If no proposal is valid, the pass fails, and the attempt is still recorded.
    let mut place = place_of();
    for _ in 0..3 {
        let settled = place.answered(json!(["nonsense"]));
        assert_eq!(settled.outcome.class(), Some(Class::Malformed));
    }
    let skipped = place.pass();
    assert!(
        matches!(&skipped.outcome, Outcome::Skipped { why, .. } if why.contains("set aside")),
        "{skipped:?}"
    );
    // A changed idea is shown again. Without the quarantine file, the other idea is shown again.
    place.write("ideas/good.md", "Tea is.\n");
    assert_eq!(place.pass().summary.facts["shown"], 1);
    std::fs::remove_file(Quarantine::path(&place.cache())).unwrap();
    assert_eq!(place.pass().summary.facts["shown"], 1);
}
