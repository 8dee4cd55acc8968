//! Rescues: how often nights may go on where a strict run would halt. Kept across nights in
//! `.agents/overnight/warn-only-budget.json`; only a person raises them again.

use std::path::Path;

use runner_engine::files::{SMALL, beneath, read_in, write_atomic};
use serde::{Deserialize, Serialize};

use super::lock::FOLDER;
use super::output::pretty;

/// How many there are at first.
pub const INITIAL: u64 = 3;
/// The file.
pub const FILE: &str = "warn-only-budget.json";

/// One that was spent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentWarning {
    /// In which iteration.
    pub iteration_id: String,
    /// For what.
    pub reason: String,
}

/// The rescues: how many are left, and which were spent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarnBudget {
    /// The form of this document.
    pub schema_version: u32,
    /// How many there were.
    pub initial: u64,
    /// How many are left.
    pub remaining: u64,
    #[serde(default)]
    pub spent: Vec<SpentWarning>,
}

impl WarnBudget {
    /// Reads the rescues. A file that cannot be read leaves none, so that damage never loosens a
    /// rule.
    pub fn read(root: &Path) -> Self {
        let full =
            Self { schema_version: 1, initial: INITIAL, remaining: INITIAL, spent: Vec::new() };
        match read_in(root, Path::new(FOLDER).join(FILE), SMALL) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or(Self { remaining: 0, ..full }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => full,
            Err(_) => Self { remaining: 0, ..full },
        }
    }

    /// Spends one, durably, before it is made use of; a second time for the same iteration is free.
    ///
    /// # Errors
    /// It could not be noted, and so is not spent.
    pub fn spend(&mut self, root: &Path, iteration_id: &str, reason: &str) -> std::io::Result<()> {
        if self.spent.iter().any(|it| it.iteration_id == iteration_id) {
            return Ok(());
        }
        let mut next = self.clone();
        next.remaining = next.remaining.saturating_sub(1);
        next.spent.push(SpentWarning {
            iteration_id: iteration_id.to_owned(),
            reason: reason.to_owned(),
        });
        let path = beneath(root, &Path::new(FOLDER).join(FILE))?;
        write_atomic(&path, pretty(&next).as_bytes(), 0o644).map_err(|error| error.source)?;
        *self = next;
        Ok(())
    }
}
