//! The councillors that a run may ask, each with a separate backend and folder.

use std::path::PathBuf;
use std::sync::Arc;

use runner_backends::{Backend, Description};
use runner_engine::outcome::Class;

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

/// A councillor who is not asked.
#[derive(Clone, Debug)]
pub struct AbsentPanelist {
    /// The name of its backend.
    pub runner: String,
    /// The class of the reason, which determines who must act.
    pub class: Class,
    pub why: String,
}

/// The councillors of a run: those who can be asked, and those who cannot.
#[derive(Default)]
pub struct Panel {
    /// The councillors who can be asked, in the order of the configuration.
    pub ready: Vec<Panelist>,
    /// Councillors who are not asked.
    pub absent: Vec<AbsentPanelist>,
    /// Councillors who were asked, each with the description of its backend.
    pub asked: Vec<(String, Description)>,
}
