//! Keeps the machine awake for a run.

use runner_engine::awake::{InhibitRequest, Inhibitor, InhibitorCommand};

use super::ResolvedRun;
use crate::env;

impl ResolvedRun<'_> {
    /// Keeps the machine awake until the returned value is dropped. Returns `None` if the job does
    /// not request it.
    pub fn keep_awake(&self) -> Option<Inhibitor> {
        let job = self.here.config.jobs.get(&self.row.job_name)?;
        if !job.keep_awake {
            return None;
        }
        let means = InhibitorCommand::here();
        let mut keeper = Inhibitor::take(&InhibitRequest {
            means,
            program: means.and_then(|means| env::host_program(means.program())),
            // The address of the system bus may differ from the default.
            env: env::named(["PATH", "DBUS_SYSTEM_BUS_ADDRESS"].into_iter()),
            what: format!("{} of {}", self.row.job_name, self.here.root.display()),
        });
        tracing::info!(awake = keeper.standing().to_string(), "requested sleep inhibition");
        Some(keeper)
    }
}
