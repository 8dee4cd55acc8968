//! Checks whether the states form a valid cycle.

use std::collections::{BTreeMap, BTreeSet};

use runner_text::nearest::nearest;

use super::{Spec, SpecError, StateKind};

/// Adds the mistakes that involve several states: a repeated name, an unknown next state, an
/// unreachable state, or a loop without a dream or without work.
pub(super) fn check(spec: &Spec, mistakes: &mut Vec<SpecError>) {
    let mut names = BTreeMap::new();
    for state in &spec.states {
        if let Some(line) = names.insert(state.name.as_str(), state.line) {
            let why = format!("{} is already declared on line {line}", state.name);
            mistakes.push(SpecError { line: state.line, why });
        }
    }
    for state in &spec.states {
        if !names.contains_key(state.next.as_str()) {
            let near = nearest(&state.next, names.keys().copied())
                .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            let why = format!(
                "NEXT of {} is {:?}, but there is no such state{near}",
                state.name, state.next
            );
            mistakes.push(SpecError { line: state.line, why });
        }
    }
    if !mistakes.is_empty() {
        return;
    }
    // Each state has exactly one next state, so the path from the first state ends in a loop.
    let mut way: Vec<&str> = Vec::new();
    let mut at = spec.first();
    let mut seen = BTreeSet::new();
    while seen.insert(at.name.as_str()) {
        way.push(&at.name);
        at = spec.state(&at.next).expect("every NEXT was just found");
    }
    let begin = way.iter().position(|name| *name == at.name).unwrap_or(0);
    for state in &spec.states {
        if !seen.contains(state.name.as_str()) {
            let why = format!("{} is never reached from {}", state.name, spec.first().name);
            mistakes.push(SpecError { line: state.line, why });
        }
    }
    let of = |kind: StateKind| {
        let looped = way[begin..].iter().filter_map(|name| spec.state(name));
        looped.filter(|state| state.kind == kind).count()
    };
    let line = at.line;
    let round = way[begin..].join(" → ");
    if !spec.states.iter().any(|state| state.kind == StateKind::Rem) {
        let why = "there is no state of KIND rem: the cycle would never dream".to_owned();
        mistakes.push(SpecError { line: 1, why });
    } else if of(StateKind::Rem) == 0 {
        let why =
            format!("no state of KIND rem in the loop {round}: the cycle would dream only once");
        mistakes.push(SpecError { line, why });
    }
    if of(StateKind::Wake) == 0 {
        let why = format!("no state of KIND wake in the loop {round}: no task would be worked on");
        mistakes.push(SpecError { line, why });
    }
}
