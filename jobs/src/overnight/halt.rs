//! Decides, from measurements alone, whether an iteration is committed and whether the loop ends.
//!
//! ```text
//! measured ──regression──┬─ a rescue is left ──> commit, spend a rescue, continue
//!          │             └─ strict, or none ──> halt, commit nothing
//!          ├─ work is left over ─────────────> commit, continue
//!          ├─ second zero delta in a row ────> commit, end
//!          ├─ plateau: commit and end; strict: halt, commit nothing
//!          └─ else ──────────────────────────> commit, continue
//! ```

use super::corpus::fitness::{Fitness, regressions};
use super::corpus::rounded;

/// The rules that determine when a loop ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HaltRules {
    /// A delta whose absolute value is below this value counts as no change.
    pub epsilon: f64,
    /// Number of consecutive deltas below `epsilon` that constitute a plateau.
    pub window: usize,
    /// The largest drop in a measure or in a value of `Floors` that does not count as a regression.
    pub max_drop: f64,
    /// True to spend a rescue instead of halting on a regression, and to commit an iteration that
    /// ends in a plateau.
    pub warn_only: bool,
    /// True if the iteration reached its limit on removals and left some for the next one.
    pub unfinished: bool,
}

/// The decision on a measured iteration.
#[derive(Clone, Debug, PartialEq)]
pub enum IterationVerdict {
    /// Commit, and continue.
    On,
    /// Commit, spend a rescue for this reason, and continue.
    Rescued(String),
    /// Commit and end, because no further gain is expected.
    Settled(String),
    /// Commit nothing and end, because of a plateau.
    Plateau(String),
    /// Commit nothing and end, because of a regression.
    Regression(String),
}

/// Suffix appended to the reason if rescues were allowed but none are left.
const GONE: &str = " (warn-only budget exhausted)";

/// Decides how to proceed after an iteration. `deltas` contains the deltas of all iterations of the
/// run that did not fail, ending with the current one. `rescues` is the number of rescues left.
pub fn decide(
    rules: HaltRules,
    deltas: &[f64],
    before: &Fitness,
    after: &Fitness,
    rescues: u64,
) -> IterationVerdict {
    let fell = regressions(before, after, rules.max_drop);
    if !fell.is_empty() {
        let each: Vec<String> = fell
            .iter()
            .map(|(name, by)| format!("{name} fell by {by} (limit {})", rules.max_drop))
            .collect();
        let why = each.join(", ");
        return match rules.warn_only {
            true if rescues > 0 => IterationVerdict::Rescued(format!("regression: {why}")),
            true => IterationVerdict::Regression(format!("{why}{GONE}")),
            false => IterationVerdict::Regression(why),
        };
    }
    if rules.unfinished {
        return IterationVerdict::On;
    }
    if let [.., before, last] = deltas
        && *before == 0.0
        && *last == 0.0
    {
        return IterationVerdict::Settled(
            "two zero deltas in a row: no further gain is expected".to_owned(),
        );
    }
    let window = rules.window.max(2);
    let recent = &deltas[deltas.len().saturating_sub(window)..];
    if recent.len() == window && recent.iter().all(|delta| delta.abs() < rules.epsilon) {
        let why = format!("{window} deltas in a row under {}", rules.epsilon);
        return match rules.warn_only {
            true => IterationVerdict::Settled(why),
            false => IterationVerdict::Plateau(why),
        };
    }
    IterationVerdict::On
}

/// Returns the reference fitness for an iteration: for each measure, the better of its values in
/// `before` and in `first`, the fitness at the start of the night or after the last rescue.
/// Otherwise, many small drops could add up to a large drop that no single iteration caused.
pub fn reference(first: Option<&Fitness>, before: &Fitness) -> Fitness {
    let mut best = before.clone();
    for (name, value) in first.into_iter().flat_map(|it| &it.metrics) {
        let held = best.metrics.get_mut(name);
        if let Some(held) = held {
            *held = held.max(*value);
        }
    }
    if let (Some(first), Some(held)) = (first.and_then(|it| it.floors.as_ref()), &mut best.floors) {
        held.answered = held.answered.max(first.answered);
        held.active = held.active.max(first.active);
    }
    best
}

