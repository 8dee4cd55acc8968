//! Reduces an error to a signature by which the same error is recognized in other sessions.
//!
//! ```text
//! output ─ refused by a person or a rule? ──> no error
//!        ├ a compiler's code ──────────────> error:<language>:<code>
//!        └ the most telling line, masked ──> error:<program>:<16 hex of the masked line>
//! ```
//!
//! A telling line describes a failure; wrapper lines such as "Exit code 1" and stack headers do
//! not. This module must never group two errors whose masked lines differ, unless both have the
//! same compiler code.

use runner_engine::digest::Digest;
use runner_text::redact::Redacted;

use super::shell;

/// Maximum length of a masked line in bytes.
const LONGEST: usize = 160;
/// Maximum number of lines to inspect at each end of the output.
const LINES: usize = 400;

/// The identity of an error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signature {
    /// `error:<language>:<code>`, or `error:<program>:<hash>`.
    pub trigger: String,
    /// The masked line, of at most 160 bytes.
    pub line: String,
    /// Whether the line describes what failed. An exit code alone does not.
    pub telling: bool,
}

/// Returns whether a failed call was refused by the user or by a rule, which is not an error.
pub fn refusal(text: &str) -> bool {
    let head = &text[..text.floor_char_boundary(400)];
    [
        "doesn't want to proceed with this tool use",
        "doesn't want to take this action",
        "tool use was rejected",
        "requested permissions to",
        "Permission to use",
        "Request interrupted by user",
        "hook denied",
        "rejected by user",
    ]
    .iter()
    .any(|refused| head.contains(refused))
}

/// Returns whether a check's output reports a failure. A pipe may hide the check's exit code.
pub fn check_failed(text: &str) -> bool {
    let fails = |line: &str| {
        let line = line.trim();
        line.starts_with("--- FAIL")
            || line.starts_with("FAIL\t")
            || line.starts_with("test result: FAILED")
            || line.starts_with("error: could not compile")
            || line.starts_with("npm ERR!")
            || line.starts_with("make: *** ")
            || line.starts_with("error[E")
            || line.contains("): error TS")
            || line.starts_with("FAILED tests/")
            || line.starts_with("Tests:") && line.contains(" failed")
    };
    text.lines().any(fails)
}

/// Returns the signature of the error that a call's output describes.
pub fn signature(tool: &str, command: &str, text: &str) -> Signature {
    let count = text.lines().count();
    let shown = |at: usize| at < LINES || at + LINES >= count;
    let lines = || {
        let lines = text.lines().enumerate().filter(|(at, _)| shown(*at));
        lines.map(|(_, line)| plain(line)).filter(|line| !is_wrapper(line))
    };
    // The first code identifies the error, because a compiler's first error often causes the
    // others.
    let coded = lines().find_map(|line| code(&line).map(|code| (code, mask(&line))));
    if let Some((trigger, line)) = coded {
        return Signature { trigger, line, telling: true };
    }
    let telling = (1..=3).rev().find_map(|least| lines().find(|line| strength(line) >= least));
    let line = telling.clone().or_else(|| lines().next()).unwrap_or_default();
    let program = program(tool, command, text, &line);
    let (line, telling) = match mask(&line) {
        masked if masked.is_empty() => (exit_code(text), false),
        masked => (masked, telling.is_some()),
    };
    let hash = Digest::of(line.as_bytes()).short();
    Signature { trigger: format!("error:{program}:{hash}"), line, telling }
}

/// Returns the name of the program to which an error is attributed: `shell` for a command that the
/// shell could not run, the command's program for any other command, the tool for an MCP tool, and
/// `agent` for the agent's own tools and for tool-use errors.
fn program(tool: &str, command: &str, text: &str, line: &str) -> String {
    let by_shell = ["(eval):", "bash: ", "zsh: ", "sh: ", "/bin/sh: ", "/bin/bash: "];
    match tool {
        _ if text.trim_start().starts_with("<tool_use_error>") => "agent".to_owned(),
        "Bash" if by_shell.iter().any(|head| line.starts_with(head)) => "shell".to_owned(),
        "Bash" => shell::program(command),
        tool if tool.starts_with("mcp__") => tool.to_owned(),
        _ => "agent".to_owned(),
    }
}

/// Returns the line with the exit code, or `no output` if there is none.
fn exit_code(text: &str) -> String {
    let code = text.lines().find(|line| line.starts_with("Exit code "));
    code.map_or_else(|| "no output".to_owned(), |code| code.trim().to_owned())
}

