//! Finds the commits mentioned in an entry, and the paths, exit codes and tasks mentioned in its
//! tale.
//!
//! A commit that appears in none of the sources is invented, so the entry is refused. A path, an
//! exit code or a task that appears in none of the sources is only marked, because a tale may
//! describe it in its own words. A commit that is not new is also marked. This module must never
//! decide that an event happened.

use runner_text::org::{Resolved, fold};

use super::gather::{PreviousEntry, Slice};

/// Length of the shortest abbreviated commit hash that git accepts, in digits.
const SHORTEST: usize = 4;
/// Length of the longest commit hash, in digits.
const LONGEST: usize = 64;
/// Minimum length at which a word with both letters and digits is treated as a hash regardless of
/// the text around it.
const CERTAIN: usize = 7;

/// Words that introduce the next word as a commit.
const PRESENTS: [&str; 6] = ["commit", "commits", "revision", "changeset", "sha", "hash"];
/// English words that consist of hexadecimal digits. Even after a word such as `commit`, they are
/// treated as hashes only in backticks.
const ENGLISH: [&str; 24] = [
    "acceded", "added", "babe", "bead", "beaded", "beef", "cafe", "ceded", "dead", "deaf",
    "decade", "deed", "deface", "defaced", "efface", "effaced", "facade", "face", "faced", "fade",
    "faded", "feed", "dabbed", "ebbed",
];

/// A word that may be a commit's hash.
#[derive(Clone, Copy, Debug)]
struct HexWord<'t> {
    word: &'t str,
    /// Whether the word's form or the text around it identifies the word as a commit.
    presented: bool,
}

/// Returns the first hash in `text` that identifies none of the commits shown and appears in none
/// of the sources, if there is one.
pub fn unknown_hash(text: &str, slice: &Slice) -> Option<String> {
    let sources = slice.sources(PreviousEntry::Shown);
    let known: Vec<String> = (sources.iter())
        .flat_map(|(_, text)| hex_words(text))
        .map(|it| it.word.to_ascii_lowercase())
        .collect();
    let unknown = hex_words(text).into_iter().filter(|it| it.presented).find(|it| {
        let hash = it.word.to_ascii_lowercase();
        // The sources may mention older commits, with full or abbreviated hashes.
        let in_text = known.iter().any(|known| known.starts_with(&hash));
        !in_text && !slice.commits.iter().any(|commit| commit.hash.starts_with(&hash))
    });
    unknown.map(|it| it.word.to_owned())
}

/// Returns the words that git would accept as a full or abbreviated hash, except colours.
fn hex_words(text: &str) -> Vec<HexWord<'_>> {
    let mut out = Vec::new();
    let mut named = false;
    let mut end = 0;
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let at = word.as_ptr() as usize - text.as_ptr() as usize;
        let between = &text[end..at];
        end = at + word.len();
        let (before, after) = (text[..at].chars().next_back(), text[end..].chars().next());
        let in_list = between.chars().all(|c| c.is_whitespace() || ",&/`('\"".contains(c));
        let lower = word.to_ascii_lowercase();
        let was_named = named && in_list;
        // In a list, as in `commits a, b and c`, each word is introduced as a commit.
        named = PRESENTS.contains(&&*lower) || (was_named && ["and", "or"].contains(&&*lower));
        let hex = (SHORTEST..=LONGEST).contains(&word.len())
            && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        // A `#` begins a colour.
        if !hex || before == Some('#') {
            continue;
        }
        named |= was_named;
        let digits = word.bytes().any(|byte| byte.is_ascii_digit());
        let letters = word.bytes().any(|byte| byte.is_ascii_alphabetic());
        let enclosed = before == Some('`') || (before == Some('(') && after == Some(')'));
        let joined = |c: Option<char>| c.is_some_and(|c| is_hyphen(c) || ".:".contains(c));
        let is_part = joined(before)
            || (joined(after) && text[end..].chars().nth(1).is_some_and(char::is_numeric));
        let presented = match (letters, digits) {
            (true, true) => word.len() >= CERTAIN || was_named || enclosed,
            // A date, a time or a version is not a hash.
            (false, _) => was_named && !is_part,
            (true, false) => was_named && (before == Some('`') || !ENGLISH.contains(&&*lower)),
        };
        out.push(HexWord { word, presented });
    }
    out
}

fn is_hyphen(c: char) -> bool {
    matches!(c, '-' | '\u{2010}'..='\u{2015}' | '\u{2212}')
}

