//! Generates the manual and the shell completions from the command-line definition.
//!
//! The pages must never contain anything that `--help` does not contain.

use std::io;

use clap::Command;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

/// The first line of each page. A file with a different first line was not written by `runner man`.
pub const MARK: &str = ".\\\" Written by runner man; the next one replaces it.\n";

pub struct Page {
    /// The file name of the page, such as `runner-config-show.1`.
    pub name: String,
    /// The page as roff.
    pub text: Vec<u8>,
}

/// Renders all manual pages. The program's own page is the first.
///
/// # Errors
/// Returns an error if a page cannot be rendered.
pub fn manual(program: &Command) -> io::Result<Vec<Page>> {
    every(program)
        .into_iter()
        .map(|(words, command)| {
            let name = words.join("-");
            let mut text = MARK.as_bytes().to_vec();
            let source = format!("runner {}", env!("CARGO_PKG_VERSION"));
            let shown = command.clone().display_name(name.clone()).bin_name(words.join(" "));
            Man::new(shown)
                .title(name.to_uppercase())
                .source(source)
                .manual("runner")
                .render(&mut text)?;
            Ok(Page { name: format!("{name}.1"), text })
        })
        .collect()
}

/// Returns the completion script for `shell`.
pub fn completions(shell: Shell, program: &mut Command) -> String {
    let mut script = Vec::new();
    generate(shell, program, "runner", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Returns the program and its visible commands, each with its names from the program downwards.
fn every(program: &Command) -> Vec<(Vec<String>, Command)> {
    fn walk(words: &[String], command: &Command, all: &mut Vec<(Vec<String>, Command)>) {
        let mut own = words.to_vec();
        own.push(command.get_name().to_owned());
        all.push((own.clone(), command.clone()));
        let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        for inner in shown.filter(|inner| inner.get_name() != "help") {
            walk(&own, inner, all);
        }
    }
    let mut built = program.clone();
    built.build();
    let mut all = Vec::new();
    walk(&[], &built, &mut all);
    all
}

#[cfg(test)]
mod tests {
    use super::super::args::program;
    use super::super::docs_tests::{commands, line_of};
    use super::*;

    #[test]
    fn every_command_has_help_and_an_example() {
        let program = program();
        program.clone().debug_assert();
        let all = every(&program);
        assert!(all.len() > 25, "{}", all.len());
        for (words, command) in &all {
            let named = words.join(" ");
            assert!(command.get_about().is_some(), "{named} has no description");
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains("Example"), "{named} has no example");
            // Each example must parse, and must call the command itself.
            let example = after.split_once("runner ").map(|(_, rest)| format!("runner {rest}"));
            let lines = commands(&example.unwrap_or_default());
            let line = lines.iter().find_map(|line| line_of(line)).unwrap_or_default();
            // `runner overnight curator` is another name for `runner curator`.
            let mut names = words.clone();
            if words.get(1..3).is_some_and(|it| it == ["overnight", "curator"]) {
                names.remove(1);
            }
            let own = words.len() == 1 || line.starts_with(&names);
            assert!(own, "the example of {named} calls another command: {after}");
            if let Err(error) = super::super::args::program().try_get_matches_from(&line) {
                panic!("{line:?}: {error}");
            }
            for argument in command.get_arguments() {
                let known = ["help", "version"].contains(&argument.get_id().as_str());
                assert!(known || argument.get_help().is_some(), "{named}: {}", argument.get_id());
            }
        }
    }

    #[test]
    fn pages_and_completions_list_commands() {
        let pages = manual(&program()).unwrap();
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        assert!(names.contains(&"runner.1") && names.contains(&"runner-config-show.1"));
        assert!(!names.iter().any(|name| name.contains("execute")));
        for page in &pages {
            let text = String::from_utf8(page.text.clone()).unwrap();
            assert!(text.starts_with(MARK) && text.contains("Example"), "{}", page.name);
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let script = completions(shell, &mut program());
            for word in ["schedule", "simulate", "completions", "dry-run"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
