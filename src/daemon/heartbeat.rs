//! The daemon's beat: one per second from `tokio-cron-scheduler`, in UTC.
//!
//! That library keeps a fixed offset from UTC and stores its next beat as a wall time. It is
//! therefore silent for as long as the clock was set back, and it knows no time zones. Correctness
//! must not depend on it: the loop wakes up by itself when a beat is late, and the beat never
//! decides what is due.

use tokio::sync::mpsc;
use tokio_cron_scheduler::{Job, JobScheduler};

use crate::ui::Failure;

/// The source of beats. Dropping it stops the beats.
pub struct Heartbeat {
    /// The channel of beats. It holds one beat; a further one is dropped.
    pub beats: mpsc::Receiver<()>,
    _scheduler: JobScheduler,
}

impl Heartbeat {
    /// Starts the beat; must be called inside a runtime.
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