/// Returns the commits mentioned in a tale even though they are older than the previous entry. A
/// tale should cover only what is new.
fn older_commits(tale: &str, slice: &Slice) -> Vec<String> {
    if slice.listed.manifest.entries.is_empty() {
        return Vec::new();
    }
    let named = hex_words(tale).into_iter().filter(|it| it.presented).map(|it| it.word);
    let older = |word: &str| {
        let hash = word.to_ascii_lowercase();
        let mut commits = slice.commits.iter().filter(|commit| commit.hash.starts_with(&hash));
        commits.next().is_some_and(|commit| !slice.newer.contains(&commit.hash))
    };
    named.filter(|word| older(word)).map(|word| format!("{word} as a new commit")).collect()
}

/// Returns the paths, exit codes and quoted tasks that are mentioned in a tale but appear in none
/// of the sources, and the mentioned commits that are not new.
pub fn unseen(tale: &str, slice: &Slice) -> Vec<String> {
    let mut shown: Vec<String> =
        slice.sources(PreviousEntry::Shown).into_iter().map(|(_, text)| plain(&text)).collect();
    // The sources show only truncated rows, so add the complete paths and commands.
    let rows = slice.steps.iter().filter_map(|step| step.args.as_ref());
    shown.extend(rows.flat_map(|args| [&args.path, &args.cmd]).flatten().map(|text| plain(text)));
    let is_shown = |text: &str| shown.iter().any(|source| source.contains(text));
    let tale = plain(tale);
    let mut out = older_commits(&tale, slice);
    out.extend(paths(&tale).into_iter().filter(|path| !is_shown(path)));
    let codes = exit_codes(&tale).into_iter();
    let codes = codes.filter(|code| slice.steps.iter().all(|step| step.exit_code != *code));
    out.extend(codes.map(|code| format!("exit {code}")).filter(|text| !is_shown(text)));
    let tasks = quoted_tasks(&tale).into_iter();
    out.extend(tasks.filter(|task| {
        matches!(slice.board.resolve(task), Resolved::Unknown)
            && !shown.iter().any(|source| fold(source).contains(&fold(task)))
    }));
    out.sort();
    out.dedup();
    out
}

/// Replaces typographic hyphens and double quotes with plain ones, because models write
/// typographic hyphens even within paths.
fn plain(text: &str) -> String {
    let plain = |c: char| match c {
        c if is_hyphen(c) => '-',
        '\u{201c}' | '\u{201d}' => '"',
        c => c,
    };
    text.chars().map(plain).collect()
}

/// Returns the words that resemble paths: those with a file extension, a trailing slash or two
/// slashes.
fn paths(text: &str) -> Vec<String> {
    let punctuation = |c: char| !c.is_alphanumeric() && !"._/-~".contains(c);
    let words = text.split(|c: char| c.is_whitespace() || ",;()[]".contains(c));
    let words = words.filter(|word| !word.contains("://")).filter_map(|word| {
        let word = word.trim_matches(punctuation).trim_end_matches('.');
        let word = word.split(':').next().unwrap_or_default();
        Some(word.strip_prefix("./").unwrap_or(word)).filter(|word| is_path(word))
    });
    words.map(str::to_owned).collect()
}

fn is_path(word: &str) -> bool {
    let path = |c: char| c.is_alphanumeric() || "._/-~+@".contains(c);
    if word.len() < 3 || !word.chars().all(path) || !word.contains(char::is_alphabetic) {
        return false;
    }
    let name = word.rsplit('/').next().unwrap_or(word);
    let file = name.rsplit_once('.').is_some_and(|(stem, extension)| {
        let known = (1..=6).contains(&extension.len())
            && extension.starts_with(|c: char| c.is_ascii_lowercase())
            && extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
        // `e.g` and `i.e` are abbreviations.
        known && (stem.len() > 1 || extension.len() > 1)
    });
    file || word.matches('/').count() >= 2 || (word.ends_with('/') && word.len() > 3)
}

/// Returns the numbers that follow a form of the word `exit`, as in `exited with code 2`.
fn exit_codes(text: &str) -> Vec<i64> {
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let follows = |at: usize| {
        let rest = words[at + 1..].iter();
        let filler = ["code", "codes", "status", "with", "of", "was", "a", "an"];
        rest.take(4).find(|word| !filler.contains(&word.as_str()))?.parse().ok()
    };
    let exits = words.iter().enumerate().filter(|(_, word)| word.starts_with("exit"));
    exits.filter_map(|(at, _)| follows(at)).collect()
}