/// Removes terminal colours, the agent program's tags, task runner labels, and surrounding
/// whitespace.
fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('\u{1b}') {
        text.push_str(&rest[..at]);
        let end = rest[at..]
            .find(|c: char| c.is_ascii_alphabetic())
            .map_or(rest.len(), |end| at + end + 1);
        rest = &rest[end..];
    }
    text.push_str(rest);
    let text = text.replace("<tool_use_error>", "").replace("</tool_use_error>", "");
    let text = text.trim();
    // "[lint] cmd/a.go:1: ..." and "[test:unit] ..."
    let label = text.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    let is_label = |name: &str| {
        name.len() < 40 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_:.".contains(&b))
    };
    match label {
        Some((name, rest)) if is_label(name) => rest.trim().to_owned(),
        _ => text.to_owned(),
    }
}

/// Returns whether a line does not itself describe an error, such as a heading or a stack frame.
fn is_wrapper(line: &str) -> bool {
    let heads = [
        "Exit code ",
        "Traceback (most recent",
        "Call log:",
        "Stack trace",
        "$ ",
        "### ",
        "Caused by:",
        "ERROR task failed",
        "=== RUN",
        "=== PAUSE",
        "=== CONT",
        "at ",
        "File \"",
        "from ",
        "npm ERR!",
        "npm error",
        "error Command failed",
        "make: ***",
        "failures:",
        "FAIL\t",
        "exit status ",
        "note: run with",
        "# ",
        "warning: ",
        "During handling",
        "error: test failed",
        "error: could not compile",
        "error: process didn't exit",
        "error: aborting due to",
    ];
    // "2 issues:" and "3 errors"
    let is_count = line.starts_with(|c: char| c.is_ascii_digit()) && line.split(' ').count() <= 3;
    line.is_empty()
        || is_count
        || line == "FAIL"
        || line == "FAILED"
        || line.bytes().all(|byte| b"^~-=_*. |".contains(&byte))
        || heads.iter().any(|head| line.starts_with(head))
}

/// Returns how clearly a line describes a failure: 3 if it names a failed test, 2 if it has the
/// form of an error message or a finding, 1 if it only contains a word for failure, and 0
/// otherwise.
fn strength(line: &str) -> u8 {
    let lower = line.to_lowercase();
    // A log record may mention an error without being one.
    if [" info ", " warn ", " debug "].iter().any(|level| lower.contains(level)) {
        return 0;
    }
    let test = line.starts_with("--- FAIL")
        || line.starts_with("FAILED ")
        || line.starts_with("\u{25cf} ")
        || (line.starts_with("test ") && line.ends_with("... FAILED"));
    if test {
        return 3;
    }
    let starts = [
        "error",
        "fatal",
        "panic",
        "fail ",
        "failed ",
        "e   ",
        "unknown ",
        "undefined",
        "assertionerror",
    ];
    let at = [
        " error: ",
        ": error ",
        ": error:",
        "panicked at",
        ": fatal",
        ": command not found",
        ": no such file",
        ": no module named ",
    ];
    let named = lower.split([':', ' ']).next().is_some_and(|word| {
        word.len() > 5 && (word.ends_with("error") || word.ends_with("exception"))
    });
    let states = starts.iter().any(|start| lower.starts_with(start))
        || at.iter().any(|it| lower.contains(it));
    if states || named || is_finding(line) {
        return 2;
    }
    let words = [
        "failed",
        "cannot",
        "can't",
        "could not",
        "not found",
        "no such",
        "denied",
        "refused",
        "invalid",
        "undefined",
        "timed out",
        "already exists",
        "did not",
        "unexpected",
        "missing",
        "conflict",
        "unrecognized",
        "does not",
        "no changes",
        "has been modified",
        "accepts ",
    ];
    u8::from(words.iter().any(|word| lower.contains(word)))
}

/// Returns whether a line is a compiler or linter finding: `file.ext:1:2: text`.
fn is_finding(line: &str) -> bool {
    let mut parts = line.splitn(4, ':');
    let file = parts.next().unwrap_or_default();
    let number = |part: Option<&str>| {
        part.is_some_and(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()))
    };
    let named = file.contains('.') && !file.contains(' ');
    named && number(parts.next()) && parts.next().is_some()
}

