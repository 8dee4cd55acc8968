//! The program: parse, call, map to an exit code.

mod cli;
mod commands;
mod config;
mod drive;
mod home;
mod project;

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = match cli::args::parse(std::env::args_os()) {
        Err(code) => code,
        Ok(args) => commands::run(&args).unwrap_or_else(|failure| {
            cli::show::complain(&failure.to_string());
            failure.exit
        }),
    };
    ExitCode::from(code as u8)
}