/// Returns the quoted strings next to the word `task`.
fn quoted_tasks(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('"').collect();
    let is_task = |word: Option<&str>| {
        let word = word.unwrap_or_default().trim_matches(|c: char| !c.is_alphanumeric());
        ["task", "tasks"].iter().any(|task| word.eq_ignore_ascii_case(task))
    };
    // The parts at odd positions are between quotes.
    let quoted = (1..parts.len().saturating_sub(1)).step_by(2).filter(|at| {
        is_task(parts[at - 1].split_whitespace().next_back())
            || is_task(parts[at + 1].split_whitespace().next())
    });
    quoted.map(|at| parts[at].trim().to_owned()).filter(|task| !task.is_empty()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use runner_engine::scope::Expect;
    use runner_text::org::{Board, BoardForm};

    use super::super::super::manifest::{Listed, Manifest, ReadManifest};
    use super::*;
    use crate::lifecycle::log::Commit;
    use crate::steps::{Args, ToolStep};

    fn presented(text: &str) -> Vec<&str> {
        hex_words(text).into_iter().filter(|it| it.presented).map(|it| it.word).collect()
    }

    #[test]
    fn hashes_are_distinguished_from_numbers_and_words() {
        assert_eq!(
            presented("in a3f91c2, (0123456789abcdef0123456789abcdef01234567)."),
            ["a3f91c2", "0123456789abcdef0123456789abcdef01234567"]
        );
        assert_eq!(
            presented(
                "commit 1048576, commits 47d3, b55c400 and beefed; (a3f9) `0b7d` commit `added`"
            ),
            ["1048576", "47d3", "b55c400", "beefed", "a3f9", "0b7d", "added"]
        );
        assert_eq!(presented(&format!("commit {}", "ab".repeat(32))).len(), 1);
        for none in [
            "1048576 bytes on 20260610, defaced, 01K000000000, a3f91c, 2026-06-10, face (2048)",
            "The commit added two files. Each commit faced a review. #ff00aa80 is a colour.",
            "commit 2026-06-10, commit 2026\u{2011}06\u{2011}11, commits of 1200 lines, commit x",
            &"a1".repeat(33),
        ] {
            assert_eq!(presented(none), Vec::<&str>::new(), "{none}");
        }
    }

    pub(in super::super) fn slice() -> Slice {
        let step = |path: Option<&str>, cmd: Option<&str>, exit_code| ToolStep {
            tool: "Bash".into(),
            args: Some(Args {
                path: path.map(Into::into),
                cmd: cmd.map(Into::into),
                pipeline: None,
            }),
            exit_code,
            ..ToolStep::default()
        };
        let long = format!("{} && cat src/late.rs", "x".repeat(100));
        Slice {
            commits: vec![Commit {
                hash: "a3f91c2000000000000000000000000000000000".into(),
                short: "a3f91c2".into(),
                subject: "Add words on re-entry to docs/tides.md".into(),
                at: 0,
            }],
            newer: Default::default(),
            audited: false,
            head: None,
            about: None,
            board_changed: true,
            board_digest: String::new(),
            plan: None,
            board: Board::read("* TODO fix the roof\n", BoardForm::Org),
            doing: None,
            doing_since: None,
            steps: vec![step(Some("src/04-weave.rs"), None, 0), step(None, Some(&long), 2)],
            previous: None,
            listed: ReadManifest { manifest: Manifest::default(), expect: Expect::Absent },
            reported: Vec::new(),
        }
    }

    #[test]
    fn inventions_are_found_and_facts_are_not() {
        let slice = slice();
        for (text, hash) in [
            ("Commit a3f9 and (a3f91c2) landed.", None),
            ("Commit 0b7d landed.", Some("0b7d")),
            ("Commits a3f9, a3f91c2 and 1048 landed.", Some("1048")),
            ("It was fixed (dead12).", Some("dead12")),
        ] {
            assert_eq!(unknown_hash(text, &slice).as_deref(), hash, "{text}");
        }
        let facts = "weave.rs and src/04\u{2011}weave.rs:12 changed, docs/tides.md grew (src/late.rs), and \
            one command ended with exit code 2. The task \u{201c}fix the roof\u{201d} is open; read/write \
            and/or e.g. version 1.2.3 are not paths.";
        assert_eq!(unseen(facts, &slice), Vec::<String>::new());
        let invented = "src/wave.rs was written, and content/ too. The check exited with status 101. \
            The task \"paint the door\" was begun, and blog/a/b.";
        assert_eq!(
            unseen(invented, &slice),
            ["blog/a/b", "content/", "exit 101", "paint the door", "src/wave.rs"]
        );
    }

    #[test]
    fn commits_that_are_not_new_are_marked() {
        let mut slice = slice();
        let tale = "It added words (a3f91c2).";
        assert_eq!(unseen(tale, &slice), Vec::<String>::new(), "there is no previous entry");
        slice.listed.manifest.entries.push(Listed::default());
        assert_eq!(unseen(tale, &slice), ["a3f91c2 as a new commit"]);
        slice.newer.insert(slice.commits[0].hash.clone());
        assert_eq!(unseen(tale, &slice), Vec::<String>::new());
    }
}
