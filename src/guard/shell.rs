//! The places that a shell command names as ones to write, as far as they can be seen.
//!
//! A hint and no wall: what a program does cannot be read from how it is called. Redirections count,
//! and the arguments of the common programs that write; what cannot be known (a variable, a change
//! of folder before a relative path) is said to be unknown, and what cannot be read is an error.

/// A place that a command would write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// As it stands.
    Plain(String),
    /// Beneath the home folder.
    Home(String),
    /// It depends on what only the shell knows.
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word {
        text: String,
        open: bool,
    },
    /// `>`, `>>`, `>|`, `&>`, `<>`.
    Redirection,
    /// `;`, `|`, `&`, a newline, a parenthesis.
    End,
}

/// Programs of which every plain argument is written, or may be.
const ALL: [&str; 11] = [
    "rm", "rmdir", "mkdir", "touch", "tee", "truncate", "chmod", "chown", "shred", "unlink",
    "mkfifo",
];
/// Programs of which the last argument is written.
const LAST: [&str; 4] = ["cp", "ln", "install", "rsync"];
/// Programs that run the rest of their line.
const BEFORE: [&str; 9] = [
    "sudo", "env", "nohup", "time", "nice", "exec", "command", "builtin", "xargs",
];
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "eval"];
/// How deep a shell in a shell is looked into.
const DEEPEST: usize = 4;

/// What `line` would write.
///
/// # Errors
/// It cannot be read.
pub fn written(line: &str) -> Result<Vec<Word>, String> {
    let mut found = Vec::new();
    let mut moved = None;
    look(line, 0, &mut moved, &mut found)?;
    Ok(found)
}

fn look(
    line: &str,
    depth: usize,
    moved: &mut Option<String>,
    found: &mut Vec<Word>,
) -> Result<(), String> {
    if depth > DEEPEST {
        return Err("shells within shells are too deep to be judged".to_owned());
    }
    let mut words: Vec<(String, bool)> = Vec::new();
    let mut target = false;
    for token in tokens(line)?.into_iter().chain([Token::End]) {
        match token {
            Token::Word { text, open } if target => {
                target = false;
                found.push(place(&text, open, moved));
            }
            Token::Word { text, open } => words.push((text, open)),
            Token::Redirection => target = true,
            Token::End => {
                target = false;
                command(&std::mem::take(&mut words), depth, moved, found)?;
            }
        }
    }
    Ok(())
}

