//! The three steps of the council: its packet, one bounded pass of each councillor, their synthesis.
//!
//! All of them are soft. Without a councillor there is nothing to do, and the report says so; the
//! packets of the morning then rest on the corpus alone. Must never let a councillor write, ask
//! another one, or name what it was not shown.

use super::OvernightSpec;
use super::summary::StepStatus;

/// How one step of the council went.
pub struct Heard {
    /// How it ended.
    pub status: StepStatus,
    /// What is to be said of it.
    pub note: String,
}

/// The packet, the passes and the synthesis, in this order.
pub fn convene(spec: &OvernightSpec) -> [Heard; 3] {
    let heard = |status, note: &str| Heard {
        status,
        note: note.to_owned(),
    };
    if spec.runners.is_empty() {
        let why = "no councillor is configured (runners)";
        return [(); 3].map(|()| heard(StepStatus::Skipped, why));
    }
    let why = format!(
        "no councillor is asked in this version ({})",
        spec.runners.join(", ")
    );
    [(); 3].map(|()| heard(StepStatus::SoftFail, &why))
}
