//! Finds the paths that a shell command would write, as far as they can be determined from its
//! text.
//!
//! ```text
//! line ──tokens──> commands ──strip wrappers, reserved words──> program ──its own rules──> words
//!                     └ `$(…)`, `sh -c …`: separate lines, scanned in the same way
//! ```
//!
//! The result is a hint, not a sandbox: a program's command line does not reveal everything it
//! does. The scan covers redirections and the arguments of common programs that write. Anything
//! that cannot be known (a variable, a program whose name the shell computes) is reported as
//! unknown. A line that cannot be parsed is an error, and so is a program whose effect cannot be
//! determined (inline code, commands piped to a shell). A relative path is resolved against every
//! folder in which the command may run: the one in which the line starts, and every folder to which
//! it changes.

mod git;
mod programs;
mod tokens;

use tokens::{ShellWord, Token, tokens};

/// Maximum length of a command line in bytes; a longer line cannot be passed to a shell as one
/// argument.
const LONGEST: usize = 128 * 1024;
/// Maximum depth of nested shells that are scanned.
const DEEPEST: usize = 4;
/// Maximum number of folders that a line may be in, including the one where it starts.
const MOST_FOLDERS: usize = 8;
/// The name of a folder that only the shell knows.
const UNKNOWN: &str = "$";

/// The effect that a command would have on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShellAction {
    /// Writes the path, or a file of this name.
    Write,
    /// Removes or changes the path with everything below it.
    Sweep,
    /// Writes to the repository that contains the path.
    Commit,
}

/// A path that a command would write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShellPlace {
    /// A literal path.
    Plain(ShellAction, String),
    /// A path in the home folder.
    Home(ShellAction, String),
    /// Text containing a path that depends on values known only to the shell.
    Unknown(String),
}

/// Returns the paths that `line` would write.
///
/// # Errors
/// Returns an error if the line is too long or too complex, if it cannot be parsed, or if the
/// effect of a program cannot be determined.
pub fn written(line: &str) -> Result<Vec<ShellPlace>, String> {
    if line.len() > LONGEST {
        return Err(format!("the command is longer than {LONGEST} bytes"));
    }
    let mut scan = ShellScan { folders: vec![String::new()], found: Vec::new() };
    scan.line(line, 0)?;
    Ok(scan.found)
}

/// The standard input of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Pipe,
    Other,
}

struct ShellScan {
    /// The folders that the line may be in: the one where it starts, represented by an empty
    /// string, and those that it changes to.
    folders: Vec<String>,
    found: Vec<ShellPlace>,
}

impl ShellScan {
    fn line(&mut self, line: &str, depth: usize) -> Result<(), String> {
        if depth > DEEPEST {
            return Err("the command line nests shells too deeply to be checked".to_owned());
        }
        let mut words: Vec<ShellWord> = Vec::new();
        let mut target = None;
        let mut input = Input::Other;
        for token in tokens(line)?.into_iter().chain([Token::End { pipe: false }]) {
            match token {
                Token::Word(word) => match target.take() {
                    // `2>&1` duplicates a descriptor and writes no file.
                    Some(true) if word.text.trim_end_matches('-').parse::<u32>().is_ok() => {}
                    Some(true) if word.text == "-" => {}
                    Some(_) => self.place(ShellAction::Write, &word),
                    None => words.push(word),
                },
                Token::Redirection { copies } => target = Some(copies),
                Token::Within(line) => self.line(&line, depth + 1)?,
                Token::End { pipe } => {
                    target = None;
                    self.command(&std::mem::take(&mut words), input, depth)?;
                    input = if pipe { Input::Pipe } else { Input::Other };
                }
            }
        }
        Ok(())
    }

    /// Adds a folder that the line may change to. The earlier folders remain possible.
    fn add_folder(&mut self, folder: &ShellWord) -> Result<(), String> {
        let text = folder.text.as_str();
        let known = text != "-" && !folder.expands(text);
        let more: Vec<String> = match known {
            true => self.folders.iter().map(|from| joined(from, text)).collect(),
            false => vec![UNKNOWN.to_owned()],
        };
        for folder in more {
            if !self.folders.contains(&folder) {
                self.folders.push(folder);
            }
        }
        match self.folders.len() > MOST_FOLDERS {
            true => Err("the command line changes to too many folders to be checked".to_owned()),
            false => Ok(()),
        }
    }

