//! Classifies the command lines of sessions: which ones check, commit or only read, and what they
//! are about.
//!
//! The results are used only to analyze sessions. This module must never decide what may run.

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// The user asked for something.
    Prompt,
    /// The model replied.
    Answer,
    /// A hook added context.
    Injection,
    /// A file was read, or files were searched.
    Read,
    /// A file was changed or created.
    Edit,
    /// A build, a test or another check ran.
    Check,
    /// A commit, a push or a merge request was made.
    Commit,
    /// Any other command or tool.
    Other,
}

/// Programs that check the work, each with the first arguments that make it a check. If the list is
/// empty, every use is a check.
const CHECKS: [(&str, &[&str]); 30] = [
    ("cargo", &["test", "build", "check", "clippy", "nextest", "fmt", "run"]),
    ("go", &["test", "build", "vet"]),
    ("npm", &["test", "run", "t"]),
    ("pnpm", &["test", "run", "build", "lint", "typecheck", "t"]),
    ("yarn", &["test", "run", "build", "lint", "typecheck"]),
    ("bun", &["test", "run"]),
    ("deno", &["test", "check", "lint"]),
    ("npx", &["tsc", "jest", "vitest", "eslint", "playwright", "mocha", "prettier"]),
    ("mise", &["run"]),
    ("just", &[]),
    ("make", &[]),
    ("ninja", &[]),
    ("pytest", &[]),
    ("tox", &[]),
    ("mypy", &[]),
    ("ruff", &["check"]),
    ("pyright", &[]),
    ("tsc", &[]),
    ("eslint", &[]),
    ("jest", &[]),
    ("vitest", &[]),
    ("golangci-lint", &[]),
    ("mvn", &[]),
    ("gradle", &[]),
    ("gradlew", &[]),
    ("dotnet", &["test", "build"]),
    ("swift", &["test", "build"]),
    ("mix", &["test", "compile"]),
    ("rspec", &[]),
    ("shellcheck", &[]),
];
/// Programs that only read.
const READERS: [&str; 16] = [
    "cat", "head", "tail", "less", "ls", "find", "grep", "rg", "fd", "wc", "tree", "stat", "file",
    "diff", "pwd", "jq",
];
/// Programs whose first argument is often only a group of commands.
const DEEP: [&str; 11] =
    ["gh", "docker", "kubectl", "aws", "gcloud", "npm", "pnpm", "yarn", "mise", "npx", "just"];
/// Programs that only start another program.
const WRAPPERS: [&str; 6] = ["sudo", "time", "env", "nice", "timeout", "command"];

/// Returns the simple commands in a line, without assignments, wrappers and shell built-ins such as
/// `cd` and `echo`.
pub fn commands(line: &str) -> Vec<Vec<&str>> {
    // A here-document is input, not a command.
    let head = line.split("<<").next().unwrap_or(line);
    let mut found = Vec::new();
    for part in split(head) {
        let mut words: Vec<&str> = part.split_whitespace().collect();
        // A command whose output is assigned to a variable is not the subject of the line.
        if words.first().is_some_and(|word| word.contains("=$(") || word.contains("=`")) {
            continue;
        }
        let skip = |word: &&str| {
            let name = word.split('=').next().unwrap_or_default();
            let assigns = word.contains('=')
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            assigns || WRAPPERS.contains(word) || word.parse::<u64>().is_ok()
        };
        let first = words.iter().position(|word| !skip(word)).unwrap_or(words.len());
        words.drain(..first);
        if !words.is_empty() && !matches!(words[0], "cd" | "echo" | "true" | "export" | "set") {
            found.push(words);
        }
    }
    found
}

/// Splits a line at `&`, `|`, `;` and line feeds outside quotes.
fn split(line: &str) -> Vec<&str> {
    let (mut parts, mut from, mut quote) = (Vec::new(), 0, None);
    for (at, byte) in line.bytes().enumerate() {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'&' | b'|' | b';' | b'\n') => {
                // `2>&1` and `&>` are redirections.
                let before = line.as_bytes().get(at.wrapping_sub(1));
                let after = line.as_bytes().get(at + 1);
                if byte == b'&' && (before == Some(&b'>') || after == Some(&b'>')) {
                    continue;
                }
                parts.push(&line[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&line[from..]);
    parts
}

/// Returns the name of a program without its folder.
fn name<'l>(words: &[&'l str]) -> &'l str {
    let word = words.first().copied().unwrap_or_default();
    word.rsplit('/').next().unwrap_or(word)
}

