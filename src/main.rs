//! The program: parse, call, map to an exit code.

mod args;
mod commands;
mod config;
mod drive;
mod failure;
mod home;
mod log;
mod project;
mod show;

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = match args::parse(std::env::args_os()) {
        Err(code) => code,
        Ok(args) => commands::run(&args).unwrap_or_else(|failure| {
            show::complain(&failure.to_string());
            failure.exit
        }),
    };
    ExitCode::from(code as u8)
}
