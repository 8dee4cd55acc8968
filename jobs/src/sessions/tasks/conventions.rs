//! Task 4, conventions: the forms that a session followed for file names, test locations, import
//! order and commit messages.
//!
//! A session records how often it followed a form and how often it did not. Only the total across
//! all sessions decides whether a convention holds.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::cite;
use crate::sessions::event::{Action, Event, Outcome};

/// Observations of one form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// `testing`, `naming`, `imports` or `commits`.
    pub domain: String,
    pub pattern: String,
    /// The number of files or messages that follow the form.
    pub matches: u32,
    /// The number of files or messages of the same kind that do not follow the form.
    pub exceptions: u32,
    pub evidence: Vec<u64>,
}

/// The observed forms of one kind of item.
#[derive(Default)]
struct Forms {
    /// The lines of each pattern.
    found: BTreeMap<String, Vec<u64>>,
    /// The number of items that follow none of the forms.
    others: usize,
}

/// Returns the most frequent form of each kind of item in a session.
pub fn observe(events: &[Event]) -> Vec<Observed> {
    let mut sorts: BTreeMap<(&'static str, String), Forms> = BTreeMap::new();
    let mut note = |domain, sort: String, pattern: String, line: Option<u64>| {
        let forms = sorts.entry((domain, sort)).or_default();
        forms.found.entry(pattern).or_default().extend(line);
        forms.others += usize::from(line.is_none());
    };
    let (mut seen, mut imported): (BTreeSet<&str>, BTreeSet<&str>) = Default::default();
    for event in events.iter().filter(|event| event.outcome == Outcome::Passed) {
        let is_own = !event.target.starts_with('/');
        if is_own && !event.imports.is_empty() && imported.insert(&event.target) {
            for form in &event.imports {
                let line = form.holds.then_some(event.line);
                note("imports", form.sort.clone(), form.pattern.clone(), line);
            }
        }
        match event.action {
            Action::Edit if is_own && seen.insert(&event.target) => {
                if let Some((sort, pattern)) = test_file(&event.target) {
                    note("testing", sort, pattern, Some(event.line));
                } else if let Some((sort, pattern)) = file_name(&event.target) {
                    note("naming", sort, pattern, Some(event.line));
                }
            }
            Action::Commit => {
                if let Some(pattern) = subject_line(&event.target).map(message_form) {
                    note("commits", String::new(), pattern.to_owned(), Some(event.line));
                }
            }
            _ => {}
        }
    }
    let observed = |((domain, _), forms): ((&str, String), Forms)| {
        let all = forms.found.values().map(Vec::len).sum::<usize>() + forms.others;
        let (pattern, lines) = forms.found.into_iter().max_by_key(|(_, lines)| lines.len())?;
        let mut evidence = Vec::new();
        lines.iter().for_each(|line| cite(&mut evidence, *line));
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Some(Observed {
            domain: domain.to_owned(),
            pattern,
            matches: count(lines.len()),
            exceptions: count(all - lines.len()),
            evidence,
        })
    };
    sorts.into_iter().filter_map(observed).collect()
}

/// Returns the extension of a test file, and the pattern of its name and location. Returns `None`
/// for any other file.
fn test_file(path: &str) -> Option<(String, String)> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let (stem, extension) = name.rsplit_once('.')?;
    let own = ["tests", "test", "__tests__", "spec", "e2e"];
    let apart = folder.split('/').any(|part| own.contains(&part));
    let mark = match () {
        () if stem.ends_with(".test") => ".test suffix",
        () if stem.ends_with(".spec") => ".spec suffix",
        () if stem.ends_with("_test") => "_test suffix",
        () if stem.ends_with("_tests") => "_tests suffix",
        () if stem.starts_with("test_") => "test_ prefix",
        () if apart => "no mark in their names",
        () => return None,
    };
    let place = if apart { "live in a folder for tests" } else { "live beside the source files" };
    let pattern = format!(".{extension} test files have {} {mark} and {place}", article(mark));
    Some((extension.to_owned(), pattern.replace("have  no", "have no")))
}

