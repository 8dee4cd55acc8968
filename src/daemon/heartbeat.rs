//! The daemon's pace: a beat a second from `tokio-cron-scheduler`, in UTC, and nothing more.
//!
//! That library keeps a fixed offset from UTC and its next beat as a wall time, so it is silent for
//! as long as the clock was set back and knows no zone. Nothing right may depend on it: the loop looks
//! up by itself when a beat is late, and what is due is never its word.

use tokio::sync::mpsc;
use tokio_cron_scheduler::{Job, JobScheduler};

use crate::cli::Failure;

/// The beat, as long as it is held.
pub struct Heartbeat {
    /// A beat waits here; one that comes while another waits is lost.
    pub beats: mpsc::Receiver<()>,
    _scheduler: JobScheduler,
}

impl Heartbeat {
    /// Starts it, inside a runtime.
    pub async fn start() -> Result<Self, Failure> {
        let cannot =
            |error| Failure::internal(format!("cannot start the daemon's heartbeat: {error}"));
        let (sender, beats) = mpsc::channel(1);
        let scheduler = JobScheduler::new().await.map_err(cannot)?;
        let job = Job::new("* * * * * *", move |_, _| {
            let _one_waits = sender.try_send(());
        })
        .map_err(cannot)?;
        scheduler.add(job).await.map_err(cannot)?;
        scheduler.start().await.map_err(cannot)?;
        Ok(Self { beats, _scheduler: scheduler })
    }
}