fn is_check(words: &[&str]) -> bool {
    let name = name(words);
    let python = name.starts_with("python") && words.get(1) == Some(&"-m");
    let words = if python { &words[2..] } else { words };
    let name = if python { words.first().copied().unwrap_or_default() } else { name };
    let first = words.iter().skip(1).find(|word| !word.starts_with(['-', '+']));
    CHECKS.iter().any(|(program, with)| {
        *program == name && (with.is_empty() || first.is_some_and(|first| with.contains(first)))
    })
}

/// Returns the action of a command line: that of its most significant command.
pub fn action(line: &str) -> Action {
    let all = commands(line);
    let any = |is: &dyn Fn(&[&str]) -> bool| all.iter().any(|words| is(words));
    let commits = |words: &[&str]| {
        matches!(
            (name(words), words.get(1), words.get(2)),
            ("git", Some(&("commit" | "push")), _)
                | ("gh" | "glab", Some(&("pr" | "mr")), Some(&("create" | "merge")))
        )
    };
    let reads = |words: &[&str]| {
        let looks = ["status", "log", "diff", "show", "branch", "blame", "ls-files"];
        let git = name(words) == "git" && words.get(1).is_some_and(|verb| looks.contains(verb));
        git || READERS.contains(&name(words))
    };
    if any(&commits) {
        Action::Commit
    } else if any(&is_check) {
        Action::Check
    } else if !all.is_empty() && all.iter().all(|words| reads(words)) {
        Action::Read
    } else {
        Action::Other
    }
}

/// Returns the words of the command that a line is about: the first check, or else the first
/// command.
fn main(line: &str) -> Option<Vec<&str>> {
    let mut all = commands(line);
    let at = all.iter().position(|words| is_check(words)).unwrap_or(0);
    (at < all.len()).then(|| all.swap_remove(at))
}

/// Returns the program that a line is about, or `shell` if its name is missing or unusual.
pub fn program(line: &str) -> String {
    let found = main(line).map(|words| name(&words).to_owned());
    let plain = |name: &String| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte))
    };
    found.filter(plain).unwrap_or_else(|| "shell".to_owned())
}

/// Returns the program that a line is about and its first arguments, which calls with the same
/// intent share.
pub fn subject(line: &str) -> String {
    let Some(words) = main(line) else { return String::new() };
    let name = name(&words);
    let count = if DEEP.contains(&name) { 2 } else { 1 };
    // A quoted string may contain spaces, so the words after it cannot be separated reliably.
    let words = words.iter().skip(1).take_while(|word| !word.contains(['"', '\'', '`']));
    let plain = words.filter(|word| !word.starts_with('-') && !word.contains(['/', '$', '>']));
    let rest: Vec<&str> = plain.copied().take(count).collect();
    [&[name], rest.as_slice()].concat().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_classified() {
        for (line, is, about) in [
            ("cargo test --workspace 2>&1 | tail -5", Action::Check, "cargo test"),
            ("cd x && RUST_LOG=1 cargo clippy", Action::Check, "cargo clippy"),
            ("mise run fmt && mise run lint", Action::Check, "mise run fmt"),
            ("python3 -m pytest tests/a.py -q", Action::Check, "python3 pytest"),
            ("./gradlew test", Action::Check, "gradlew test"),
            ("npx tsc --noEmit", Action::Check, "npx tsc"),
            ("git status && git diff", Action::Read, "git status"),
            ("grep -rn 'a && b' src | head", Action::Read, "grep"),
            ("git add -A && git commit -m 'x; make test'", Action::Commit, "git add"),
            (
                "git commit -m \"$(cat <<'EOF'\nfix: make test\nEOF\n)\"",
                Action::Commit,
                "git commit",
            ),
            ("gh pr create --title x", Action::Commit, "gh pr create"),
            ("rm -rf build", Action::Other, "rm build"),
            ("", Action::Other, ""),
            ("echo hi", Action::Other, ""),
        ] {
            assert_eq!((action(line), subject(line).as_str()), (is, about), "{line}");
        }
    }
}