fn article(mark: &str) -> &'static str {
    if mark.starts_with("no ") { "" } else { "the" }
}

/// Returns the extension of a source file, and the form of its name, if the form is recognizable.
fn file_name(path: &str) -> Option<(String, String)> {
    let name = path.rsplit('/').next()?;
    let (stem, extension) = name.split_once('.')?;
    let source =
        ["rs", "go", "py", "ts", "tsx", "js", "jsx", "java", "kt", "rb", "swift", "md", "vue"];
    if stem.is_empty() || !source.contains(&extension) {
        return None;
    }
    let upper = stem.bytes().any(|byte| byte.is_ascii_uppercase());
    let lower = stem.bytes().any(|byte| byte.is_ascii_lowercase());
    let first = stem.as_bytes()[0];
    let form = match () {
        () if stem.contains('_') && !upper => "snake_case",
        () if stem.contains('-') && !upper => "kebab-case",
        () if upper && lower && !stem.contains(['_', '-']) => {
            if first.is_ascii_uppercase() {
                "PascalCase"
            } else {
                "camelCase"
            }
        }
        () => return None,
    };
    Some((extension.to_owned(), format!(".{extension} files have names in {form}")))
}

/// Returns the first line of a `git commit` message.
fn subject_line(command: &str) -> Option<&str> {
    let (_, rest) = command.split_once("git commit")?;
    let (_, message) = rest.split_once("-m ").or_else(|| rest.split_once("-am "))?;
    let quote = message.chars().next().filter(|c| *c == '\'').unwrap_or('"');
    // A here-document begins on the next line.
    let text = match message.split_once("<<") {
        Some((before, here)) if !before.contains('\n') => here.split_once('\n')?.1,
        _ => message.strip_prefix(quote).unwrap_or(message),
    };
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let end = line.find(quote).unwrap_or(line.len());
    Some(line[..end].trim()).filter(|line| line.len() > 3 && !line.starts_with('$'))
}

fn message_form(subject: &str) -> &'static str {
    let kinds = [
        "feat", "fix", "docs", "style", "refactor", "perf", "test", "build", "ci", "chore",
        "revert",
    ];
    let head = subject.split(':').next().unwrap_or_default();
    let kind = head.split(['(', '!']).next().unwrap_or_default();
    if subject.contains(": ") && kinds.contains(&kind) {
        let scoped = head.contains('(');
        return if scoped {
            "commit subjects have the form type(scope): text"
        } else {
            "commit subjects have the form type: text"
        };
    }
    match subject.chars().next() {
        Some(first) if first.is_uppercase() => {
            "commit subjects begin with a capital letter and no type"
        }
        _ => "commit subjects begin with a small letter and no type",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_and_message_forms_are_recognized() {
        let test = |path: &str| test_file(path).map(|(_, pattern)| pattern);
        assert_eq!(
            test("web/src/a.spec.ts").unwrap(),
            ".ts test files have the .spec suffix and live beside the source files"
        );
        assert_eq!(
            test("tests/cli/a.rs").unwrap(),
            ".rs test files have no mark in their names and live in a folder for tests"
        );
        assert_eq!(test("src/a.rs"), None);
        assert_eq!(file_name("src/UserCard.tsx").unwrap().1, ".tsx files have names in PascalCase");
        assert_eq!(file_name("a/some_file.go").unwrap().1, ".go files have names in snake_case");
        assert_eq!(file_name("a/file.go"), None);
        for (command, subject) in [
            ("git add . && git commit -m \"fix(a): b c\" && git push", Some("fix(a): b c")),
            ("git commit -m \"$(cat <<'EOF'\nAdd a thing\n\nmore\nEOF\n)\"", Some("Add a thing")),
            ("git commit -am 'Say \"hi\" twice' && git push", Some("Say \"hi\" twice")),
            ("git commit --amend --no-edit", None),
        ] {
            assert_eq!(subject_line(command), subject, "{command}");
        }
        assert!(message_form("fix(a): b").contains("type(scope)"));
        assert!(message_form("Add: a thing").contains("capital"));
    }
}
