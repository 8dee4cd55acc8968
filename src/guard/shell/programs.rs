//! Finds the paths that the common programs write, by their arguments. This module must never claim
//! that an unknown program writes nothing: it skips such a program, which is then subject to the
//! sandbox.

use super::tokens::ShellWord;
use super::{Input, ShellAction, ShellPlace, ShellScan};

/// Programs that write, or may write, every plain argument.
const ALL: [&str; 19] = [
    "mkdir", "touch", "tee", "truncate", "mkfifo", "mknod", "sponge", "split", "csplit", "patch",
    "gzip", "gunzip", "bzip2", "xz", "zstd", "zip", "ed", "ex", "mktemp",
];
/// Programs that remove or change every plain argument with everything beneath it.
const SWEEP: [&str; 12] = [
    "rm", "rmdir", "mv", "shred", "unlink", "chmod", "chown", "chgrp", "chattr", "setfacl", "ln",
    "link",
];
/// Programs that write their last argument.
const LAST: [&str; 4] = ["cp", "install", "rsync", "scp"];
/// Programs that run the rest of their line as a command.
const BEFORE: [&str; 22] = [
    "sudo", "doas", "env", "nohup", "time", "nice", "ionice", "exec", "command", "builtin",
    "timeout", "setsid", "stdbuf", "flock", "strace", "unshare", "chroot", "coproc", "busybox",
    "toybox", "xargs", "parallel",
];
/// Reserved words of the shell that precede a command.
const RESERVED: [&str; 9] = ["!", "{", "if", "then", "else", "elif", "do", "while", "until"];
const SHELLS: [&str; 10] =
    ["sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "su", "watch", "script"];
/// Options of interpreters that are followed by code.
const CODE: [(&str, &[&str]); 9] = [
    ("python", &["-c"]),
    ("pypy", &["-c"]),
    ("perl", &["-e", "-E", "-i", "-pe", "-ne", "-pi"]),
    ("ruby", &["-e", "-i", "-pe", "-ne", "-pi"]),
    ("node", &["-e", "-p", "--eval", "--print", "-pe"]),
    ("deno", &["eval"]),
    ("bun", &["-e", "--eval"]),
    ("php", &["-r"]),
    ("lua", &["-e"]),
];
/// Options that name an output file, by program.
const OUTPUT: [(&str, &[&str]); 8] = [
    ("curl", &["-o", "--output", "-D", "--dump-header", "-c", "--cookie-jar", "--output-dir"]),
    ("wget", &["-O", "--output-document", "-P", "--directory-prefix", "-o", "-a"]),
    ("tar", &["-C", "--directory", "-f", "--file"]),
    ("unzip", &["-d"]),
    ("sort", &["-o", "--output"]),
    ("gcc", &["-o"]),
    ("cc", &["-o"]),
    ("rustc", &["-o", "--out-dir"]),
];
impl ShellScan {
    /// Scans one command, including its wrappers. `input` is a pipe if the command reads the output
    /// of another one.
    pub(super) fn command(
        &mut self,
        mut words: &[ShellWord],
        input: Input,
        depth: usize,
    ) -> Result<(), String> {
        let mut fed = false;
        while let [first, rest @ ..] = words {
            let assigned = first.text.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            });
            let name = program(&first.text);
            if BEFORE.contains(&name) {
                fed |= ["xargs", "parallel"].contains(&name);
                // The wrapper's own options may have values, so the first known program is taken as
                // the command that it runs.
                let next = rest.iter().position(|word| known(program(&word.text)));
                words = next.map_or(&[], |at| &rest[at..]);
                if rest
                    .iter()
                    .any(|word| word.text.starts_with("-S") || word.text.starts_with("--split"))
                {
                    return Err("a command in one word (-S) cannot be judged".to_owned());
                }
            } else if assigned || RESERVED.contains(&first.text.as_str()) {
                words = rest;
            } else if name == "function" {
                words = rest.get(1..).unwrap_or_default();
            } else {
                break;
            }
        }
        let [first, rest @ ..] = words else {
            return Ok(());
        };
        if first.open
            && first.text.contains(['$', '`', '*', '?', '[', '{', '~'])
            && first.text != "["
            && first.text != "[["
        {
            self.found.push(ShellPlace::Unknown(first.text.clone()));
            return Ok(());
        }
        let name = program(&first.text);
        if fed && known(name) && !shell(name) {
            return Err(format!("what {name} is given by xargs cannot be known before it runs"));
        }
        self.program(name, rest, input, depth)
    }

    fn program(
        &mut self,
        name: &str,
        rest: &[ShellWord],
        input: Input,
        depth: usize,
    ) -> Result<(), String> {
        let plain = plain(rest);
        match name {
            "cd" | "pushd" => {
                let home = ShellWord { text: "~".to_owned(), open: true };
                self.goes(plain.first().copied().unwrap_or(&home))?;
            }
            "popd" => self.goes(&ShellWord { text: "-".to_owned(), open: false })?,
            "eval" | "trap" => {
                if rest.iter().any(|word| word.open) {
                    self.found.push(ShellPlace::Unknown(name.to_owned()));
                }
                let all: Vec<&str> = match name {
                    "trap" => plain.first().map(|word| word.text.as_str()).into_iter().collect(),
                    _ => rest.iter().map(|word| word.text.as_str()).collect(),
                };
                self.line(&all.join(" "), depth + 1)?;
            }
            "sed" => self.sed(rest, &plain)?,
            "awk" | "gawk" | "mawk" | "nawk" => {
                let writes = |word: &&ShellWord| {
                    word.text.contains("system")
                        || word.text.contains("print") && word.text.contains(['>', '|'])
                };
                let in_place =
                    rest.iter().any(|word| word.text == "inplace" || word.text.starts_with("-i"));
                if in_place || rest.iter().any(|word| writes(&word)) {
                    return Err(
                        "what this awk writes cannot be judged; use the Edit tool".to_owned()
                    );
                }
            }
            "dd" => {
                for word in rest {
                    if let Some(text) = word.text.strip_prefix("of=") {
                        let target = ShellWord { text: text.to_owned(), open: word.open };
                        self.place(ShellAction::Write, &target);
                    }
                }
            }
            "find" => self.find(rest, depth)?,
            "git" => self.git(rest)?,
            "crontab" | "at" | "batch" if rest.iter().all(|word| word.text != "-l") => {
                return Err(format!("{name} changes what runs later"));
            }
            name if SHELLS.contains(&name) => {
                // `script` also writes its recording to a file.
                if name == "script" {
                    self.places(ShellAction::Write, plain.iter().copied());
                }
                self.shell(name, rest, &plain, input, depth)?;
            }
            name if ALL.contains(&name) => self.places(ShellAction::Write, plain.iter().copied()),
            name if SWEEP.contains(&name) => {
                // The mode or owner is not a path.
                let first = plain.first().map_or("", |word| word.text.as_str());
                let skip = match name {
                    "chmod" => is_mode(first),
                    "chown" | "chgrp" | "setfacl" => !option(rest, "--reference"),
                    _ => false,
                };
                self.places(ShellAction::Sweep, plain.iter().skip(usize::from(skip)).copied());
                self.places(ShellAction::Write, &into(rest));
            }
            name if LAST.contains(&name) => {
                let all =
                    name == "install" && rest.iter().any(|word| cluster(&word.text, 'd').is_some());
                let into = into(rest);
                match (name, into.is_empty()) {
                    ("cp" | "install", false) => self.places(ShellAction::Write, &into),
                    _ if all => self.places(ShellAction::Write, plain.iter().copied()),
                    _ => self.places(ShellAction::Write, plain.last().copied()),
                }
            }
            _ => {
                self.code(name, rest, input, &plain)?;
                let outputs = OUTPUT.iter().filter(|(program, _)| *program == name);
                for option in outputs.flat_map(|(_, options)| *options) {
                    self.places(ShellAction::Write, &values(rest, option));
                }
            }
        }
        Ok(())
    }

    /// Scans the commands that a shell is given in the line, and never those that it reads from
    /// elsewhere.
    fn shell(
        &mut self,
        name: &str,
        rest: &[ShellWord],
        plain: &[&ShellWord],
        input: Input,
        depth: usize,
    ) -> Result<(), String> {
        let mut reported = false;
        for (at, word) in rest.iter().enumerate() {
            let after = at > 0 && cluster(&rest[at - 1].text, 'c').is_some();
            if after || word.text.contains(' ') {
                reported = true;
                if word.open {
                    self.found.push(ShellPlace::Unknown(word.text.clone()));
                }
                self.line(&word.text, depth + 1)?;
            }
        }
        let reads = input == Input::Pipe && (plain.is_empty() || option(rest, "-s"));
        match reads && !reported {
            true => Err(format!("what {name} reads from another command cannot be judged")),
            false => Ok(()),
        }
    }

    /// Scans an interpreter that receives its code in the line or from another command.
    fn code(
        &mut self,
        name: &str,
        rest: &[ShellWord],
        input: Input,
        plain: &[&ShellWord],
    ) -> Result<(), String> {
        let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let Some((_, options)) = CODE.iter().find(|(known, _)| *known == bare) else {
            return Ok(());
        };
        let given = rest.iter().any(|word| {
            options.iter().any(|option| {
                word.text == *option || (option.len() == 2 && word.text.starts_with(option))
            })
        });
        let reads =
            input == Input::Pipe && (plain.is_empty() || rest.iter().any(|word| word.text == "-"));
        match given || reads {
            true => Err(format!(
                "code given to {name} in the line cannot be judged; write it to a file with the Write tool"
            )),
            false => Ok(()),
        }
    }

    fn sed(&mut self, rest: &[ShellWord], plain: &[&ShellWord]) -> Result<(), String> {
        let in_place = rest
            .iter()
            .any(|word| word.text.starts_with("--in-place") || cluster(&word.text, 'i').is_some());
        // sed writes with `w FILE` and runs with `e COMMAND`, at the start of a command or after
        // another one.
        let writes = |text: &str| {
            text.match_indices(['w', 'W', 'e']).any(|(at, _)| {
                let before = text[..at].chars().next_back();
                let after = text[at + 1..].chars().next();
                before.is_none_or(|c| !c.is_alphabetic())
                    && after.is_none_or(|c| c == ' ' || c == '\t' || c == '/' || c == '\n')
                    && !text[at..].starts_with("e/")
            })
        };
        if !in_place {
            let scripts = rest.iter().filter(|word| word.text.contains(['w', 'W', 'e']));
            let mut scripts = scripts.filter(|word| {
                Some(word.text.as_str()) == plain.first().map(|first| first.text.as_str())
                    || word.text.contains(' ')
            });
            return match scripts.any(|word| writes(&word.text)) {
                true => Err("what this sed writes cannot be judged; use the Edit tool".to_owned()),
                false => Ok(()),
            };
        }
        // With `-e` or `-f`, the script is not a plain word.
        let skip = !rest.iter().any(|word| {
            ["-e", "-f", "--expression", "--file"]
                .iter()
                .any(|option| word.text.starts_with(option))
        });
        self.places(ShellAction::Write, plain.iter().skip(usize::from(skip)).copied());
        Ok(())
    }

    fn find(&mut self, rest: &[ShellWord], depth: usize) -> Result<(), String> {
        let globals =
            rest.iter().take_while(|word| ["-H", "-L", "-P"].contains(&word.text.as_str())).count();
        let rest = &rest[globals..];
        let count = rest.iter().take_while(|word| !word.text.starts_with(['-', '(', '!'])).count();
        let here = [ShellWord { text: ".".to_owned(), open: false }];
        let starts = if count == 0 { &here[..] } else { &rest[..count] };
        for (at, word) in rest.iter().enumerate() {
            match word.text.as_str() {
                "-delete" => self.places(ShellAction::Sweep, starts),
                "-fprint" | "-fprint0" | "-fprintf" | "-fls" => {
                    self.places(ShellAction::Write, rest.get(at + 1))
                }
                "-exec" | "-execdir" | "-ok" | "-okdir" => {
                    let line: Vec<ShellWord> = rest[at + 1..]
                        .iter()
                        .take_while(|word| ![";", "+"].contains(&word.text.as_str()))
                        .flat_map(|word| match word.text.as_str() {
                            "{}" => starts.to_vec(),
                            _ => vec![word.clone()],
                        })
                        .collect();
                    let runs = line.first().map_or("", |word| program(&word.text));
                    if shell(runs) || runs == "find" {
                        return Err(format!(
                            "what find gives to {runs} cannot be known before it runs"
                        ));
                    }
                    self.command(&line, Input::Other, depth + 1)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns the name of a program without its folder.
fn program(text: &str) -> &str {
    text.rsplit('/').next().unwrap_or(text)
}

fn shell(name: &str) -> bool {
    SHELLS.contains(&name) || name == "eval"
}

/// Checks whether this module has rules for a program.
fn known(name: &str) -> bool {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    ["cd", "pushd", "trap", "sed", "dd", "find", "git", "awk", "gawk", "mawk", "nawk", "crontab"]
        .contains(&name)
        || shell(name)
        || ALL.contains(&name)
        || SWEEP.contains(&name)
        || LAST.contains(&name)
        || BEFORE.contains(&name)
        || CODE.iter().any(|(known, _)| *known == bare)
        || OUTPUT.iter().any(|(known, _)| *known == name)
}

/// Returns the words that are not options. All words after `--` are plain words.
pub(super) fn plain(rest: &[ShellWord]) -> Vec<&ShellWord> {
    let end = rest.iter().position(|word| word.text == "--").unwrap_or(rest.len());
    let before = rest[..end].iter().filter(|word| !word.text.starts_with('-') || word.text == "-");
    before.chain(rest.iter().skip(end + 1)).collect()
}

fn option(rest: &[ShellWord], name: &str) -> bool {
    rest.iter().any(|word| word.text.starts_with(name))
}

/// Returns the text that follows `letter` in a group of short options.
fn cluster(text: &str, letter: char) -> Option<&str> {
    let group = text.strip_prefix('-').filter(|group| !group.starts_with('-'))?;
    group.split_once(letter).map(|(_, after)| after)
}

/// Returns the folders that `-t` and `--target-directory` name.
fn into(rest: &[ShellWord]) -> Vec<ShellWord> {
    let mut found = values(rest, "--target-directory");
    for (at, word) in rest.iter().enumerate() {
        match cluster(&word.text, 't') {
            Some("") => found.extend(rest.get(at + 1).cloned()),
            Some(after) => found.push(ShellWord { text: after.to_owned(), open: word.open }),
            None => {}
        }
    }
    found
}

/// Returns the values of an option: after `=`, attached to a short option, or as the next word.
pub(super) fn values(rest: &[ShellWord], option: &str) -> Vec<ShellWord> {
    let mut found = Vec::new();
    for (at, word) in rest.iter().enumerate() {
        let Some(after) = word.text.strip_prefix(option) else {
            continue;
        };
        let value = match after.strip_prefix('=') {
            Some(value) => Some(value),
            None if after.is_empty() => None,
            None if !option.starts_with("--") => Some(after),
            None => continue,
        };
        match value {
            Some(value) => found.push(ShellWord { text: value.to_owned(), open: word.open }),
            None => found.extend(rest.get(at + 1).cloned()),
        }
    }
    found
}

/// Checks whether a word is a file mode in the syntax of chmod.
fn is_mode(text: &str) -> bool {
    let octal = !text.is_empty() && text.chars().all(|c| c.is_digit(8));
    let named =
        text.contains(['+', '-', '=']) && text.chars().all(|c| "ugoarwxXst+-=,".contains(c));
    octal || named
}