/// Returns the trigger for the compiler or linter code in a line, if there is one.
fn code(line: &str) -> Option<String> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    if let Some((_, rest)) = line.split_once("error TS") {
        let count = digits(rest);
        return (count >= 4).then(|| format!("error:typescript:TS{}", &rest[..count]));
    }
    if let Some((_, rest)) = line.split_once("error[E")
        && let Some((code, _)) = rest.split_once(']')
    {
        return (digits(code) == code.len() && code.len() == 4)
            .then(|| format!("error:rust:E{code}"));
    }
    if let Some((_, rest)) = line.split_once(": error CS") {
        let count = digits(rest);
        return (count == 4).then(|| format!("error:csharp:CS{}", &rest[..count]));
    }
    // shellcheck writes "SC2086 (info): ..." after carets and hyphens that point at the text.
    if let Some((before, rest)) = line.split_once("SC")
        && before.trim_end_matches(['^', '-', ' ', '[']).is_empty()
        && digits(rest) == 4
    {
        return Some(format!("error:shell:SC{}", &rest[..4]));
    }
    if !is_finding(line) && !line.trim_start().starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    // "a.py:1:2: F401 text", "a.go:1:2: G304: text (gosec)" and "a.go:1:2: text (nilerr)".
    let mut parts = line.splitn(4, ':');
    let file = parts.next().unwrap_or_default();
    let text = parts.nth(2).unwrap_or_default().trim();
    let word = text.split([' ', ':']).next().unwrap_or_default();
    let letters = word.bytes().take_while(u8::is_ascii_uppercase).count();
    let is_code = (1..=4).contains(&letters)
        && digits(&word[letters..]) >= 3
        && letters + digits(&word[letters..]) == word.len();
    let language = match file.rsplit('.').next() {
        Some("py" | "pyi") => "python",
        Some("go") => "go",
        _ => return None,
    };
    if is_code {
        return Some(format!("error:{language}:{word}"));
    }
    let linter =
        text.strip_suffix(')').and_then(|text| text.rsplit_once('(')).map(|(_, linter)| linter)?;
    let plain =
        !linter.is_empty() && linter.len() < 40 && linter.bytes().all(|b| b.is_ascii_lowercase());
    (plain && language == "go").then(|| format!("error:go:{linter}"))
}

/// Masks the volatile parts of a line: numbers, hexadecimal words, paths, URLs and quoted strings.
/// The result contains no secrets and is at most 160 bytes long.
pub fn mask(line: &str) -> String {
    let line = Redacted::of(line);
    let mut masked = String::with_capacity(line.len());
    let words = unquoted(&line);
    for word in words.split_inclusive(char::is_whitespace) {
        let (word, space) = word.split_at(word.trim_end().len());
        masked.push_str(&mask_word(word));
        masked.push_str(if space.is_empty() { "" } else { " " });
    }
    masked.truncate(masked.floor_char_boundary(LONGEST));
    masked.trim().to_owned()
}

/// Replaces quoted strings. An apostrophe within a word does not open a quote.
fn unquoted(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let close = match first {
            '"' | '`' => Some(first),
            '\'' if !before.is_alphanumeric() => Some('\''),
            _ => None,
        };
        let inner = &rest[first.len_utf8()..];
        // Some programs quote `like this'.
        let end = close.and_then(|close| inner.find(close));
        match end.or_else(|| inner.find('\'').filter(|_| first == '`')) {
            Some(end) => {
                out.push_str("<text>");
                before = '>';
                rest = &inner[end + 1..];
            }
            None => {
                out.push(first);
                before = first;
                rest = inner;
            }
        }
    }
    out
}

fn mask_word(word: &str) -> String {
    let core = word.trim_matches(|c: char| !c.is_alphanumeric() && !"/~_-.".contains(c));
    // A test or function name identifies the error.
    let is_name = core.starts_with("Test")
        || core.contains("::")
        || (core.contains('_') && !core.contains('/'));
    if core.is_empty() || is_name {
        return word.to_owned();
    }
    if core.contains("://") {
        return word.replace(core, "<url>");
    }
    let head = core.split(':').next().unwrap_or(core);
    if core.contains('/') || head.rsplit_once('.').is_some_and(|(_, end)| is_extension(end)) {
        return word.replace(core, "<path>");
    }
    let is_hex = |b: u8| b.is_ascii_hexdigit() || b == b'-';
    if core.len() >= 7 && core.bytes().all(is_hex) && core.bytes().any(|b| b.is_ascii_digit()) {
        return word.replace(core, "<hex>");
    }
    let mut out = String::new();
    let mut digits = false;
    for c in word.chars() {
        // A number may have a decimal point.
        if !(digits && (c.is_ascii_digit() || c == '.')) {
            out.push(if c.is_ascii_digit() { '#' } else { c });
        }
        digits = c.is_ascii_digit() || digits && c == '.';
    }
    out
}

