//! Harvests learnings from commits, closed work and session notes, each with its source.
//!
//! A learning must already be written down. The sources are lines such as `Learned:` or `Root
//! cause:` in commit messages, notes on closed work, and lists below headings such as "What we
//! learned". Text written by runner is never a source, and learnings already in the corpus are left
//! out. The harvest copies the source's text and never rephrases it.

use std::collections::BTreeSet;

use jiff::civil::Date;
use runner_text::front_matter::{self, edit::quote};
use runner_text::markdown::{Line, lines, plain, summary, word_count};
use runner_text::near::{Sketch, similarity};
use serde::Serialize;

use super::compile::slug;
use super::index::{Scope, Search};
use super::node::{GENERATOR, is_own};
use super::oscillation::FileHistory;
use super::teaches::teaches;
use super::work::{Claim, short_hash};
use super::{Changes, Corpus};

/// Minimum number of words in a learning.
const WORDS: usize = 8;
/// Minimum similarity to a node at which a learning is already known to the corpus.
const KNOWN: f64 = 0.7;
/// Minimum share of a learning's words that a node must contain to be listed as related.
const RELATED: f64 = 0.4;

#[derive(Clone, Debug)]
pub struct CommitSource {
    pub hash: String,
    /// The civil date of the commit in UTC.
    pub date: Date,
    /// The first line of the commit message.
    pub subject: String,
    /// The commit message without its first line.
    pub body: String,
    /// The files that the commit changed.
    pub paths: Vec<String>,
}

/// The notes from a session, in a Markdown file.
#[derive(Clone, Debug)]
pub struct NoteSource {
    /// The file's path, relative to the project.
    pub path: String,
    pub text: String,
}

#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The commits, newest first.
    pub commits: Vec<CommitSource>,
    /// The session notes, ordered by path.
    pub notes: Vec<NoteSource>,
    /// The sources that were not read, each with the reason.
    pub left_out: Vec<String>,
}

/// A learning that a harvest adds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Harvested {
    /// The path of the new file.
    pub path: String,
    pub title: String,
    pub source: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Harvest {
    pub schema_version: u32,
    /// Number of commits that were examined.
    pub commits: usize,
    /// Number of closed work items that have a note.
    pub closed_items: usize,
    /// Number of files with notes.
    pub notes: usize,
    pub added: Vec<Harvested>,
    /// Number of learnings that were already known, including those whose files oscillate.
    pub known: usize,
    /// Number of passages that were rejected because they lack a situation, a cause or an action.
    pub junk: usize,
    /// Number of new learnings beyond the limit of one harvest.
    pub left_over: usize,
    /// The sources that were not read, each with the reason.
    pub left_out: Vec<String>,
}

struct HarvestItem {
    key: String,
    title: String,
    text: String,
    date: Date,
    /// The front matter lines that name the source.
    origin: String,
    source: String,
    category: &'static str,
}

/// Finds new learnings. One harvest adds at most three learnings, or a tenth of the number of nodes
/// in the corpus if that is more.
pub fn harvest(
    corpus: &Corpus,
    sources: &Sources,
    history: &FileHistory,
    date: Date,
) -> (Harvest, Changes) {
    let mut report = Harvest {
        schema_version: 1,
        commits: sources.commits.len(),
        notes: sources.notes.len(),
        left_out: sources.left_out.clone(),
        ..Harvest::default()
    };
    let mut found = Vec::new();
    for commit in &sources.commits {
        found.extend(of_commit(commit));
    }
    for item in &corpus.work.items {
        let (Claim::Consumed, Some(note)) = (item.claim, &item.note) else {
            continue;
        };
        report.closed_items += 1;
        if word_count(note) < WORDS {
            continue;
        }
        found.push(HarvestItem {
            key: short_hash(&format!("work {} {note}", item.dedup_key)),
            title: item.title.clone(),
            text: note.clone(),
            date: super::node::day(&item.timestamp).unwrap_or(date),
            origin: format!(
                "source_epic: {}\nsource_path: {}\n",
                quote(item.source_epic.as_deref().unwrap_or("unknown")),
                quote(&format!(".agents/{}:{}", super::NEXT_WORK, item.line))
            ),
            source: format!(".agents/{}:{}", super::NEXT_WORK, item.line),
            category: "closed-work",
        });
    }
    for note in &sources.notes {
        found.extend(of_note(note, date));
    }
    let keys: BTreeSet<&str> =
        corpus.nodes.iter().filter_map(|node| node.value("source_key")).collect();
    let gone = history.oscillating();
    let most = (corpus.nodes.len() / 10).max(3);
    let mut changes = Changes::new();
    let mut fresh: BTreeSet<String> = BTreeSet::new();
    let search = Search { corpus, scope: Scope::All, date };
    for one in found {
        if teaches(&format!("{}.\n{}", one.title, one.text)).is_err() {
            report.junk += 1;
            continue;
        }
        let path = format!("learnings/{}-{}-{}.md", one.date, slug(&one.title), &one.key[..6]);
        if keys.contains(one.key.as_str()) || !fresh.insert(one.key.clone()) {
            report.known += 1;
            continue;
        }
        if gone.contains(path.as_str()) || corpus.at(&path).is_some() {
            report.known += 1;
            continue;
        }
        let near = search.hits(&format!("{} {}", one.title, one.text), 3);
        let sketch = Sketch::of(&one.text);
        let is_known = near.iter().any(|hit| {
            hit.node.text.contains(one.text.trim())
                || similarity(&sketch, &Sketch::of(hit.node.body())) >= KNOWN
        });
        if is_known {
            report.known += 1;
            continue;
        }
        if report.added.len() >= most {
            report.left_over += 1;
            continue;
        }
        let related: Vec<String> = near
            .iter()
            .filter(|hit| hit.covered >= RELATED)
            .map(|hit| quote(&hit.node.id))
            .collect();
        let related = match related.is_empty() {
            true => String::new(),
            false => format!("related: [{}]\n", related.join(", ")),
        };
        let text = format!(
            "---\ntype: learning\ndate: {}\ncategory: {}\nmaturity: provisional\nutility: 0.5\ngenerated_by: {GENERATOR}\nharvested_at: {date}\n{}source_key: \"{}\"\n{related}---\n\n# {}\n\n{}\n",
            one.date,
            one.category,
            one.origin,
            one.key,
            one.title,
            one.text.trim()
        );
        report.added.push(Harvested { path: path.clone(), title: one.title, source: one.source });
        changes.insert(path, Some(text.into_bytes()));
    }
    (report, changes)
}

