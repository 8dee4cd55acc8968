//! Stores the number of remaining rescues. After a regression, a rescue lets a night continue once
//! where a strict night would stop. Rescues persist across nights in
//! `.agents/overnight/warn-only-budget.json`, and only the user may restore them, with
//! [`WarnBudget::reset`].

use std::path::Path;

use runner_engine::files::{SMALL, beneath, read_in, write_atomic};
use serde::{Deserialize, Serialize};

use super::lock::FOLDER;
use crate::json::pretty;

/// The initial number of rescues.
pub const INITIAL: u64 = 3;
/// The name of the file that stores the rescues.
pub const FILE: &str = "warn-only-budget.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentWarning {
    pub iteration_id: String,
    /// Why the rescue was needed.
    pub reason: String,
}

/// The remaining and spent rescues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarnBudget {
    pub schema_version: u32,
    /// The initial number of rescues.
    pub initial: u64,
    /// Number of rescues left.
    pub remaining: u64,
    #[serde(default)]
    pub spent: Vec<SpentWarning>,
}

impl WarnBudget {
    /// Reads the rescues. If the file does not exist, all rescues are left. If it cannot be read or
    /// parsed, none are left, because a damaged file must never relax a rule.
    pub fn read(root: &Path) -> Self {
        let full =
            Self { schema_version: 1, initial: INITIAL, remaining: INITIAL, spent: Vec::new() };
        match read_in(root, Path::new(FOLDER).join(FILE), SMALL) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or(Self { remaining: 0, ..full }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => full,
            Err(_) => Self { remaining: 0, ..full },
        }
    }

    /// Records durably that one rescue is spent, before the rescue is used. A second call for the
    /// same iteration spends nothing.
    ///
    /// # Errors Returns an error if the file cannot be written durably. In that case, the caller
    /// must not use the rescue.
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
        next.write(root)?;
        *self = next;
        Ok(())
    }

    /// Restores all rescues and clears the list of spent ones.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn reset(root: &Path) -> std::io::Result<Self> {
        let full =
            Self { schema_version: 1, initial: INITIAL, remaining: INITIAL, spent: Vec::new() };
        full.write(root)?;
        Ok(full)
    }

    fn write(&self, root: &Path) -> std::io::Result<()> {
        let path = beneath(root, &Path::new(FOLDER).join(FILE))?;
        write_atomic(&path, pretty(self).as_bytes(), 0o644).map_err(|error| error.source)
    }
}
