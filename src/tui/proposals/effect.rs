//! The actions of a review, and their results.

use runner_jobs::dream::review::{Consent, DecisionInput};

/// An action that the caller carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Carries out a decision on a proposal.
    Decide {
        id: String,
        verdict: DecisionInput,
        note: Option<String>,
        /// The objections that the user has overruled.
        consent: Consent,
    },
    /// Undoes the decision on this proposal.
    Undo(String),
    /// Leaves the review.
    Quit,
}

/// The result of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The decision was carried out.
    Decided {
        id: String,
        /// A short description of the decision.
        says: String,
    },
    /// The decision was undone.
    Undone {
        id: String,
        /// A short description of the result.
        says: String,
    },
    /// The effect was refused and nothing was changed.
    Refused {
        why: String,
        /// The consent that would allow the effect, if there is one.
        needs: Option<Consent>,
    },
}