/// Returns the change in the composite, or 0 if either composite is unknown.
pub fn delta(before: &Fitness, after: &Fitness) -> f64 {
    let change =
        after.composite.zip(before.composite).map_or(0.0, |(after, before)| after - before);
    // Adding 0.0 turns a negative zero into a positive one, which prints without a minus sign.
    rounded(change) + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_regressions_accumulate() {
        let rules = HaltRules {
            epsilon: 0.01,
            window: 2,
            max_drop: 0.05,
            warn_only: false,
            unfinished: false,
        };
        let (first, before, after) = (fitness(0.8), fitness(0.76), fitness(0.72));
        assert_eq!(decide(rules, &[0.1], &before, &after, 0), IterationVerdict::On);
        let against = reference(Some(&first), &before);
        assert_eq!(
            decide(rules, &[0.1], &against, &after, 0),
            IterationVerdict::Regression("mrr fell by 0.08 (limit 0.05)".into())
        );
        // If the fitness at the start of the night is unknown or lower, the reference is the
        // fitness before the iteration.
        assert_eq!(reference(None, &before), before);
        assert_eq!(reference(Some(&fitness(0.5)), &before).metrics, before.metrics);
    }

    fn fitness(value: f64) -> Fitness {
        let metrics = [("mrr".to_owned(), value)].into();
        Fitness { composite: Some(value), metrics, floors: None }
    }

    #[test]
    fn decide_returns_every_verdict() {
        let strict = HaltRules {
            epsilon: 0.01,
            window: 2,
            max_drop: 0.05,
            warn_only: false,
            unfinished: false,
        };
        let warn = HaltRules { warn_only: true, ..strict };
        let same = fitness(0.5);
        let on = |rules, deltas: &[f64], left| decide(rules, deltas, &same, &same, left);
        assert_eq!(on(strict, &[0.005], 3), IterationVerdict::On);
        assert_eq!(
            on(strict, &[0.2, 0.005, 0.001], 3),
            IterationVerdict::Plateau("2 deltas in a row under 0.01".into())
        );
        // A plateau does no harm, so it spends no rescue.
        assert_eq!(
            on(warn, &[0.005, 0.001], 0),
            IterationVerdict::Settled("2 deltas in a row under 0.01".into())
        );
        for rules in [strict, warn] {
            assert!(matches!(on(rules, &[0.3, 0.0, 0.0], 0), IterationVerdict::Settled(_)));
        }
        let fell = |rules, left| decide(rules, &[-0.1], &fitness(0.5), &fitness(0.4), left);
        assert_eq!(
            fell(strict, 3),
            IterationVerdict::Regression("mrr fell by 0.1 (limit 0.05)".into())
        );
        assert!(matches!(fell(warn, 2), IterationVerdict::Rescued(_)));
        assert!(matches!(fell(warn, 0), IterationVerdict::Regression(why) if why.ends_with(GONE)));
        let unfinished = HaltRules { unfinished: true, ..strict };
        assert_eq!(on(unfinished, &[0.0, 0.0], 0), IterationVerdict::On);
        let absent = Fitness { metrics: Default::default(), ..fitness(0.5) };
        assert!(matches!(
            decide(strict, &[0.0], &fitness(0.5), &absent, 0),
            IterationVerdict::Regression(_)
        ));
        // Three deltas do not fill a window of four.
        let long = HaltRules { window: 4, ..strict };
        assert_eq!(on(long, &[0.001, 0.002, 0.003], 0), IterationVerdict::On);
        assert_eq!(delta(&fitness(0.4), &fitness(0.4)).to_string(), "0");
    }
}
