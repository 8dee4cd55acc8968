//! Calls several backends at the same time, each once and without fallbacks.
//!
//! ```text
//! asked ──reserve, in order──> in parallel, up to MOST at a time ──settle, in order──> results
//!            └── over budget: this backend is skipped, the others are asked
//! ```
//!
//! All reservations are made before the first backend is called. Requests that share a login wait
//! for each other if the login allows only one request at a time (`runner_backends`). A councillor
//! must never read or write another councillor's folder.

use std::path::PathBuf;

use futures_util::future::join_all;
use runner_backends::{BackendError, Description, Reply, Request};
use runner_engine::outcome::Class;
use runner_engine::time::boot_time;
use tokio::sync::Semaphore;

use super::ask::{block_on, unavailable};
use super::{AskError, PaidBackend, Spender};
use crate::usage_meter::ObservedUsage;

/// Maximum number of requests in progress at the same time.
const MOST: usize = 4;

pub struct Panelist {
    pub by: PaidBackend,
    /// A folder that only the councillor's child process uses.
    pub place: PathBuf,
}

/// A councillor who is not asked.
#[derive(Clone, Debug)]
pub struct AbsentPanelist {
    /// The name of the councillor's backend.
    pub runner: String,
    /// The class of the reason, which determines who must act.
    pub class: Class,
    pub why: String,
}

/// A run's councillors: those who can be asked, and those who cannot.
#[derive(Default)]
pub struct Panel {
    /// The councillors who can be asked, in the order of the configuration.
    pub ready: Vec<Panelist>,
    /// Councillors who are not asked.
    pub absent: Vec<AbsentPanelist>,
    /// The councillors who were asked, each with the description of the councillor's backend.
    pub asked: Vec<(String, Description)>,
}

impl Spender<'_> {
    /// Asks several councillors at the same time, each by its index in [`Panel::ready`]. Results
    /// are in the order of the questions.
    ///
    /// Each question is one attempt, which is reserved and settled separately. Its time limit never
    /// exceeds the run's remaining time.
    pub fn ask_each(&mut self, asked: &[(usize, Request)]) -> Vec<Result<Reply, AskError>> {
        let began = boot_time();
        let mut opened = Vec::with_capacity(asked.len());
        for (at, request) in asked {
            let by = self.backends.panel.ready[*at].by.clone();
            let mut request = request.clone();
            request.limits.total = request.limits.total.min(self.tools.clock.left());
            let open = match self.tools.cancel.why() {
                Some(why) => Err(BackendError::Cancelled { why }.into()),
                None => self.open(&by, &request, 0),
            };
            let reported = (by.backend.name().to_owned(), by.backend.describe());
            if open.is_ok() && !self.backends.panel.asked.contains(&reported) {
                self.backends.panel.asked.push(reported);
            }
            opened.push(open.map(|open| (by, request, open)));
        }
        let seats = Semaphore::new(MOST);
        let ask = async |(by, request, open): &_| {
            let _seat = seats.acquire().await;
            // The wait for a free slot is deducted from the councillor's time limit.
            let mut request = Request::clone(request);
            let waited = boot_time().saturating_sub(began);
            request.limits.total = request.limits.total.saturating_sub(waited);
            self.metered(by, &request, open).await
        };
        let answers = block_on(join_all(opened.iter().flatten().map(ask)));
        let mut answers = answers.map(Vec::into_iter);
        let results = opened.into_iter().map(|opened| {
            let (by, _, open) = opened?;
            let (answer, heard) = match &mut answers {
                Ok(answers) => answers.next().expect("each reserved request was sent"),
                Err(error) => (unavailable("a runtime", error), ObservedUsage::default()),
            };
            self.close(&by.spending, open, answer, heard)?
        });
        results.collect()
    }
}
