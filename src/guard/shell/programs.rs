//! A table of common programs and the arguments that name the paths they write. The table covers
//! only everyday forms, because the sandbox enforces the limits. An unknown program is skipped,
//! even though it may write.

use super::tokens::ShellWord;
use super::{Input, ShellAction, ShellPlace, ShellScan};

/// How a program's arguments specify the paths that it writes.
///
/// Options are written as in the command. `-*x` is `x` in any group of short options.
#[derive(Clone, Copy)]
enum Rule {
    /// Performs this action on every plain argument, and writes to the folder given with `-t`.
    All(ShellAction),
    /// Changes every plain argument after the first one, which is a mode or an owner.
    AfterFirst,
    /// Writes to the folder given with `-t`, or else to its last plain argument.
    Last,
    /// Writes to the paths given as values of these options.
    Options(&'static str),
    /// Runs the rest of its line as a command.
    Wrapper,
    /// Runs the rest of its line with additional arguments from its input.
    Feeder,
    /// Runs lines received as arguments or on standard input.
    Shell,
    /// Runs code that follows these options or comes from standard input.
    Code(&'static str),
    /// A separate function handles the program.
    Own(fn(&mut ShellScan, &ShellCall<'_>) -> Result<(), String>),
}

const RULES: [(&str, Rule); 19] = [
    (
        "mkdir touch tee truncate mkfifo mknod sponge split csplit patch mktemp ed ex \
         gzip gunzip bzip2 xz zstd zip",
        Rule::All(ShellAction::Write),
    ),
    ("rm rmdir mv shred unlink chattr ln link", Rule::All(ShellAction::Sweep)),
    ("chmod chown chgrp setfacl", Rule::AfterFirst),
    ("cp install rsync scp", Rule::Last),
    ("curl", Rule::Options("-*o --output -D --dump-header -c --cookie-jar --output-dir")),
    ("wget", Rule::Options("-*O --output-document -P --directory-prefix -o -a")),
    ("tar", Rule::Options("-*C --directory")),
    ("dd", Rule::Options("of=")),
    (
        "sudo doas env nohup time nice ionice exec command builtin timeout setsid stdbuf flock \
         strace unshare chroot coproc busybox toybox function",
        Rule::Wrapper,
    ),
    ("xargs parallel", Rule::Feeder),
    ("sh bash dash zsh ksh fish ash su watch script", Rule::Shell),
    ("python pypy", Rule::Code("-c")),
    ("perl ruby", Rule::Code("-e -E -i -pe -ne -pi")),
    ("node bun", Rule::Code("-e -p --eval --print")),
    ("eval trap", Rule::Own(ShellScan::eval)),
    ("cd pushd popd", Rule::Own(ShellScan::cd)),
    ("sed", Rule::Own(ShellScan::sed)),
    ("find", Rule::Own(ShellScan::find)),
    ("git", Rule::Own(ShellScan::git)),
];
/// Shell reserved words that precede a command.
const RESERVED: [&str; 9] = ["!", "{", "if", "then", "else", "elif", "do", "while", "until"];

/// A command without its wrappers.
pub(super) struct ShellCall<'a> {
    pub(super) name: &'a str,
    pub(super) rest: &'a [ShellWord],
    pub(super) input: Input,
    pub(super) depth: usize,
}

impl ShellCall<'_> {
    /// Returns the words that are not options. All words after `--` are plain words.
    pub(super) fn plain(&self) -> Vec<&ShellWord> {
        let end = self.rest.iter().position(|word| word.text == "--").unwrap_or(self.rest.len());
        let (before, after) = self.rest.split_at(end);
        let before = before.iter().filter(|word| !word.text.starts_with('-') || word.text == "-");
        before.chain(after.iter().skip(1)).collect()
    }

    pub(super) fn has(&self, options: &str) -> bool {
        let mut options = options.split(' ');
        options.any(|option| self.rest.iter().any(|word| after(&word.text, option).is_some()))
    }

    /// Returns the values of options: after `=`, attached to a short option, or as the next word.
    pub(super) fn values(&self, options: &str) -> Vec<ShellWord> {
        let value = |(at, word): (usize, &ShellWord), option: &str| {
            let attached = after(&word.text, option)?;
            match attached.strip_prefix('=') {
                Some(value) => Some(ShellWord { text: value.to_owned(), open: word.open }),
                None if attached.is_empty() => self.rest.get(at + 1).cloned(),
                None if option.starts_with("--") => None,
                None => Some(ShellWord { text: attached.to_owned(), open: word.open }),
            }
        };
        let of = |option| self.rest.iter().enumerate().filter_map(move |at| value(at, option));
        options.split(' ').flat_map(of).filter(|word| word.text != "-").collect()
    }

    /// Returns whether the only code that the program can run is the output of another command.
    fn reads_pipe(&self) -> bool {
        let plain = self.plain();
        self.input == Input::Pipe && (plain.is_empty() || self.has("-s") || plain[0].text == "-")
    }

    /// Refuses the command, with a message for the model.
    fn refused<T>(&self) -> Result<T, String> {
        Err(format!(
            "the effect of {} cannot be determined here; use the Edit tool, or write a file with the Write tool",
            self.name
        ))
    }
}

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
            let text = first.text.as_str();
            let found = rule(program(text));
            if let Some(Rule::Wrapper | Rule::Feeder) = found {
                fed |= matches!(found, Some(Rule::Feeder));
                // The wrapper's own options may have values, so the first known program is assumed
                // to be the command that the wrapper runs.
                let next = rest.iter().position(|word| rule(program(&word.text)).is_some());
                words = &rest[next.unwrap_or(rest.len())..];
            } else if assigns(text) || RESERVED.contains(&text) {
                words = rest;
            } else if first.expands(text) && !["[", "[["].contains(&text) {
                self.found.push(ShellPlace::Unknown(text.to_owned()));
                return Ok(());
            } else {
                let call = ShellCall { name: program(text), rest, input, depth };
                return match found {
                    // The paths come from the input, so they are unknown.
                    Some(rule) if fed && !matches!(rule, Rule::Shell) => call.refused(),
                    Some(rule) => self.call(rule, &call),
                    None => Ok(()),
                };
            }
        }
        Ok(())
    }

    fn call(&mut self, rule: Rule, call: &ShellCall<'_>) -> Result<(), String> {
        let plain = call.plain();
        let into = call.values("-*t --target-directory");
        match rule {
            Rule::All(act) => {
                self.places(act, plain);
                self.places(ShellAction::Write, &into);
            }
            Rule::AfterFirst => {
                let skip = usize::from(plain.len() > 1);
                self.places(ShellAction::Sweep, plain.into_iter().skip(skip));
            }
            Rule::Last if into.is_empty() => self.places(ShellAction::Write, plain.last().copied()),
            Rule::Last => self.places(ShellAction::Write, &into),
            Rule::Options(options) => self.places(ShellAction::Write, &call.values(options)),
            Rule::Shell => return self.shell(call),
            Rule::Code(options) if call.has(options) || call.reads_pipe() => return call.refused(),
            Rule::Wrapper | Rule::Feeder | Rule::Code(_) => {}
            Rule::Own(function) => return function(self, call),
        }
        Ok(())
    }

    /// Scans the commands that the line passes to a shell, but not those that the shell reads from
    /// elsewhere.
    fn shell(&mut self, call: &ShellCall<'_>) -> Result<(), String> {
        let mut scanned = false;
        for (at, word) in call.rest.iter().enumerate() {
            let follows = at > 0 && after(&call.rest[at - 1].text, "-*c").is_some();
            if follows || word.text.contains(' ') {
                scanned = true;
                self.line_in(word, call.depth)?;
            }
        }
        if call.reads_pipe() && !scanned { call.refused() } else { Ok(()) }
    }

    fn eval(&mut self, call: &ShellCall<'_>) -> Result<(), String> {
        let texts: Vec<&str> = call.rest.iter().map(|word| word.text.as_str()).collect();
        let open = call.rest.iter().any(|word| word.open);
        self.line_in(&ShellWord { text: texts.join(" "), open }, call.depth)
    }

    /// Scans a line that is given as an argument.
    fn line_in(&mut self, word: &ShellWord, depth: usize) -> Result<(), String> {
        if word.open {
            self.found.push(ShellPlace::Unknown(word.text.clone()));
        }
        self.line(&word.text, depth + 1)
    }

    fn cd(&mut self, call: &ShellCall<'_>) -> Result<(), String> {
        let elsewhere = ShellWord::literal("-");
        self.add_folder(call.plain().first().copied().unwrap_or(&elsewhere))
    }

    fn sed(&mut self, call: &ShellCall<'_>) -> Result<(), String> {
        if call.has("-*i --in-place") {
            // Without `-e` or `-f`, the script is the first plain word.
            let skip = usize::from(!call.has("-e -f --expression --file"));
            self.places(ShellAction::Write, call.plain().into_iter().skip(skip));
        }
        Ok(())
    }

    fn find(&mut self, call: &ShellCall<'_>) -> Result<(), String> {
        let rest = call.rest;
        let count = rest.iter().take_while(|word| !word.text.starts_with(['-', '(', '!'])).count();
        let here = [ShellWord::literal(".")];
        let starts = if count == 0 { &here[..] } else { &rest[..count] };
        for (at, word) in rest.iter().enumerate() {
            match word.text.as_str() {
                "-delete" => self.places(ShellAction::Sweep, starts),
                "-exec" | "-execdir" | "-ok" | "-okdir" => {
                    let words = rest[at + 1..].iter();
                    let words = words.take_while(|word| ![";", "+"].contains(&word.text.as_str()));
                    let line = words.flat_map(|word| match word.text.as_str() {
                        "{}" => starts,
                        _ => std::slice::from_ref(word),
                    });
                    let line: Vec<ShellWord> = line.cloned().collect();
                    let runs = line.first().map_or("", |word| program(&word.text));
                    if runs == "find" || matches!(rule(runs), Some(Rule::Shell)) {
                        return call.refused();
                    }
                    self.command(&line, Input::Other, call.depth + 1)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns the rule for a program, if there is one. A version suffix in the program's name
/// (`python3.12`) is ignored.
fn rule(name: &str) -> Option<Rule> {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let listed = |names: &str| names.split(' ').any(|it| it == name || it == bare);
    RULES.iter().find(|(names, _)| listed(names)).map(|(_, rule)| *rule)
}

/// Returns the name of a program without its folder.
fn program(text: &str) -> &str {
    text.rsplit('/').next().unwrap_or(text)
}

/// Returns whether a word assigns a variable.
fn assigns(text: &str) -> bool {
    let name = text.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns the text that follows an option in a word, or `None` if the word is not this option.
fn after<'a>(text: &'a str, option: &str) -> Option<&'a str> {
    let Some(letter) = option.strip_prefix("-*") else {
        return text.strip_prefix(option);
    };
    let group = text.strip_prefix('-').filter(|group| !group.starts_with('-'))?;
    group.split_once(letter).map(|(_, after)| after)
}