/// Prefixes that mark a learning in a commit message.
const MARKS: [&str; 6] =
    ["learned:", "lesson:", "lessons:", "learning:", "root cause:", "takeaway:"];

fn of_commit(commit: &CommitSource) -> Option<HarvestItem> {
    // Tools that commit on behalf of runner leave this mark. A night makes no git commits.
    if commit.body.to_lowercase().contains("generated-by: runner") {
        return None;
    }
    let mut text = String::new();
    let mut taking = false;
    for line in commit.body.lines() {
        let low = line.trim_start().to_lowercase();
        if MARKS.iter().any(|mark| low.starts_with(mark)) {
            taking = true;
        } else if line.trim().is_empty() {
            taking = false;
        }
        if taking {
            text.push_str(line.trim());
            text.push('\n');
        }
    }
    (word_count(&text) >= WORDS).then(|| {
        let short = &commit.hash[..commit.hash.len().min(12)];
        let touched: Vec<&str> = commit.paths.iter().take(5).map(String::as_str).collect();
        let touched = match touched.is_empty() {
            true => String::new(),
            false => format!("\nTouched: {}\n", touched.join(", ")),
        };
        HarvestItem {
            key: short_hash(&format!("commit {}", commit.hash)),
            title: commit.subject.clone(),
            text: format!("{text}{touched}"),
            date: commit.date,
            origin: format!("source_commit: {}\n", commit.hash),
            source: format!("commit {short}"),
            category: "commit",
        }
    })
}

/// Words in a heading that mark the list below it as learnings.
const HEADINGS: [&str; 5] = ["learned", "learnings", "lessons", "takeaways", "lesson"];

fn of_note(note: &NoteSource, date: Date) -> Vec<HarvestItem> {
    let doc = front_matter::split(&note.text);
    if doc.get("generated_by").is_some_and(is_own) {
        return Vec::new();
    }
    let when = doc.get("date").and_then(super::node::day);
    let when = when
        .or_else(|| super::node::day(note.path.rsplit('/').next().unwrap_or_default()))
        .unwrap_or(date);
    let mut found = Vec::new();
    let mut under = None;
    for line in lines(doc.body()) {
        match line {
            Line::Heading(level, text) => {
                let low = plain(text).to_lowercase();
                let named =
                    low.split(|c: char| !c.is_alphanumeric()).any(|word| HEADINGS.contains(&word));
                match (named, under) {
                    (true, _) => under = Some(level),
                    (false, Some(above)) if level <= above => under = None,
                    _ => {}
                }
            }
            Line::Item(text) if under.is_some() => {
                let text = plain(text);
                if word_count(&text) >= WORDS {
                    found.push(HarvestItem {
                        key: short_hash(&format!("note {} {text}", note.path)),
                        title: summary(&text, 80),
                        date: when,
                        origin: format!("source_path: {}\n", quote(&note.path)),
                        source: note.path.clone(),
                        category: "session",
                        text,
                    });
                }
            }
            _ => {}
        }
    }
    found
}
