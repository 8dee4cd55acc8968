//! `curator work`: runs of the job of kind curator, until there is nothing that may begin.
//!
//! ```text
//! queue empty? ── no ──> one run ── more is done or failed ──> again
//!    │ yes                  └── nothing is: the hour is full, or the run failed ──> end; watching: wait
//!    └──> end; watching: wait for a file, half a minute, or a signal
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use runner_engine::outcome::Exit;
use runner_jobs::curator::queue::Worker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::{disk, model, worker};
use crate::cli::Failure;
use crate::cli::args::Listing;
use crate::commands::run::{self as by_hand, How};
use crate::drive::Manner;
use crate::home::Home;
use crate::project::Here;

/// How long nothing may come before it is looked all the same.
const PACE: Duration = Duration::from_secs(30);

/// Nobody works.
pub fn no_job() -> Failure {
    Failure::configuration("no job of kind curator is configured")
        .mend("runner curator setup --apply")
}

/// Works.
pub fn run(
    home: &Home,
    project: &Here,
    (once, watch): (bool, bool),
    manner: Manner,
    listing: Listing,
) -> Result<Exit, Failure> {
    let job = model::job_of(project).ok_or_else(no_job)?;
    let worker = worker(project)?;
    worker.make().map_err(|error| disk(&worker, &error))?;
    let run = || {
        let how = How {
            manner,
            listing,
            follow: false,
            deferral_is_normal: true,
            settings: Vec::new(),
        };
        by_hand::once(home, project, job, None, how)
    };
    if once {
        return run();
    }
    let mut ears = if watch {
        Some(Ears::new(&worker)?)
    } else {
        None
    };
    loop {
        let mut last = Exit::Done;
        loop {
            let before = worker.depths();
            if before.queue + before.processing == 0 {
                break;
            }
            last = run()?;
            let after = worker.depths();
            let moved = after.done + after.failed > before.done + before.failed;
            if !moved || last == Exit::Cancelled {
                break;
            }
        }
        let Some(ears) = &mut ears else {
            return Ok(last);
        };
        if last == Exit::Cancelled || !ears.wait()? {
            return Ok(Exit::Cancelled);
        }
    }
}

struct Ears {
    told: UnixStream,
    changes: Option<OwnedFd>,
}

impl Ears {
    fn new(worker: &Worker) -> Result<Self, Failure> {
        let cannot =
            |error: io::Error| Failure::internal(format!("cannot wait for signals: {error}"));
        let (told, tell) = UnixStream::pair().map_err(cannot)?;
        for signal in [SIGINT, SIGTERM] {
            let tell = tell.try_clone().map_err(cannot)?;
            signal_hook::low_level::pipe::register(signal, tell).map_err(cannot)?;
        }
        // Without it we are only slower.
        let changes = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
        let changes = changes.filter(|watch| {
            let what = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO;
            inotify::add_watch(watch, worker.path("queue"), what).is_ok()
        });
        Ok(Self { told, changes })
    }

    /// Whether to go on.
    fn wait(&mut self) -> Result<bool, Failure> {
        let mut polled = vec![PollFd::new(&self.told, PollFlags::IN)];
        if let Some(changes) = &self.changes {
            polled.push(PollFd::new(changes, PollFlags::IN));
        }
        let limit = Timespec {
            tv_sec: PACE.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: 0,
        };
        match poll(&mut polled, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::internal(format!("cannot wait: {error}"))),
        }
        if polled[0].revents().contains(PollFlags::IN) {
            return Ok(false);
        }
        if let Some(changes) = &self.changes {
            let mut told = [0_u8; 4096];
            while rustix::io::read(changes, &mut told).is_ok_and(|count| count > 0) {}
        }
        Ok(true)
    }
}