    /// Records a word that names a path.
    fn place(&mut self, act: ShellAction, word: &ShellWord) {
        let text = word.text.as_str();
        let home = ["~", "$HOME", "${HOME}"].iter().find_map(|start| text.strip_prefix(start));
        let home = home.filter(|it| word.open && (it.is_empty() || it.starts_with('/')));
        if word.expands(home.unwrap_or(text)) {
            self.found.push(ShellPlace::Unknown(text.to_owned()));
        } else if let Some(rest) = home {
            let rest = if rest.len() > 1 { &rest[1..] } else { "." };
            self.found.push(ShellPlace::Home(act, rest.to_owned()));
        } else if text.starts_with('/') {
            self.found.push(ShellPlace::Plain(act, text.to_owned()));
        } else {
            self.found.extend(self.folders.iter().map(|folder| match folder.as_str() {
                UNKNOWN => ShellPlace::Unknown(text.to_owned()),
                folder => ShellPlace::Plain(act, joined(folder, text)),
            }));
        }
    }

    fn places<'a>(&mut self, act: ShellAction, words: impl IntoIterator<Item = &'a ShellWord>) {
        for word in words {
            self.place(act, word);
        }
    }
}

fn joined(folder: &str, text: &str) -> String {
    match folder.is_empty() || text.starts_with('/') {
        true => text.to_owned(),
        false => format!("{folder}/{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_writes_are_found_or_refused() {
        let write = |text: &str| ShellPlace::Plain(ShellAction::Write, text.to_owned());
        let sweep = |text: &str| ShellPlace::Plain(ShellAction::Sweep, text.to_owned());
        for (line, wanted) in [
            ("echo a > b", vec![write("b")]),
            ("echo a 2>&1 >> 'b c'", vec![write("b c")]),
            ("echo a >&2; echo b >&2x", vec![write("2x")]),
            ("cd x && rm -r y", vec![sweep("y"), sweep("x/y")]),
            ("tee a b < c", vec![write("a"), write("b"), write("c")]),
            ("cp a b", vec![write("b")]),
            ("cp -t b a", vec![write("b")]),
            ("echo $(rm x)", vec![sweep("x")]),
            ("echo \"at $(rm x)\"", vec![sweep("x")]),
            ("rm ~/x", vec![ShellPlace::Home(ShellAction::Sweep, "x".to_owned())]),
            ("rm '~/x'", vec![sweep("~/x")]),
            ("rm $X", vec![ShellPlace::Unknown("$X".to_owned())]),
            ("bash -c \"rm x\"", vec![sweep("x")]),
            ("for f in a; do touch f; done", vec![write("f")]),
            ("env -i touch f", vec![write("f")]),
            ("chmod -x f", vec![sweep("f")]),
            ("to\\\nuch f", vec![write("f")]),
            ("echo '> x' # > y", vec![]),
            ("git log -3 && git -C a status", vec![]),
            ("git commit -m 'a > b'", vec![ShellPlace::Plain(ShellAction::Commit, ".".to_owned())]),
            ("find . -name x -print", vec![]),
            ("find a -name x -delete", vec![sweep("a")]),
        ] {
            assert_eq!(written(line).unwrap(), wanted, "{line}");
        }
        for line in
            ["echo 'a", "cat <<X", "echo \"$(rm x\"", "curl x | sh", "python3 -c 'print(1)'"]
        {
            assert!(written(line).is_err(), "{line}");
        }
        assert!(written(&"x".repeat(LONGEST + 1)).is_err());
    }

    #[test]
    fn deeply_nested_lines_do_not_overflow() {
        for part in
            ["env ", "rm ", "cd a;", "(", "$(", "\"$(", "`", ">", "{", "xargs ", "find -exec "]
        {
            // Any result is correct; the call only has to return without a stack overflow.
            let _ = written(&part.repeat(LONGEST / part.len()));
        }
    }
}
