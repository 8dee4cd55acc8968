//! Chooses the next backend when one cannot answer.
//!
//! ```text
//! claude ──RateLimited──> codex ──NotInstalled──> builtin ──> its answer, degraded
//!    └──Malformed, Silent, Cancelled, …──> the error itself
//! ```
//!
//! A fallback is tried only if the backend before it is missing, has no valid login, is unreachable
//! or has reached its limit. Any other error, such as an unusable answer, is returned. The chain
//! must never try the same backend twice.

use std::collections::VecDeque;

use crate::error::BackendError;

/// The fallbacks that have not been tried yet, in order.
#[derive(Clone, Debug)]
pub struct Chain<T> {
    rest: VecDeque<T>,
}

impl<T> Chain<T> {
    /// Creates a chain from the fallbacks of the first backend.
    pub fn new(fallbacks: impl IntoIterator<Item = T>) -> Self {
        Self { rest: fallbacks.into_iter().collect() }
    }

    #[allow(
        clippy::should_implement_trait,
        reason = "a chain is not an iterator: callers take one fallback at a time"
    )]
    pub fn next(&mut self) -> Option<T> {
        self.rest.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Returns whether the next fallback is tried after this error.
pub fn moves_on(error: &BackendError) -> bool {
    match error {
        BackendError::NotInstalled { .. }
        | BackendError::NotLoggedIn { .. }
        | BackendError::Auth { .. }
        | BackendError::Unavailable { .. }
        | BackendError::RateLimited { .. }
        | BackendError::OverBudget { .. } => true,
        BackendError::Silent { .. }
        | BackendError::Malformed { .. }
        | BackendError::Truncated { .. }
        | BackendError::Rejected { .. }
        | BackendError::Cancelled { .. }
        | BackendError::Crash { .. } => false,
    }
}

/// Returns the first problem with the fallbacks of `name`, if any. `known` lists all backends.
pub fn mistake<'a>(
    name: &str,
    fallbacks: &[String],
    mut known: impl Iterator<Item = &'a str> + Clone,
) -> Option<String> {
    for (at, one) in fallbacks.iter().enumerate() {
        if one == name {
            return Some(format!("{name:?} cannot fall back to itself"));
        }
        if fallbacks[..at].contains(one) {
            return Some(format!("{one:?} is named twice"));
        }
        if !known.clone().any(|known| known == one) {
            let near = runner_text::nearest::nearest(one, known.by_ref())
                .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
            return Some(format!("there is no [backends.{one}]{near}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited() -> BackendError {
        BackendError::RateLimited { until: None, why: "full".into() }
    }

    #[test]
    fn fallbacks_are_asked_once_in_order() {
        let mut chain = Chain::new(["codex", "builtin"]);
        let malformed = BackendError::Malformed { why: "prose".into(), excerpt: String::new() };
        let cancelled = BackendError::Cancelled { why: "me".into() };
        assert!(!moves_on(&malformed) && !moves_on(&cancelled) && moves_on(&limited()));
        assert_eq!(chain.next(), Some("codex"));
        assert!(!chain.is_empty());
        assert_eq!(chain.next(), Some("builtin"));
        assert!(chain.is_empty());
        assert_eq!(chain.next(), None);
    }

    #[test]
    fn invalid_chain_is_reported() {
        let all = ["claude", "codex", "builtin"];
        let why = |fallbacks: &[&str]| {
            let fallbacks: Vec<String> = fallbacks.iter().map(|it| (*it).to_owned()).collect();
            mistake("claude", &fallbacks, all.into_iter())
        };
        assert_eq!(why(&["codex", "builtin"]), None);
        assert!(why(&["claude"]).unwrap().contains("itself"));
        assert!(why(&["codex", "codex"]).unwrap().contains("twice"));
        let unknown = why(&["codx"]).unwrap();
        assert!(
            unknown.contains("[backends.codx]") && unknown.contains("mean \"codex\""),
            "{unknown}"
        );
    }
}
