//! The command line: what can be said, and what a shell is told back.

mod args;
mod failure;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;
use runner_engine::outcome::Exit;

pub use args::{Args, Command, DreamCommand, Listing, RunsCommand};
pub use failure::Failure;

use crate::commands;

/// Parses and carries out one command line.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Done
            };
            // A closed pipe is the reader's choice.
            let _closed = error.print();
            return ExitCode::from(code as u8);
        }
    };
    let code = match commands::run(&args) {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.exit
        }
    };
    ExitCode::from(code as u8)
}
