use super::*;

fn candidate(id: &str) -> Candidate {
    Candidate {
        id: id.to_owned(),
        fence: 3,
        dead: None,
        group: None,
        slots: None,
        levels: vec!["day".to_owned()],
        want: [1, 10, 0, 0, 0],
        lease: 60_000,
        lost: 0,
        most_lost: 3,
        cancel: None,
    }
}

fn budget(limit: i64, used: i64, held: i64) -> BTreeMap<String, BudgetRow> {
    let row = BudgetRow {
        level: "day".to_owned(),
        limits: [None, Some(limit), None, None, None],
        used: [0, used, 0, 0, 0],
        held: [0, held, 0, 0, 0],
    };
    BTreeMap::from([(row.level.clone(), row)])
}

fn one(candidate: Candidate, budgets: &mut BTreeMap<String, BudgetRow>) -> Decided {
    plan(&[candidate], budgets, &mut BTreeMap::new(), 1_000).remove(0)
}

#[test]
fn claim_reserves_and_raises_the_fence() {
    let mut budgets = budget(100, 50, 40);
    let step = one(candidate("a"), &mut budgets).step;
    assert_eq!(step, Step::Claim { fence: 4, expires: 61_000 });
    assert_eq!(budgets["day"].held, [1, 50, 0, 0, 0]);
}

#[test]
fn only_used_budget_ends_an_occurrence() {
    let mut budgets = budget(100, 50, 41);
    let Step::Wait { wake, why } = one(candidate("a"), &mut budgets).step else {
        panic!("the budget is reserved, not used")
    };
    assert_eq!(wake, 31_000);
    assert!(why.contains("has 9 tokens left"), "{why}");
    let mut budgets = budget(100, 91, 0);
    let Step::End { outcome, .. } = one(candidate("a"), &mut budgets).step else {
        panic!("the budget is used up")
    };
    assert_eq!(outcome.class(), Some(Class::OverBudget));
}

#[test]
fn dead_claim_is_charged_first() {
    for cancel in [None, Some("a person".to_owned())] {
        let mut budgets = budget(100, 0, 10);
        let dead = Candidate { dead: Some([0, 10, 0, 0, 0]), lost: 2, cancel, ..candidate("a") };
        let decided = one(dead, &mut budgets);
        assert_eq!(decided.charge, Some((3, [0, 10, 0, 0, 0])));
        assert_eq!(budgets["day"].used, [0, 10, 0, 0, 0]);
        assert!(matches!(decided.step, Step::End { fence: 4, .. }), "{decided:?}");
    }
}

#[test]
fn full_group_makes_a_dead_claim_pending() {
    let grouped = Candidate { group: Some("gpu".to_owned()), slots: Some(1), ..candidate("a") };
    let dead = Candidate { dead: Some([0; 5]), id: "b".to_owned(), ..grouped.clone() };
    let all = [grouped.clone(), grouped, dead];
    let decided = plan(&all, &mut budget(100, 0, 0), &mut BTreeMap::new(), 0);
    assert!(matches!(decided[0].step, Step::Claim { .. }));
    assert!(matches!(decided[1].step, Step::Leave { .. }));
    assert!(matches!(decided[2].step, Step::Wait { wake: 0, .. }));
}
