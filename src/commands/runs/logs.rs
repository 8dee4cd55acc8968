//! `runner runs logs`: what a run wrote, all of it or as it grows.

use std::fs;
use std::os::fd::AsFd as _;

use runner_engine::ids::RunId;
use runner_engine::outcome::Exit;

use super::open;
use crate::cli::Failure;
use crate::cli::{log, show};
use crate::daemon::client::{Client, Stream};
use crate::follow::{self, Followed};
use crate::home::Home;

/// The log of one run, and what its program said; all of it, or as it grows.
pub fn logs(home: &Home, run: &str, follow: bool) -> Result<Exit, Failure> {
    let (_, row) = open(home, run)?;
    let log = home.run_folder(row.id.as_str()).join(log::FILE);
    let mut found = log.exists();
    let outcome = if follow {
        match follow_log(home, &row.id)? {
            Some(outcome) => Some(outcome),
            None => return Ok(Exit::Done),
        }
    } else {
        if let Ok(bytes) = fs::read(&log) {
            show::out(&String::from_utf8_lossy(&bytes));
        }
        None
    };
    found |= log.exists();
    for name in ["stdout", "stderr"] {
        let Ok(bytes) = fs::read(log.with_file_name(name)) else {
            continue;
        };
        if !bytes.is_empty() {
            show::out(&format!("--- {name}\n"));
        }
        show::out(&String::from_utf8_lossy(&bytes));
        found = true;
    }
    if !found {
        show::complain(&format!("run {} has no log: it never began", row.id));
    }
    if let Some(outcome) = outcome {
        show::out(&format!("{outcome}\n"));
    }
    Ok(Exit::Done)
}

/// Prints the log of a run until it is over, through the daemon where there is one; how it ended, or
/// `None` when nobody reads any more.
fn follow_log(home: &Home, run: &RunId) -> Result<Option<String>, Failure> {
    let stdout = std::io::stdout();
    let mut known = 0;
    if let Some(daemon) = Client::connect(home) {
        let mut print = |text: &str| {
            show::out(text);
            !follow::is_closed(stdout.as_fd())
        };
        match daemon.follow(run, 0, &mut print)? {
            Stream::Over(outcome) => return Ok(Some(outcome)),
            Stream::Lost(at) => known = at,
        }
    }
    let followed = follow::follow(home, run, known, &[stdout.as_fd()], &mut |text, _| {
        show::out(text);
        Ok(())
    })?;
    Ok(match followed {
        Followed::Settled(row) => Some(follow::outcome(&row)),
        Followed::Abandoned => None,
    })
}
