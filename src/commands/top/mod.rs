//! `runner top`: runs the application in a loop that reads the commands' data, forwards key presses
//! and carries out requests.
//!
//! ```text
//! read ──> draw ──> wait: a key, or 200 ms ──> update ──> request ──┐
//!   ^                └ the database changed, or 2 s ──> read        │
//!   └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! `runner dream review` is the same application, opened at the proposals.

mod act;
mod decide;
mod log;
mod source;

use std::time::Duration;

use runner_engine::outcome::Exit;
use runner_engine::time::boot_time;
use rustix::fs::inotify::WatchFlags;

use super::Cli;
use crate::env;
use crate::tui::paint::{self, Palette};
use crate::tui::terminal::{self, Screen};
use crate::tui::{App, Request, Tab};
use crate::ui::Failure;
use crate::ui::keys::Input;
use crate::wait::{Waiter, WakeReason};
pub(super) use source::Source;

/// Maximum time between two updates of the visible data.
const PACE: Duration = Duration::from_secs(2);

/// Watch runs, read logs and decide on proposals in one full-screen application
///
/// Press ? for the keys. Nothing changes until you decide on a proposal, or cancel, retry or pause
/// something.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner top")]
pub struct TopArgs {}

impl TopArgs {
    /// Runs the application until the user quits.
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        require_terminal("runner top", "runner status --watch, or runner status --json")?;
        open(&mut Source::new(*cli), App::new(Tab::Overview)).map(|(_, exit)| exit)
    }
}

/// Returns an error if there is no terminal. `instead` names commands that do not need one.
pub(super) fn require_terminal(what: &str, instead: &str) -> Result<(), Failure> {
    if terminal::is_available() {
        return Ok(());
    }
    Err(Failure::usage(format!("{what} needs a terminal")).hint(instead))
}

/// Runs the application. Returns its last state, and the exit code.
pub(super) fn open(source: &mut Source<'_>, mut app: App) -> Result<(App, Exit), Failure> {
    let palette = match env::setting("NO_COLOR") {
        None => Palette::Colours,
        Some(_) => Palette::Monochrome,
    };
    source.load(&mut app)?;
    let waiter = Waiter::new();
    // If the watch fails, changes are noticed only at the next update.
    waiter.watch(source.state(), WatchFlags::MODIFY);
    let cannot = |error| Failure::environment(format!("the terminal cannot be used: {error}"));
    let mut screen = Screen::open().map_err(cannot)?;
    let mut loaded = boot_time();
    let mut has_changed = true;
    loop {
        source.load_detail(&mut app);
        let drawn = match std::mem::take(&mut has_changed) {
            true => screen.draw(|frame| paint::draw(frame, &mut app, palette)),
            false => Ok(()),
        };
        // If drawing fails, the terminal is gone, so the application exits.
        let input = match drawn {
            Ok(()) => screen.next(),
            Err(_gone) => Some(Input::Stop),
        };
        let Some(key) = input else {
            let changed = waiter.wait(&[], Duration::ZERO)? == WakeReason::Change;
            if changed || boot_time().saturating_sub(loaded) >= PACE {
                // An error may be temporary, for example while the database is being restored.
                if let Err(failure) = source.refresh(&mut app) {
                    app.trouble = Some(failure.to_string());
                }
                loaded = boot_time();
                has_changed = true;
            }
            has_changed |= source.read_log(&mut app);
            continue;
        };
        has_changed = true;
        let (next, request) = app.update(key);
        app = next;
        match request {
            None => {}
            Some(Request::Quit) => {
                let exit = if key == Input::Stop { Exit::Cancelled } else { Exit::Done };
                return Ok((app, exit));
            }
            Some(request) => {
                source.carry_out(&mut app, request)?;
                loaded = boot_time();
            }
        }
    }
}
