//! Describes how a source file orders its imports: by origin, in groups, and by name.
//!
//! The first lines of a file that a session read or wrote are enough. In JavaScript and TypeScript,
//! an import that spans several lines names its source on the last line. This module must never
//! guess an order from fewer than three imports.

/// Maximum number of bytes to inspect in a file.
pub const HEAD: usize = 8 * 1024;
/// Minimum number of imports needed to determine a file's order.
const LEAST: usize = 3;
const SORTED: &str = "are sorted by name in each group";
const OWN_FIRST: &str = "name own modules before packages";
const USUAL: &str = "name the standard library, packages and own modules in this order";
const JOINED: &str = "have no blank lines between groups";
const APART: &str = "have blank lines between groups";
/// The forms, by subject. Only forms of the same subject contradict each other.
const SUBJECTS: [(&str, &[&str]); 3] =
    [("sorting", &[SORTED]), ("order", &[OWN_FIRST, USUAL]), ("groups", &[JOINED, APART])];
/// Commonly imported modules of Python's standard library.
const PYTHON: [&str; 44] = [
    "__future__",
    "abc",
    "argparse",
    "ast",
    "asyncio",
    "base64",
    "collections",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "enum",
    "functools",
    "glob",
    "hashlib",
    "http",
    "importlib",
    "inspect",
    "io",
    "itertools",
    "json",
    "logging",
    "math",
    "multiprocessing",
    "os",
    "pathlib",
    "pickle",
    "platform",
    "random",
    "re",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "string",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "types",
    "typing",
    "unittest",
];

/// A form that a file's imports may have, and whether they have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportForm {
    /// The subject of the form, such as `.rs order`. Only forms with the same subject are compared.
    pub sort: String,
    pub pattern: String,
    pub holds: bool,
}

/// The origin of a module, in the usual order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Standard,
    Package,
    Own,
}

struct Import<'t> {
    source: &'t str,
    origin: Origin,
    /// Whether a blank line precedes the import.
    apart: bool,
}

/// Returns the subject of a pattern, such as `.rs order`, or `None` if the pattern is not about
/// imports.
pub fn subject(pattern: &str) -> Option<String> {
    let (language, form) = pattern.split_once(" imports ")?;
    let (subject, _) = SUBJECTS.iter().find(|(_, forms)| forms.contains(&form))?;
    Some(format!("{language} {subject}"))
}

/// Returns the forms of a file's imports, or an empty list if its language is unknown or it has
/// fewer than [`LEAST`] imports. `text` may have line numbers, as shown by agents' tools.
pub fn forms(path: &str, text: &str) -> Vec<ImportForm> {
    let language = path.rsplit_once('.').map_or("", |(_, end)| end);
    let parse: fn(&str) -> Option<(&str, Origin)> = match language {
        "rs" => rust,
        "go" => go,
        "py" => python,
        "ts" | "tsx" | "js" | "jsx" | "mjs" | "vue" => script,
        _ => return Vec::new(),
    };
    let head = &text[..text.floor_char_boundary(HEAD)];
    let found = imports(head, language == "go", parse);
    if found.len() < LEAST {
        return Vec::new();
    }
    let form = |form: &str, holds| {
        let pattern = format!(".{language} imports {form}");
        ImportForm { sort: subject(&pattern).unwrap_or_default(), pattern, holds }
    };
    // A group ends at a blank line, or where the origin changes.
    let same = |a: &Import<'_>, b: &Import<'_>| !b.apart && a.origin == b.origin;
    let sorted =
        found.windows(2).all(|two| !same(&two[0], &two[1]) || two[0].source <= two[1].source);
    let mut forms = vec![form(SORTED, sorted)];
    let changes: Vec<_> = found.windows(2).filter(|two| two[0].origin != two[1].origin).collect();
    if changes.is_empty() {
        return forms;
    }
    let usual = changes.iter().all(|two| two[0].origin < two[1].origin);
    let reverse = changes.iter().all(|two| two[0].origin > two[1].origin);
    forms.push(match reverse {
        true => form(OWN_FIRST, true),
        false => form(USUAL, usual),
    });
    if usual || reverse {
        let apart = changes.iter().filter(|two| two[1].apart).count();
        forms.push(match apart {
            0 => form(JOINED, true),
            _ => form(APART, apart == changes.len()),
        });
    }
    forms
}

/// Returns the imports in a file's text. If `in_parentheses` is set, only those in the first
/// `import (` block are returned.
fn imports<'t>(
    text: &'t str,
    in_parentheses: bool,
    parse: fn(&'t str) -> Option<(&'t str, Origin)>,
) -> Vec<Import<'t>> {
    let mut found = Vec::new();
    let (mut apart, mut inside) = (false, !in_parentheses);
    for line in text.lines().map(without_number) {
        match line.trim() {
            "" => apart = true,
            "import (" => inside = true,
            ")" if in_parentheses && inside => break,
            _ if !inside => {}
            _ => {
                if let Some((source, origin)) = parse(line) {
                    found.push(Import { source, origin, apart });
                    apart = false;
                }
            }
        }
    }
    found
}