fn command(
    mut words: &[(String, bool)],
    depth: usize,
    moved: &mut Option<String>,
    found: &mut Vec<Word>,
) -> Result<(), String> {
    while let [(first, _), rest @ ..] = words {
        let assigned = first.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        if assigned || BEFORE.contains(&first.as_str()) {
            words = rest;
        } else {
            break;
        }
    }
    let [(first, _), rest @ ..] = words else {
        return Ok(());
    };
    let name = first.rsplit('/').next().unwrap_or(first);
    let plain: Vec<&(String, bool)> = rest
        .iter()
        .filter(|(text, _)| !text.starts_with('-'))
        .collect();
    match name {
        "cd" | "pushd" => {
            *moved = Some(
                plain
                    .first()
                    .map_or_else(|| "~".to_owned(), |(text, _)| text.clone()),
            )
        }
        "mv" => found.extend(plain.iter().map(|(text, open)| place(text, *open, moved))),
        "sed"
            if rest
                .iter()
                .any(|(text, _)| text.starts_with("-i") || text.starts_with("--in-place")) =>
        {
            found.extend(
                plain
                    .iter()
                    .skip(1)
                    .map(|(text, open)| place(text, *open, moved)),
            );
        }
        "dd" => {
            let outputs = rest
                .iter()
                .filter_map(|(text, open)| Some((text.strip_prefix("of=")?, *open)));
            found.extend(outputs.map(|(text, open)| place(text, open, moved)));
        }
        name if ALL.contains(&name) => {
            // A mode or an owner is no path.
            let skip = usize::from(["chmod", "chown"].contains(&name));
            found.extend(
                plain
                    .iter()
                    .skip(skip)
                    .map(|(text, open)| place(text, *open, moved)),
            );
        }
        name if LAST.contains(&name) => {
            found.extend(plain.last().map(|(text, open)| place(text, *open, moved)));
        }
        name if SHELLS.contains(&name) => {
            for (text, open) in rest.iter().filter(|(text, _)| text.contains(' ')) {
                if *open {
                    found.push(Word::Unknown(text.clone()));
                }
                look(text, depth + 1, moved, found)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn place(text: &str, open: bool, moved: &Option<String>) -> Word {
    let home = ["~/", "$HOME/", "${HOME}/"]
        .iter()
        .find_map(|start| text.strip_prefix(start));
    if let Some(rest) = home.filter(|rest| !rest.contains(['$', '`'])) {
        return Word::Home(rest.to_owned());
    }
    if text == "~" || text == "$HOME" {
        return Word::Home(".".to_owned());
    }
    if open && text.contains(['$', '`', '*', '?', '[', '{', '~']) {
        return Word::Unknown(text.to_owned());
    }
    match moved {
        // What is relative to a folder that it goes to first.
        Some(folder) if !text.starts_with('/') => {
            if folder.contains(['$', '`', '~']) || folder == "-" {
                Word::Unknown(text.to_owned())
            } else {
                Word::Plain(format!("{folder}/{text}"))
            }
        }
        _ => Word::Plain(text.to_owned()),
    }
}

/// Words, redirections of output, and ends of commands.
fn tokens(line: &str) -> Result<Vec<Token>, String> {
    let mut all = Vec::new();
    let mut text = String::new();
    let (mut begun, mut open) = (false, false);
    let mut letters = line.chars().peekable();
    let flush = |text: &mut String, begun: &mut bool, open: &mut bool, all: &mut Vec<Token>| {
        if std::mem::take(begun) {
            all.push(Token::Word {
                text: std::mem::take(text),
                open: *open,
            });
        }
        *open = false;
    };
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => {
                begun = true;
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(inner) => text.push(inner),
                        None => return Err("a quote is not closed".to_owned()),
                    }
                }
            }
            '"' => {
                begun = true;
                loop {
                    match letters.next() {
                        Some('"') => break,
                        Some('\\') => text.extend(letters.next()),
                        Some(inner) => {
                            open |= inner == '$' || inner == '`';
                            text.push(inner);
                        }
                        None => return Err("a quote is not closed".to_owned()),
                    }
                }
            }
            '\\' => {
                begun = true;
                text.extend(letters.next());
            }
            '#' if !begun => {
                while letters.peek().is_some_and(|next| *next != '\n') {
                    letters.next();
                }
            }
            '>' => {
                // A number before it says which output.
                if text.chars().all(|c| c.is_ascii_digit()) {
                    text.clear();
                    begun = false;
                }
                flush(&mut text, &mut begun, &mut open, &mut all);
                while letters.peek().is_some_and(|next| ['>', '|'].contains(next)) {
                    letters.next();
                }
                if letters.peek() == Some(&'&') {
                    letters.next();
                    // `2>&1` writes nowhere new.
                    if letters
                        .peek()
                        .is_some_and(|next| next.is_ascii_digit() || *next == '-')
                    {
                        letters.next();
                        continue;
                    }
                }
                all.push(Token::Redirection);
            }
            '&' if letters.peek() == Some(&'>') => {
                flush(&mut text, &mut begun, &mut open, &mut all);
            }
            '<' if letters.peek() == Some(&'<') => {
                return Err(
                    "a text in the command (<<) cannot be judged; write a file with the Write tool"
                        .to_owned(),
                );
            }
            ' ' | '\t' | '<' => flush(&mut text, &mut begun, &mut open, &mut all),
            ';' | '|' | '&' | '\n' | '(' | ')' | '`' => {
                flush(&mut text, &mut begun, &mut open, &mut all);
                all.push(Token::End);
            }
            other => {
                begun = true;
                open |= ['$', '*', '?', '[', '{', '~'].contains(&other);
                text.push(other);
            }
        }
    }
    flush(&mut text, &mut begun, &mut open, &mut all);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_seen_and_what_is_not_known_is_said() {
        let plain = |text: &str| Word::Plain(text.to_owned());
        for (line, wanted) in [
            ("echo a > b", vec![plain("b")]),
            ("echo a 2>&1 >> 'b c'", vec![plain("b c")]),
            ("cd x && rm -r y", vec![plain("x/y")]),
            ("tee a b < c", vec![plain("a"), plain("b"), plain("c")]),
            ("cp a b", vec![plain("b")]),
            ("echo $(rm x)", vec![plain("x")]),
            ("rm ~/x", vec![Word::Home("x".to_owned())]),
            ("rm $X", vec![Word::Unknown("$X".to_owned())]),
            ("bash -c \"rm x\"", vec![plain("x")]),
            ("echo '> x' # > y", vec![]),
        ] {
            assert_eq!(written(line).unwrap(), wanted, "{line}");
        }
        assert!(written("echo 'a").is_err() && written("cat <<X").is_err());
    }
}