fn is_extension(end: &str) -> bool {
    const KNOWN: [&str; 30] = [
        "rs", "go", "py", "ts", "tsx", "js", "jsx", "mjs", "cjs", "java", "kt", "c", "h", "cc",
        "cpp", "hpp", "rb", "php", "cs", "swift", "sh", "md", "json", "toml", "yaml", "yml",
        "html", "css", "sql", "txt",
    ];
    KNOWN.contains(&end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(command: &str, text: &str) -> String {
        signature("Bash", command, text).trigger
    }

    #[test]
    fn compiler_and_linter_codes_identify_errors() {
        for (command, text, expected) in [
            ("npx tsc", "src/a.ts(3,5): error TS2345: Argument of type", "error:typescript:TS2345"),
            (
                "cargo build",
                "Exit code 101\nerror[E0308]: mismatched types\n --> a.rs:1:2",
                "error:rust:E0308",
            ),
            ("ruff check", "src/a.py:1:8: F401 `os` imported but unused", "error:python:F401"),
            ("mise run lint", "[lint] a/b.go:10:3: error is not nil (nilerr)", "error:go:nilerr"),
            (
                "mise run lint",
                "a/b.go:42:3: embedded fields should be listed before others (embeddedstructfieldcheck)",
                "error:go:embeddedstructfieldcheck",
            ),
            ("dotnet build", "A.cs(1,2): error CS0103: The name 'x'", "error:csharp:CS0103"),
            ("shellcheck a.sh", "^-- SC2086 (info): Double quote", "error:shell:SC2086"),
        ] {
            assert_eq!(trigger(command, text), expected, "{text}");
        }
    }

    #[test]
    fn volatile_parts_do_not_separate_errors() {
        for (command, one, other) in [
            (
                "git add a",
                "fatal: pathspec 'a' did not match any files",
                "fatal: pathspec 'b/c' did not match any files",
            ),
            (
                "cat a",
                "cat: /home/a/x.txt: No such file or directory",
                "cat: /srv/y.md: No such file or directory",
            ),
            (
                "curl x",
                "curl: (7) Failed to connect to localhost port 3000 after 12 ms",
                "curl: (7) Failed to connect to localhost port 80 after 0 ms",
            ),
            (
                "go test",
                "noise 1\n--- FAIL: TestA (0.13s)\n    a_test.go:1: x",
                "--- FAIL: TestA (2.00s)\n    a_test.go:9: y",
            ),
            ("./a", "(eval):1: parse error near `('", "(eval):2: parse error near `time'"),
            ("cargo test", "test a::b ... FAILED\n\u{1b}[31mx\u{1b}[0m", "test a::b ... FAILED"),
            (
                "pytest",
                "FAILED tests/a.py::test_b - assert 1 == 2",
                "FAILED tests/a.py::test_b - assert 3 == 4",
            ),
        ] {
            assert_eq!(trigger(command, one), trigger(command, other), "{one}");
        }
    }

    #[test]
    fn different_errors_are_not_merged() {
        let texts = [
            "fatal: not a git repository",
            "fatal: refusing to merge unrelated histories",
            "--- FAIL: TestA (0.1s)",
            "--- FAIL: TestB (0.1s)",
            "ModuleNotFoundError: No module named 'yaml'",
            "TypeError: unsupported operand",
            "Exit code 1",
            "Exit code 2",
            "unknown flag: --stat",
            "unknown flag: --json",
            "test a::b ... FAILED",
            "test a::c ... FAILED",
        ];
        let mut found: Vec<String> = texts.iter().map(|text| trigger("x y", text)).collect();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), texts.len(), "{found:?}");
    }

    #[test]
    fn refusals_and_bare_exit_codes_are_recognized() {
        assert!(refusal(
            "The user doesn't want to proceed with this tool use. The tool use was rejected"
        ));
        assert!(!refusal("error: permission denied (os error 13)"));
        let silent = signature("Bash", "git config x", "Exit code 1");
        assert!(!silent.telling && silent.line == "Exit code 1");
        let read =
            signature("Read", "a.rs", "<tool_use_error>File does not exist.</tool_use_error>");
        assert!(read.trigger.starts_with("error:agent:"), "{read:?}");
        let key = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789";
        assert!(
            !signature("Bash", "x", &format!("error: key {key} is invalid"))
                .line
                .contains("abcdef")
        );
    }
}
