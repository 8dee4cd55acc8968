//! What a child may touch: the answer to be enforced by the kernel, as plain data.
//!
//! A job says what it may write, a backend adds the state folders of its own program, and the
//! launcher (`runner __launch`) raises the walls before the program starts. This module only says
//! what is wanted and what was got. It must never weaken what was asked for: a wall that cannot be
//! raised is an error of the launcher, not a smaller wall.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How a child is started behind walls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confine {
    /// The program that has the `__launch` command: `runner` itself, by absolute path.
    pub launcher: PathBuf,
    /// What it may touch.
    pub walls: Walls,
}

/// What a child may touch. What is not named it may read and not write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walls {
    /// `sandbox = "off"` stands in the configuration: no walls at all, and every report says so.
    pub off: bool,
    /// Folders beneath which, and files which, it may write. Absolute; what is not there is not made.
    pub write: Vec<PathBuf>,
    /// Beneath `write`, and yet never to be written or made. Absolute.
    pub keep: Vec<PathBuf>,
    /// Never to be seen: neither read nor written nor connected to. Absolute.
    pub hide: Vec<PathBuf>,
    /// Whether it may use the network.
    pub network: bool,
}

impl Walls {
    /// These walls with further places that may be written: a program's own state.
    #[must_use]
    pub fn and_write(mut self, places: impl IntoIterator<Item = PathBuf>) -> Self {
        self.write.extend(places);
        self
    }
}
