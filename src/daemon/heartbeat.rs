//! The daemon's beat: one per second, from `tokio-cron-scheduler`.
//!
//! The library schedules beats by wall time, so if the clock is set back, the beats stop until the
//! clock catches up. Correctness must not depend on the library: the loop also wakes up after a
//! timeout, and a beat never decides what is due.

use tokio::sync::mpsc;
use tokio_cron_scheduler::{Job, JobScheduler};

use crate::ui::Failure;

/// The source of beats. Dropping it stops the beats.
pub struct Heartbeat {
    /// The channel for beats. It buffers one beat and drops any others.
    pub beats: mpsc::Receiver<()>,
    _scheduler: JobScheduler,
}

impl Heartbeat {
    /// Starts the beat. Must be called inside a Tokio runtime.
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
