//! The lint rules: pure functions that return findings ordered by file and line.
//!
//! | rule | finds |
//! | --- | --- |
//! | `broken-link` | a relative link or wiki link to a file that does not exist |
//! | `broken-anchor` | a `#…` that matches no heading or id of the note |
//! | `ambiguous-link` | a wiki link that matches several notes |
//! | `duplicate-title` | notes with the same title, except indexes and similar |
//! | `missing-front-matter` | a note without front matter, if at least half of the notes have it |
//! | `orphan` | a note, except an index or similar, that no other note links to |
//! | `stale-claim` | a path in code that does not exist; an "as of" date that is too old; a past expiry date |

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::civil::Date;
use runner_text::nearest::nearest;
use runner_text::{front_matter, markdown};

use super::LintFinding;
use super::links::{Link, Parts, parts, slug};

/// Age in days above which an "as of" date is reported as stale.
const STALE_DAYS: i32 = 180;
/// Limits on the search for a similar name: the number of notes (`ALIKE`) and of broken links
/// (`ASKED`).
const ALIKE: usize = 2_000;
const ASKED: usize = 200;
/// Maximum number of notes to list when several notes match one link.
const NAMED: usize = 3;
/// Names of notes that need no incoming links.
const ROOTS: [&str; 5] = ["readme", "index", "home", "changelog", "contributing"];
/// File extensions that identify a path in code.
const ENDINGS: [&str; 14] =
    ["rs", "toml", "md", "json", "py", "ts", "js", "go", "sh", "sql", "yml", "yaml", "c", "org"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintNote {
    /// The path relative to the vault, with slashes.
    pub path: String,
    pub text: String,
}

/// Checks the notes and returns the findings. `exists` returns whether the vault contains a path,
/// and `there` whether the vault or the project does.
pub fn check(
    notes: &[LintNote],
    exists: &dyn Fn(&str) -> bool,
    there: &dyn Fn(&str) -> bool,
    today: Date,
) -> Vec<LintFinding> {
    let all: Vec<Parts> = notes.iter().map(|note| parts(&note.text)).collect();
    let by_path: HashMap<&str, usize> =
        notes.iter().enumerate().map(|(at, note)| (note.path.as_str(), at)).collect();
    let mut by_stem: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, note) in notes.iter().enumerate() {
        by_stem.entry(stem(&note.path).to_lowercase()).or_default().push(at);
    }
    let stems = notes.iter().take(ALIKE);
    let room = LintContext {
        notes,
        all: &all,
        by_path,
        by_stem,
        stems: stems.map(|note| stem(&note.path).to_lowercase()).collect(),
        asked: Cell::new(0),
        exists,
    };
    let mut findings = Vec::new();
    let mut led_to = BTreeSet::new();
    for (at, note) in notes.iter().enumerate() {
        for (link, line) in &all[at].links {
            match room.follow(at, link) {
                Ok(Some(target)) if target != at => {
                    led_to.insert(target);
                }
                Ok(_) => {}
                Err((rule, message)) => findings.push(found(note, *line, rule, message)),
            }
        }
        stale(note, &all[at], there, today, &mut findings);
    }
    titles(notes, &mut findings);
    front(notes, &mut findings);
    if notes.len() > 1 {
        for (at, note) in notes.iter().enumerate() {
            let name = stem(&note.path).to_lowercase();
            if !led_to.contains(&at) && !ROOTS.contains(&name.as_str()) {
                let message = "no other note links to it".to_owned();
                findings.push(found(note, 1, "orphan", message));
            }
        }
    }
    findings.sort();
    findings.dedup();
    findings
}

fn found(note: &LintNote, line: usize, rule: &'static str, message: String) -> LintFinding {
    LintFinding { file: note.path.clone(), line, rule, message, suggestion: None }
}

struct LintContext<'a> {
    notes: &'a [LintNote],
    all: &'a [Parts],
    by_path: HashMap<&'a str, usize>,
    by_stem: HashMap<String, Vec<usize>>,
    /// The names of the first `ALIKE` notes.
    stems: Vec<String>,
    /// The number of searches through `stems`.
    asked: Cell<usize>,
    exists: &'a dyn Fn(&str) -> bool,
}

