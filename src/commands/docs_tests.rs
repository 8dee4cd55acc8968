//! Checks the fenced blocks of the documentation: command lines must parse, and settings must load.

use std::fs;
use std::path::{Path, PathBuf};

use super::args::program;
use crate::config::{Overrides, Stack, load, mistakes};

/// A fenced block and its location.
struct Block {
    language: String,
    text: String,
    place: String,
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = vec![root.join("README.md")];
    let guide = fs::read_dir(root.join("docs/guide")).unwrap();
    all.extend(guide.map(|entry| entry.unwrap().path()));
    all.retain(|path| path.extension().is_some_and(|end| end == "md"));
    all.sort();
    all
}

fn blocks() -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        let mut open = false;
        for (number, line) in text.lines().enumerate() {
            match (line.strip_prefix("```"), open) {
                (Some(language), false) => {
                    all.push(Block {
                        language: language.trim().to_owned(),
                        text: String::new(),
                        place: format!("{}:{}", path.display(), number + 1),
                    });
                    open = true;
                }
                (Some(_), true) => open = false,
                (None, true) => {
                    let block = all.last_mut().unwrap();
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, false) => {}
            }
        }
        assert!(!open, "{}: a block is not closed", path.display());
    }
    all
}

/// Splits shell text into simple commands, each a list of words. Expansions such as `$NAME` are not
/// evaluated.
pub fn commands(text: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let (mut word, mut quote, mut begun) = (String::new(), None, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, begun) = (Some(c), true),
            (None, '\\') => match chars.next() {
                Some('\n') | None => {}
                Some(c) => {
                    word.push(c);
                    begun = true;
                }
            },
            (None, '#') if !begun => while chars.next_if(|c| *c != '\n').is_some() {},
            (None, c) => {
                let ends = matches!(c, '\n' | ';' | '|' | '&' | '(' | ')' | '>' | '<');
                if ends || c.is_whitespace() {
                    if begun {
                        all.last_mut().unwrap().push(std::mem::take(&mut word));
                        begun = false;
                    }
                    if ends {
                        all.push(Vec::new());
                    }
                } else {
                    word.push(c);
                    begun = true;
                }
            }
        }
    }
    if begun {
        all.last_mut().unwrap().push(word);
    }
    all.retain(|words| !words.is_empty());
    all
}

/// Returns the words as a `runner` command line, or `None` if they start another program.
pub fn line_of(words: &[String]) -> Option<Vec<String>> {
    let runner = "runner".to_owned();
    match words {
        [first, rest @ ..] if *first == runner => Some([&[runner], rest].concat()),
        [cargo, run, dashes, rest @ ..] if cargo == "cargo" && run == "run" && dashes == "--" => {
            Some([&[runner], rest].concat())
        }
        _ => None,
    }
}

#[test]
fn shell_text_is_split_into_commands() {
    let text = "cd x && runner a 'b c' # runner no\nfirst=$(runner --quiet d)\nrunner e \\\n  f > \"g\" | jq '.h'\n";
    let lines: Vec<Vec<String>> = commands(text).iter().filter_map(|it| line_of(it)).collect();
    assert_eq!(
        lines,
        [vec!["runner", "a", "b c"], vec!["runner", "--quiet", "d"], vec!["runner", "e", "f"]]
    );
}

#[test]
fn documented_command_lines_parse() {
    let mut count = 0;
    for block in blocks() {
        let text = match block.language.as_str() {
            "sh" => block.text,
            // Only the lines after a prompt are input; the other lines are output.
            "console" => block
                .text
                .lines()
                .filter_map(|line| line.strip_prefix("$ "))
                .map(|line| format!("{line}\n"))
                .collect(),
            // A line has five time fields, then the command.
            "crontab" => block
                .text
                .lines()
                .map(|line| line.splitn(6, ' ').last().unwrap_or_default().to_owned() + "\n")
                .collect(),
            _ => continue,
        };
        for words in commands(&text) {
            if let Some(line) = line_of(&words) {
                if cfg!(not(feature = "fleet")) && line.get(1).is_some_and(|word| word == "fleet") {
                    continue;
                }
                count += 1;
                if let Err(error) = program().try_get_matches_from(&line) {
                    panic!("{}: {line:?}\n{error}", block.place);
                }
            }
        }
    }
    assert!(count >= 25, "only {count} lines were found");
}

#[test]
fn documented_settings_load() {
    let folder = tempfile::tempdir().unwrap();
    let (user, project) = (folder.path().join("config.toml"), folder.path().join("runner.toml"));
    let overrides = Overrides::default();
    let mut count = 0;
    for block in blocks().iter().filter(|block| block.language == "toml") {
        // An example for the user's file begins with a comment that contains that file's path.
        let own = block.text.starts_with("# ~/.config/runner/config.toml");
        fs::write(&user, if own { &block.text } else { "" }).unwrap();
        fs::write(&project, if own { "" } else { &block.text }).unwrap();
        let stack = Stack { user: &user, project: Some(&project), overrides: &overrides };
        if let Err(failure) = load(&stack) {
            panic!("{}: {}", block.place, failure.message());
        }
        assert!(mistakes(&stack).is_empty());
        count += 1;
    }
    assert!(count >= 4, "only {count} blocks were found");
    // An invalid setting must fail; otherwise, the check above would prove nothing.
    fs::write(&project, "[night]\nlenght = \"8h\"\n").unwrap();
    let stack = Stack { user: &user, project: Some(&project), overrides: &overrides };
    assert!(load(&stack).is_err());
}
