//! The councillors that a run may ask, each with a backend and a folder of its own.

use std::path::PathBuf;
use std::sync::Arc;

use runner_backends::Backend;

use crate::spending::Spending;

/// One who is asked for a report of its own.
pub struct Panelist {
    /// The backend that answers.
    pub backend: Arc<dyn Backend>,
    /// How it pays.
    pub spending: Spending,
    /// The folder that is its child's alone.
    pub place: PathBuf,
}

/// Those who can be asked, and those who cannot.
#[derive(Default)]
pub struct Panel {
    /// In the order of the configuration.
    pub ready: Vec<Panelist>,
    /// Councillors that are not asked, each with the reason.
    pub absent: Vec<(String, String)>,
    /// Councillors that were asked, each with the sandbox of its child.
    pub asked: Vec<(String, String)>,
}