type Broken = (&'static str, String);

impl LintContext<'_> {
    /// Returns the note that a link points to, or `None` if the link does not point to a note.
    /// Returns an error if the link is broken or ambiguous.
    fn follow(&self, from: usize, link: &Link) -> Result<Option<usize>, Broken> {
        let (target, anchor, to) = match link {
            Link::Plain(to) => {
                if to.is_empty() || to.contains("://") || has_scheme(to) || to.starts_with('/') {
                    return Ok(None);
                }
                let (path, anchor) = split(to);
                let path = decoded(path.split('?').next().unwrap_or(path));
                if path.is_empty() {
                    (Some(from), anchor, to)
                } else {
                    let whole = joined(&self.notes[from].path, &path);
                    match whole {
                        // Links to files outside the vault are not checked.
                        None => return Ok(None),
                        Some(whole) => match self.by_path.get(whole.as_str()) {
                            Some(at) => (Some(*at), anchor, to),
                            None if (self.exists)(&whole) => return Ok(None),
                            None => return Err(self.broken(to, &whole)),
                        },
                    }
                }
            }
            Link::Wiki(to) => {
                let (path, anchor) = split(to);
                let path = path.split('|').next().unwrap_or(path).trim();
                if path.is_empty() {
                    (Some(from), anchor, to)
                } else {
                    (self.wiki(from, path, to)?, anchor, to)
                }
            }
        };
        let (Some(at), Some(anchor)) = (target, anchor) else {
            return Ok(target);
        };
        let anchor = decoded(anchor.split('|').next().unwrap_or(anchor));
        // A wiki link may refer to a heading by its text, or to a block by a caret.
        let names = &self.all[at].anchors;
        let last = anchor.rsplit('#').next().unwrap_or(&anchor);
        if anchor.starts_with('^')
            || names.iter().any(|name| *name == anchor || *name == slug(last))
        {
            return Ok(target);
        }
        let near = nearest(&slug(last), names.iter().map(String::as_str));
        let near = near.map_or_else(String::new, |near| format!("; did you mean #{near}?"));
        let note = &self.notes[at].path;
        Err(("broken-anchor", format!("{to}: {note} has no #{anchor}{near}")))
    }

    fn wiki(&self, from: usize, path: &str, to: &str) -> Result<Option<usize>, Broken> {
        let with_md = format!("{path}.md");
        for name in [path, with_md.as_str()] {
            let beside = joined(&self.notes[from].path, name);
            let whole = beside.filter(|it| self.by_path.contains_key(it.as_str()));
            let known = whole.as_deref().or(Some(name)).and_then(|it| self.by_path.get(it));
            if let Some(at) = known {
                return Ok(Some(*at));
            }
        }
        let name = stem(path).to_lowercase();
        let all = self.by_stem.get(&name).map_or(&[][..], Vec::as_slice);
        // A bare name matches every note with that name.
        let asked = path.to_lowercase();
        let fits = |at: &usize| {
            let whole = self.notes[*at].path.to_lowercase();
            let whole = whole.strip_suffix(".md").unwrap_or(&whole);
            whole.ends_with(asked.trim_end_matches(".md"))
        };
        let fitting: Vec<usize>;
        let same = if path.contains('/') {
            fitting = all.iter().copied().filter(fits).collect();
            fitting.as_slice()
        } else {
            all
        };
        match same {
            [at] => Ok(Some(*at)),
            [] if (self.exists)(path) => Ok(None),
            [] => Err(self.broken(&format!("[[{to}]]"), path)),
            several => {
                let names: Vec<&str> =
                    several.iter().take(NAMED).map(|at| self.notes[*at].path.as_str()).collect();
                let mut message = format!("[[{to}]] may be {}", names.join(" or "));
                if several.len() > NAMED {
                    message.push_str(&format!(" or {} more", several.len() - NAMED));
                }
                Err(("ambiguous-link", message))
            }
        }
    }

    fn broken(&self, to: &str, whole: &str) -> Broken {
        // Suggests a note with the same name in another folder or, failing that, a note with a
        // similar name.
        let same = self.by_stem.get(&stem(whole).to_lowercase());
        let same = same.and_then(|same| same.first()).map(|at| self.notes[*at].path.as_str());
        let near = same.or_else(|| {
            self.asked.set(self.asked.get() + 1);
            if self.asked.get() > ASKED {
                return None;
            }
            let names = self.stems.iter().map(String::as_str);
            let near = nearest(&stem(whole).to_lowercase(), names)?;
            let at = self.stems.iter().position(|name| name == near)?;
            Some(self.notes[at].path.as_str())
        });
        let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        ("broken-link", format!("{to} does not exist{near}"))
    }
}

