//! The daemon: one process per user that ticks for all projects and replaces a host timer.
//!
//! ```text
//! beats, socket, signals, ended runs ──select──> Event ──machine::handle──> Effects ──EffectRunner──┐
//!                                                  ^                                                │
//!                                                  └─────────────── resulting events ───────────────┘
//! ```
//!
//! The daemon starts each run as a separate process, so a run survives if the daemon dies. If the
//! run then exits without being settled, the next tick of any process settles it. The daemon shares
//! the database with `runner tick` and host timers, so no occurrence is started twice. A run's
//! state must never exist only in the daemon's memory.

pub mod client;
mod effects;
mod heartbeat;
mod lock;
mod log;
mod machine;
pub mod protocol;
pub mod settings;
mod socket;

use std::collections::VecDeque;
use std::time::Duration;

use runner_engine::outcome::Exit;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::time::ClockReading;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::env::{self, Env};
use crate::spawn::SpawnMode;
use crate::ui::{Failure, Ui};
use crate::web;
use effects::EffectRunner;
use heartbeat::Heartbeat;
use log::DaemonLog;
use machine::{Daemon, DaemonEvent, Settings, Signal};
use socket::{Control, SocketRequest};

/// Maximum time that the loop waits for a beat.
const LATE: Duration = Duration::from_secs(5);
/// Maximum number of client requests waiting for the loop.
const QUESTIONS: usize = 64;

/// Runs the daemon until a signal stops it. Live runs may then continue for `drain`. `commands`
/// runs the commands that the pages need.
pub fn run(
    home: &Env,
    drain: Duration,
    manner: SpawnMode,
    commands: web::Commands,
) -> Result<Exit, Failure> {
    // Opening the database also creates the private state folder.
    let store = home.store()?;
    let me = ProcessIdentity::me();
    let now = home.now()?;
    let _lock = lock::take(&home.daemon_lock(), &me, now.wall)?;
    let wanted = env::setting("RUNNER_LOG").and_then(|value| value.into_string().ok());
    let voice = DaemonLog::start(&home.daemon_log(), wanted.as_deref(), manner.ui)?;
    let settings = Settings { pid: me.pid, drain, watchdog: env::watchdog() };
    let manner = SpawnMode {
        watched: false,
        awaited: false,
        ui: Ui { quiet: true, ..Ui::default() },
        apart: true,
        ..manner
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::internal(format!("cannot start the daemon's loop: {error}")))?;
    let serves = web::settings(&home.user_config)?;
    if serves.enabled {
        serve_pages(home, serves.addresses, commands, voice);
    }
    let runner = EffectRunner::new(home, store, me, manner, voice);
    let done = runtime.block_on(serve(home, settings, runner, now));
    match &done {
        Ok(_) => voice.log("ended"),
        Err(failure) => tracing::error!("{failure}"),
    }
    runtime.shutdown_background();
    done
}

/// Serves the API and the pages on a separate thread. The jobs do not depend on that thread, so the
/// daemon also works without it.
fn serve_pages(
    home: &Env,
    addresses: web::ServeSettings,
    commands: web::Commands,
    voice: DaemonLog,
) {
    let served = web::Server::bind(home, addresses).and_then(|bound| match bound {
        web::Bound::Server(server) => {
            let address = server.address();
            server.prepare(commands)?.answer_apart()?;
            Ok(address.map_or_else(
                || "the API is served".to_owned(),
                |at| format!("the pages are served at http://{at}/"),
            ))
        }
        web::Bound::Elsewhere { pid, .. } => Err(Failure::later(format!(
            "the pages are not served: process {pid} already serves them"
        ))),
    });
    match served {
        Ok(text) => voice.log(&text),
        Err(failure) => voice.complain(&failure.to_string()),
    }
}

/// An event that wakes the loop.
enum LoopEvent {
    Beat,
    Signal(Signal),
    Ends,
    Asked(SocketRequest),
    FleetWork,
}

async fn serve(
    home: &Env,
    settings: Settings,
    mut runner: EffectRunner<'_>,
    mut now: ClockReading,
) -> Result<Exit, Failure> {
    let cannot = |error| Failure::internal(format!("cannot wait for signals: {error}"));
    let mut term = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut int = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut hup = signal(SignalKind::hangup()).map_err(cannot)?;
    // The handler must exist before the first run starts. One signal may report several exited
    // children.
    let mut child = signal(SignalKind::child()).map_err(cannot)?;
    let mut pace = Heartbeat::start().await?;
    let (sender, mut questions) = mpsc::channel(QUESTIONS);
    let _control = Control::serve(home, sender)?;
    // The loop must wake up at least twice within the watchdog timeout.
    let late =
        settings.watchdog.map_or(LATE, |limit| LATE.min(limit / 4)).max(Duration::from_millis(10));
    // One pending wake-up is enough. A build without fleets never sends one.
    let (wake, mut woken_by_fleet) = mpsc::channel(1);
    runner.listen(&wake);
    let (mut daemon, first) = Daemon::start(settings, now);
    let mut events = VecDeque::new();
    for effect in first {
        runner.carry_out(effect, now, &mut events)?;
    }
    loop {
        while let Some(event) = events.pop_front() {
            for effect in daemon.handle(event, now) {
                if let Some(exit) = runner.carry_out(effect, now, &mut events)? {
                    return Ok(exit);
                }
            }
        }
        let woken = tokio::select! {
            Some(_) = term.recv() => LoopEvent::Signal(Signal::Stop),
            Some(_) = int.recv() => LoopEvent::Signal(Signal::Stop),
            Some(_) = hup.recv() => LoopEvent::Signal(Signal::Reload),
            Some(()) = child.recv() => LoopEvent::Ends,
            Some(question) = questions.recv() => LoopEvent::Asked(question),
            Some(()) = woken_by_fleet.recv() => LoopEvent::FleetWork,
            Some(()) = pace.beats.recv() => LoopEvent::Beat,
            () = sleep(late) => LoopEvent::Beat,
        };
        // If the clock cannot be read, the last reading is used again.
        now = home.now().unwrap_or(now);
        match woken {
            LoopEvent::FleetWork => events.push_back(DaemonEvent::FleetWork),
            LoopEvent::Beat => events.push_back(DaemonEvent::Pace),
            LoopEvent::Signal(signal) => events.push_back(DaemonEvent::Signal(signal)),
            LoopEvent::Ends => runner.recover_stale(&mut events)?,
            LoopEvent::Asked(SocketRequest { what, reply }) => {
                let by = runner.expect(reply);
                events.push_back(DaemonEvent::Asked { by, what });
            }
        }
    }
}
