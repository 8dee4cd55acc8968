//! The program: parse, call, map to an exit code.

mod cli;
mod commands;
mod config;
mod drive;
mod home;
mod log;
mod project;
mod show;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
