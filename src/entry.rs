//! The program's entry point: parses the arguments, runs the command and maps the result to an exit
//! code.
//!
//! Agent hooks use different exit codes, because the agent interprets them.

use std::ffi::OsString;
use std::process::ExitCode;

use runner_engine::outcome::Exit;

use crate::commands::args::{self, command_words};
use crate::{commands, hooks, ui};

pub fn run() -> ExitCode {
    // The launcher runs first, so that no environment variable or file can influence it.
    if std::env::args_os().nth(1).is_some_and(|word| word == "__launch") {
        let code = runner_engine::launch::launch(std::io::stdin());
        return ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX));
    }
    // The memory's hooks delay every prompt, so they bypass the full command-line parser.
    if let Some(call) = hooks::call(std::env::args_os()) {
        return ExitCode::from(hooks::run(&call) as u8);
    }
    let caller = HookCaller::of(std::env::args_os().skip(1));
    if caller == Some(HookCaller::Guard) {
        // Only exit code 2 refuses the tool, so a panic must not exit with any other code.
        #[allow(
            clippy::exit,
            clippy::disallowed_methods,
            reason = "a panic must not exit with a different code"
        )]
        std::panic::set_hook(Box::new(|_| std::process::exit(2)));
    }
    let code = match args::parse(std::env::args_os()) {
        Err(Exit::Usage) if caller == Some(HookCaller::Memory) => hooks::answer_nothing(),
        Err(code) => code,
        Ok(args) => commands::run(&args).unwrap_or_else(|failure| {
            ui::show::complain(&failure.message());
            match caller {
                Some(HookCaller::Memory) => hooks::answer_nothing(),
                _ => failure.exit,
            }
        }),
    };
    let code = match code {
        Exit::Done if ui::show::lost() => Exit::CannotWrite,
        code => code,
    };
    match code {
        Exit::Done => ExitCode::SUCCESS,
        code => ExitCode::from(match caller {
            // The recorder runs after the tool and cannot refuse it, and the memory must not block
            // a prompt. Exit code 1 only reports the failure.
            Some(HookCaller::Recorder | HookCaller::Memory) => Exit::Failed,
            Some(HookCaller::Guard) => Exit::Usage,
            None => code,
        } as u8),
    }
}

/// A command that an agent calls as a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HookCaller {
    /// `runner guard hook`, which may refuse a tool.
    Guard,
    /// `runner hook post-tool-use`, which records tool use.
    Recorder,
    /// The memory's hooks, which must always print an answer.
    Memory,
}

impl HookCaller {
    /// Finds the hook command in the arguments before they are parsed, because the exit code for
    /// invalid arguments also depends on the command. Returns `None` if the command is not a hook.
    fn of(args: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut words = command_words(args);
        match words.next()?.as_str() {
            "hook" => Some(match words.next().and_then(|name| hooks::event(&name)) {
                Some(_) => Self::Memory,
                None => Self::Recorder,
            }),
            "guard" => (words.next()? == "hook").then_some(Self::Guard),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_found_after_global_flags() {
        use HookCaller::{Guard, Memory, Recorder};
        for (line, caller) in [
            ("guard hook", Some(Guard)),
            ("-C guard guard hook", Some(Guard)),
            ("-qvC hook guard --json hook --bogus", Some(Guard)),
            ("--dir=x --config a=b guard -C x hook", Some(Guard)),
            ("-C/tmp/C guard hook", Some(Guard)),
            ("-C=DIR -q guard hook", Some(Guard)),
            ("hook post-tool-use", Some(Recorder)),
            ("-C dir hook post-tool-use", Some(Recorder)),
            ("--config hook=1 hook", Some(Recorder)),
            ("hook stop --bogus", Some(Memory)),
            ("-q hook session-start", Some(Memory)),
            ("-C hook status", None),
            ("--dir hook jobs", None),
            ("guard check hook", None),
            ("run guard --set hook", None),
            ("enqueue hook", None),
            ("-C", None),
            ("", None),
        ] {
            let found = HookCaller::of(line.split_whitespace().map(Into::into));
            assert_eq!(found, caller, "{line}");
        }
    }

    #[test]
    fn global_flags_with_values_are_listed() {
        let program = args::program();
        let valued = program.get_arguments().filter(|arg| arg.get_action().takes_values());
        let (short, long): (Vec<_>, Vec<_>) =
            valued.map(|arg| (arg.get_short(), arg.get_long())).unzip();
        assert_eq!(short.into_iter().flatten().collect::<Vec<_>>(), [args::SHORT_VALUED]);
        let long = long.into_iter().flatten().map(|name| format!("--{name}"));
        assert_eq!(long.collect::<Vec<_>>(), args::LONG_VALUED);
    }
}
