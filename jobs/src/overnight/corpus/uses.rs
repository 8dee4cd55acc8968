//! The known uses of a corpus: when its nodes were used, and whether they helped.
//!
//! ```text
//! citations file, transcripts, commit messages, work items ──> Uses ──> by node: helped, failed
//! ```
//!
//! A use is an event: a session opened or cited a node, a commit cited it, or work that cites it
//! was finished or failed. Text written by runner never counts as a use, and neither does a label
//! in a node. This module must never write a file.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::BufRead;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::links::names;
use super::node::{day, stem_of};
use super::work::Claim;
use super::{Corpus, NodeKind, harvest::CommitSource};
use crate::sessions::transcript::{LineGap, SessionEvent, SessionEventKind, Transcript};

/// Maximum length of a question in characters.
const QUESTION: usize = 400;
/// Maximum length of a chain of nodes, each replacing the previous one.
const SUCCESSORS: usize = 16;
/// Minimum reward at which the feedback on a citation counts as a success.
const REWARDED: f64 = 0.5;

/// An event in which a session, a commit or a work item used a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeUse {
    /// The id of the node or the stem of its file name.
    pub name: String,
    /// The session, commit or work item that used the node.
    pub by: String,
    pub date: Date,
    /// False if the node misled its user.
    pub helped: bool,
    /// The task or query for which the node was used; empty if it is unknown or contains the node's
    /// name.
    pub question: String,
}

/// The uses of a corpus, and the outcomes of its work items.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    pub events: Vec<NodeUse>,
    /// Number of work items that were finished.
    pub consumed: usize,
    /// Number of unfinished work items that failed.
    pub failed: usize,
    /// The paths changed by each commit, keyed by the first seven digits of its hash.
    pub commits: BTreeMap<String, Vec<String>>,
    /// The names of removed nodes, each with the name of the node that had the same bytes.
    pub merged: BTreeMap<String, String>,
}

/// The node to which uses are attributed: a node in the corpus, or the name of a missing node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UsedNode {
    /// The index of the node in [`Corpus::nodes`].
    Known(usize),
    Missing(String),
}

/// The users that one node helped, and those that it misled.
#[derive(Clone, Debug, Default)]
pub struct UseRecord {
    /// The users that the node helped, each with the date of the last such use.
    pub helped: BTreeMap<String, Date>,
    /// The users that the node misled.
    pub failed: BTreeSet<String>,
}

impl UseRecord {
    /// Returns whether the node helped more users than it misled.
    pub fn is_proven(&self) -> bool {
        self.helped.len() > self.failed.len()
    }

    /// Returns whether the node misled at least as many users as it helped.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty() && !self.is_proven()
    }

    /// Returns the number of users that the node helped after `date`.
    pub fn helped_after(&self, date: Date) -> usize {
        self.helped.values().filter(|it| **it > date).count()
    }
}

impl Uses {
    /// Returns whether no uses of any node are known. The fitness of the corpus is then unknown.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Adds the nodes cited by finished or failed work items, and counts these items. An item
    /// written by runner is counted, but does not count as a use.
    pub fn add_work(&mut self, corpus: &Corpus) {
        let known = known(corpus);
        for item in &corpus.work.items {
            let failed = item.failed_at.is_some();
            let (helped, at) = match item.claim {
                Claim::Consumed => (true, item.consumed_at.as_deref()),
                _ if failed => (false, item.failed_at.as_deref()),
                _ => continue,
            };
            self.consumed += usize::from(helped);
            self.failed += usize::from(!helped);
            if item.source_epic.as_deref() == Some(super::work::OWN_EPIC) {
                continue;
            }
            let Some(date) = at.and_then(day).or_else(|| day(&item.timestamp)) else {
                continue;
            };
            let text = format!("{} {} {}", item.description, item.evidence, item.source);
            let by = format!("work {}", item.dedup_key);
            let question = format!("{} {}", item.title, item.description);
            self.add_named(&text, &known, |name| NodeUse {
                name,
                by: by.clone(),
                date,
                helped,
                question: question.clone(),
            });
        }
    }

    /// Adds the nodes cited in commit messages, and records the paths that each commit changed. A
    /// commit that changes only the corpus, or that was made on behalf of runner, does not count as
    /// a use.
    pub fn add_commits(&mut self, commits: &[CommitSource], corpus: &Corpus) {
        let known = known(corpus);
        for commit in commits {
            let short = commit.hash.chars().take(7).collect();
            self.commits.insert(short, commit.paths.clone());
            let own = format!("{}/", super::FOLDER);
            let outside = commit.paths.iter().any(|path| !path.starts_with(&own));
            if !outside || commit.body.to_lowercase().contains("generated-by: runner") {
                continue;
            }
            let text = format!("{}\n{}", commit.subject, commit.body);
            self.add_named(&text, &known, |name| NodeUse {
                name,
                by: format!("commit {}", commit.hash),
                date: commit.date,
                helped: true,
                question: commit.subject.clone(),
            });
        }
    }

