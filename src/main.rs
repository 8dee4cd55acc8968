//! The program: parse, call, map to an exit code.

mod budget;
mod cancel;
mod care;
mod cli;
mod commands;
mod config;
mod daemon;
mod doctor;
mod drive;
mod filesystem;
mod follow;
mod home;
mod project;
mod setup;
mod tick;

use std::process::ExitCode;

use runner_engine::outcome::Exit;

fn main() -> ExitCode {
    let code = match cli::args::parse(std::env::args_os()) {
        Err(code) => code,
        Ok(args) => commands::run(&args).unwrap_or_else(|failure| {
            cli::show::complain(&failure.told());
            failure.exit
        }),
    };
    let code = match code {
        Exit::Done if cli::show::lost() => Exit::CannotWrite,
        code => code,
    };
    ExitCode::from(code as u8)
}