/// Returns a line without the line number that an agent's tool adds.
fn without_number(line: &str) -> &str {
    let rest = line.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
    match rest.strip_prefix('→').or_else(|| rest.strip_prefix('\t')) {
        Some(shown) if line.trim_start().starts_with(|c: char| c.is_ascii_digit()) => shown,
        _ => line,
    }
}

fn rust(line: &str) -> Option<(&str, Origin)> {
    let source = line.strip_prefix("use ").or_else(|| line.strip_prefix("pub use "))?;
    let source = source.trim_end_matches(';');
    let origin = match source.split("::").next()? {
        "std" | "core" | "alloc" => Origin::Standard,
        "crate" | "self" | "super" => Origin::Own,
        _ => Origin::Package,
    };
    Some((source, origin))
}

fn go(line: &str) -> Option<(&str, Origin)> {
    let source = line.split('"').nth(1)?;
    let first = source.split('/').next()?;
    // Only the module file lists the project's own packages, so they are not recognized here.
    Some((source, if first.contains('.') { Origin::Package } else { Origin::Standard }))
}

fn python(line: &str) -> Option<(&str, Origin)> {
    let source = line.strip_prefix("import ").or_else(|| line.strip_prefix("from "))?;
    let source = source.split([' ', ',']).next()?;
    let origin = match source.split('.').next()? {
        "" => Origin::Own,
        name if PYTHON.contains(&name) => Origin::Standard,
        _ => Origin::Package,
    };
    Some((source, origin))
}

fn script(line: &str) -> Option<(&str, Origin)> {
    let rest = match line.strip_prefix("import ") {
        // An import that is made only for its side effects names nothing.
        Some(rest) if rest.starts_with(['"', '\'']) => return None,
        Some(rest) => rest.split_once(" from ")?.1,
        None => line.strip_prefix("} from ")?,
    };
    let source = rest.split(['"', '\'']).nth(1)?;
    let origin = match source {
        _ if source.starts_with("node:") => Origin::Standard,
        _ if source.starts_with(['.', '~', '#', '$']) || source.starts_with("@/") => Origin::Own,
        _ => Origin::Package,
    };
    Some((source, origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pattern of each form, prefixed with `not: ` if the imports do not have it.
    fn patterns(path: &str, text: &str) -> Vec<String> {
        let all = forms(path, text).into_iter();
        all.map(|form| if form.holds { form.pattern } else { format!("not: {}", form.pattern) })
            .collect()
    }

    #[test]
    fn order_groups_and_sorting_are_found() {
        let rust = "//! Text.\n\nuse std::fs;\nuse std::io;\n\nuse serde::Serialize;\n\nuse crate::a;\nuse super::b;\n\nfn main() {}\n";
        assert_eq!(
            patterns("src/a.rs", rust),
            [
                ".rs imports are sorted by name in each group",
                ".rs imports name the standard library, packages and own modules in this order",
                ".rs imports have blank lines between groups",
            ]
        );
        let shown = "     1→import {\n     2→  a,\n     3→} from \"./z\";\n     4→import b from './b';\n     5→import React from 'react';\n";
        assert_eq!(
            patterns("web/a.tsx", shown),
            [
                "not: .tsx imports are sorted by name in each group",
                ".tsx imports name own modules before packages",
                ".tsx imports have no blank lines between groups",
            ]
        );
        let mixed = "import os\nfrom . import a\nimport sys\n";
        assert_eq!(
            patterns("a.py", mixed),
            [
                ".py imports are sorted by name in each group",
                "not: .py imports name the standard library, packages and own modules in this order",
            ]
        );
        let go = "package a\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\n\t\"example.org/a\"\n)\n\nvar x = \"not/an.import\"\n";
        assert_eq!(patterns("a.go", go).len(), 3);
    }

    #[test]
    fn too_few_imports_have_no_form() {
        for (path, text) in [
            ("a.rs", "use std::fs;\nuse std::io;\n"),
            ("a.md", "import a\nimport b\nimport c\n"),
            ("a.py", "    import a\n    import b\n    import c\n"),
            ("a.ts", "import 'a';\nimport 'b';\nimport 'c';\n"),
            ("a.go", "var a = \"b\"\nvar b = \"c\"\nvar c = \"d\"\n"),
            ("", ""),
        ] {
            assert!(forms(path, text).is_empty(), "{path}");
        }
    }
}