    /// Adds the rows of a citations file. A row that merely records that a node was offered does
    /// not count as a use, unless it contains feedback. Returns the number of rows without a node
    /// or a date.
    pub fn add_citations(&mut self, text: &str) -> usize {
        let mut odd = 0;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let row: Value = serde_json::from_str(line).unwrap_or_default();
            let text = |key: &str| row[key].as_str().unwrap_or_default();
            let date = day(text("cited_at"));
            let (Some(name), Some(date)) = (node_name(text("artifact_path")), date) else {
                odd += 1;
                continue;
            };
            let feedback = row["feedback_given"].as_bool().unwrap_or(false);
            let reward = row["feedback_reward"].as_f64().filter(|_| feedback);
            if reward.is_none() && text("citation_type") == "retrieved" {
                continue;
            }
            self.events.push(NodeUse {
                question: question(text("query"), &name),
                name,
                by: format!("session {}", text("session_id")),
                date,
                helped: reward.is_none_or(|it| it >= REWARDED),
            });
        }
        odd
    }

    /// Adds the nodes that a session opened or cited, with the task that it worked on. Rows that
    /// also belong to a session added earlier count only for that session. `known` collects the
    /// digests of the rows' ids. The copies of a row in a fork have the same digest.
    ///
    /// # Errors
    /// Returns an error if the reader fails.
    pub fn add_session(
        &mut self,
        by: &str,
        reader: impl BufRead,
        known: &mut HashSet<u64>,
    ) -> std::io::Result<()> {
        let mut task = String::new();
        let mut seen = BTreeSet::new();
        let mut last = None;
        let mut own = Vec::new();
        for event in Transcript::new(reader, LineGap::default()) {
            let SessionEvent { at, sidechain, row, what, .. } = event?;
            last = at.or(last);
            let is_copy = row.is_some_and(|row| known.contains(&row));
            own.extend(row);
            let text = match &what {
                SessionEventKind::Prompt(text) if !sidechain && !text.starts_with('<') => {
                    task.clone_from(text);
                    continue;
                }
                _ if is_copy => continue,
                SessionEventKind::Call { tool, target, .. } if reads(tool, target) => target,
                SessionEventKind::Answer(text) => text,
                _ => continue,
            };
            let date = last.unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(TimeZone::UTC).date();
            for name in named_paths(text) {
                if seen.insert(name.clone()) {
                    let (question, by) = (question(&task, &name), format!("session {by}"));
                    self.events.push(NodeUse { name, by, date, helped: true, question });
                }
            }
        }
        known.extend(own);
        Ok(())
    }

    /// Returns the uses by node. A superseded or merged node passes its uses on to its successor.
    pub fn by_node(&self, corpus: &Corpus) -> BTreeMap<UsedNode, UseRecord> {
        let resolver = Resolver::of(self, corpus);
        let mut found: BTreeMap<UsedNode, UseRecord> = BTreeMap::new();
        for event in &self.events {
            let record = found.entry(resolver.node(&event.name)).or_default();
            if event.helped {
                let last = record.helped.entry(event.by.clone()).or_insert(event.date);
                *last = event.date.max(*last);
            } else {
                record.failed.insert(event.by.clone());
            }
        }
        found
    }

    fn add_named(&mut self, text: &str, known: &BTreeSet<&str>, event: impl Fn(String) -> NodeUse) {
        let mut found: BTreeSet<String> = named_paths(text).collect();
        found.extend(names(text).filter(|name| known.contains(name)).map(str::to_owned));
        for name in found {
            let mut event = event(name);
            event.question = question(&event.question, &event.name);
            self.events.push(event);
        }
    }
}

/// Finds the node that a name currently refers to.
pub struct Resolver<'a> {
    uses: &'a Uses,
    corpus: &'a Corpus,
    by_name: BTreeMap<&'a str, usize>,
}

impl<'a> Resolver<'a> {
    pub fn of(uses: &'a Uses, corpus: &'a Corpus) -> Self {
        let mut by_name = BTreeMap::new();
        for (at, node) in corpus.nodes.iter().enumerate() {
            by_name.entry(stem_of(&node.path)).or_insert(at);
        }
        for (at, node) in corpus.nodes.iter().enumerate() {
            by_name.entry(node.id.as_str()).or_insert(at);
        }
        Self { uses, corpus, by_name }
    }

    /// Returns the node with this name, or the node that replaced it.
    pub fn node(&self, name: &str) -> UsedNode {
        let mut name = name;
        let mut found = None;
        for _ in 0..SUCCESSORS {
            let next = match self.by_name.get(name) {
                Some(at) => {
                    found = Some(*at);
                    self.corpus.nodes[*at].superseded_by.as_deref()
                }
                None => self.uses.merged.get(name).map(String::as_str),
            };
            match next {
                Some(next) => name = next,
                None => break,
            }
        }
        found.map_or_else(|| UsedNode::Missing(name.to_owned()), UsedNode::Known)
    }
}

/// Returns the node names in a corpus that are distinctive enough to count as a citation in prose.
fn known(corpus: &Corpus) -> BTreeSet<&str> {
    let all = corpus.nodes.iter().flat_map(|node| [stem_of(&node.path), node.id.as_str()]);
    all.filter(|name| name.len() >= 6 && name.contains(['-', '_', '.'])).collect()
}

/// Returns whether a tool call only reads the paths in its target.
fn reads(tool: &str, target: &str) -> bool {
    let writes = [">", "rm ", "mv ", "cp ", "tee ", "sed -i", "git "];
    match tool {
        "Read" | "Grep" | "Glob" => true,
        "Bash" => !writes.iter().any(|it| target.contains(it)),
        _ => false,
    }
}

/// Returns the names of the nodes whose paths appear in a string.
fn named_paths(text: &str) -> impl Iterator<Item = String> + '_ {
    let ends = |c: char| c.is_whitespace() || "()[]{}<>\"'`,;|*#:".contains(c);
    text.split(ends).filter_map(node_name)
}

/// Returns the name of the node at a path, or `None` if the path is not a node's path.
fn node_name(path: &str) -> Option<String> {
    let below = match path.rsplit_once(".agents/") {
        Some((_, below)) => below,
        None => path,
    };
    NodeKind::of(below).map(|_| stem_of(below).to_owned())
}

/// Returns the beginning of `text` as a question, or an empty string if `text` contains the node's
/// name.
fn question(text: &str, name: &str) -> String {
    match text.contains(name) {
        true => String::new(),
        false => text.chars().take(QUESTION).collect(),
    }
}