fn split(to: &str) -> (&str, Option<&str>) {
    match to.split_once('#') {
        Some((path, anchor)) if !anchor.is_empty() => (path, Some(anchor)),
        Some((path, _)) => (path, None),
        None => (to, None),
    }
}

/// Returns whether a link begins with a scheme such as `mailto:`. A drive letter is not a scheme.
fn has_scheme(to: &str) -> bool {
    to.split_once(':').is_some_and(|(scheme, _)| {
        scheme.len() > 1
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

/// Resolves `to` relative to the note `from`. Returns `None` if the path is outside the vault.
fn joined(from: &str, to: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let hex = behind.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match (first, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".md").unwrap_or(name)
}

fn titles(notes: &[LintNote], findings: &mut Vec<LintFinding>) {
    let mut by_title: BTreeMap<String, Vec<&LintNote>> = BTreeMap::new();
    for note in notes {
        let title = markdown::title(&note.text, stem(&note.path));
        let key = title.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        // Each folder may have its own index.
        if !ROOTS.contains(&stem(&note.path).to_lowercase().as_str()) {
            by_title.entry(key).or_default().push(note);
        }
    }
    for same in by_title.values().filter(|same| same.len() > 1) {
        for note in same {
            let others: Vec<&str> = same
                .iter()
                .filter(|other| other.path != note.path)
                .map(|other| other.path.as_str())
                .take(3)
                .collect();
            let message = format!("the title is the same as in {}", others.join(", "));
            findings.push(found(note, 1, "duplicate-title", message));
        }
    }
}

fn front(notes: &[LintNote], findings: &mut Vec<LintFinding>) {
    let has = |note: &&LintNote| front_matter::split(&note.text).front().is_some();
    let count = notes.iter().filter(has).count();
    if count == 0 || count * 2 < notes.len() {
        return;
    }
    for note in notes.iter().filter(|note| !has(note)) {
        let message =
            format!("{count} of {} notes have front matter, but this one does not", notes.len());
        findings.push(found(note, 1, "missing-front-matter", message));
    }
}

fn stale(
    note: &LintNote,
    parts: &Parts,
    there: &dyn Fn(&str) -> bool,
    today: Date,
    findings: &mut Vec<LintFinding>,
) {
    for (code, line) in &parts.code {
        let path = code.split([':', '#']).next().unwrap_or(code);
        let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
        let plain = path.contains('/')
            && !path.starts_with(['/', '~', '-', '$', '.'])
            && !path.contains([' ', '*', '<', '{', '$', '(', '…'])
            && !path.contains("..")
            && ENDINGS.contains(&ending);
        // A path is reported only if its first component exists. Otherwise the path may not belong
        // to this project.
        let first = path.split('/').next().unwrap_or(path);
        if plain && there(first) && !there(path) {
            let message = format!("{path} does not exist");
            findings.push(found(note, *line, "stale-claim", message));
        }
    }
    for (words, line) in &parts.text {
        let lower = words.to_lowercase();
        let cues = ["as of ", "last verified ", "last checked "];
        for (at, cue) in cues.iter().flat_map(|cue| lower.match_indices(cue)) {
            let date = lower.get(at + cue.len()..at + cue.len() + 10);
            if let Some(date) = date.and_then(|date| date.parse::<Date>().ok())
                && days(date, today) > STALE_DAYS
            {
                let message = format!("{cue}{date} was {} days ago", days(date, today));
                findings.push(found(note, *line, "stale-claim", message));
            }
        }
    }
    let document = front_matter::split(&note.text);
    for key in ["review_by", "expires", "valid_until"] {
        let date = document.get(key).and_then(|date| date.parse::<Date>().ok());
        if let Some(date) = date.filter(|date| *date < today) {
            let message = format!("the date in {key}, {date}, has passed");
            findings.push(found(note, 1, "stale-claim", message));
        }
    }
}

fn days(from: Date, to: Date) -> i32 {
    (to - from).get_days()
}
