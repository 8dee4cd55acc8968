//! The program's entry point: parses the arguments, runs the command and maps the result to an exit
//! code.
//!
//! Agent hooks use different exit codes, because the agent interprets them.

use std::process::ExitCode;

use runner_engine::outcome::Exit;

use crate::{commands, hooks, ui};

pub fn run() -> ExitCode {
    // The launcher runs first, so that no environment variable or file can influence it.
    if std::env::args_os().nth(1).is_some_and(|word| word == "__launch") {
        let code = runner_engine::launch::launch(std::io::stdin());
        return ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX));
    }
    // The memory's hooks delay every prompt, so they do not wait for the parser of all commands.
    if let Some(call) = hooks::call(std::env::args_os()) {
        return hooks::run(&call);
    }
    let hook = is_hook();
    if hook {
        // Only exit code 2 refuses the tool, so a panic must not end with another code.
        #[allow(
            clippy::exit,
            clippy::disallowed_methods,
            reason = "a panic must not abort with another code"
        )]
        std::panic::set_hook(Box::new(|_| std::process::exit(2)));
    }
    let code = match commands::args::parse(std::env::args_os()) {
        Err(code) => code,
        Ok(args) => commands::run(&args).unwrap_or_else(|failure| {
            ui::show::complain(&failure.message());
            failure.exit
        }),
    };
    let code = match code {
        Exit::Done if ui::show::lost() => Exit::CannotWrite,
        code => code,
    };
    match code {
        Exit::Done => ExitCode::SUCCESS,
        // The recorder runs after the tool and cannot refuse it. Exit code 1 only reports the
        // failure.
        _ if is_recorder() => ExitCode::from(Exit::Failed as u8),
        _ if hook => ExitCode::from(Exit::Usage as u8),
        code => ExitCode::from(code as u8),
    }
}

/// Returns whether this process is `runner hook`.
fn is_recorder() -> bool {
    let mut words = std::env::args_os().skip(1);
    words.find(|word| !word.to_string_lossy().starts_with('-')).is_some_and(|word| word == "hook")
}

/// Returns whether this process is `runner guard hook`.
fn is_hook() -> bool {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let guard = words.iter().position(|word| word == "guard");
    guard.is_some_and(|at| words[at..].iter().any(|word| word == "hook"))
}
