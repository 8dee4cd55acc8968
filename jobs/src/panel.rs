//! The councillors that a run may ask, each with a separate backend and folder.

use std::path::PathBuf;
use std::sync::Arc;

use runner_backends::Backend;

use crate::spending::Spending;

/// A councillor who can be asked for a report.
pub struct Panelist {
    /// The backend that answers.
    pub backend: Arc<dyn Backend>,
    /// How the councillor's requests are paid for.
    pub spending: Spending,
    /// The folder that only the councillor's child process uses.
    pub place: PathBuf,
}

/// The councillors of a run: those who can be asked, and those who cannot.
#[derive(Default)]
pub struct Panel {
    /// The councillors who can be asked, in the order of the configuration.
    pub ready: Vec<Panelist>,
    /// Councillors who are not asked, each with the reason.
    pub absent: Vec<(String, String)>,
    /// Councillors who were asked, each with the sandbox of its child.
    pub asked: Vec<(String, String)>,
}
