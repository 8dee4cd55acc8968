//! Converts Markdown notes from other programs into nodes: `CLAUDE.md`, Claude Code's auto-memory,
//! and folders of notes. This module must never change a file.

use runner_text::{front_matter, markdown};

use crate::node::{NewNode, NodeType, Tier};

/// The origin and project of a note.
#[derive(Clone, Debug)]
pub struct NoteSource<'s> {
    /// The path recorded as the note's origin.
    pub path: &'s str,
    /// The project of the nodes, or `None` for nodes common to all projects.
    pub project: Option<&'s str>,
    pub tier: Option<Tier>,
}

/// Splits Markdown text into nodes, one per section with its heading. A note with front matter
/// becomes a single node, whose type and summary are the `type` and `description` of the front
/// matter. Sections without text are omitted.
pub fn nodes_of(text: &str, source: &NoteSource<'_>) -> Vec<NewNode> {
    let doc = front_matter::split(text);
    let named = doc.get("type").and_then(|kind| NodeType::parse(kind).ok());
    let node = |content: &str| NewNode {
        kind: named,
        content: content.trim().to_owned(),
        tags: source.tier.map(Tier::tag).into_iter().collect(),
        project: source.project.map(str::to_owned),
        origin: Some(format!("import {}", source.path)),
        ..NewNode::default()
    };
    if doc.front().is_some() {
        let mut whole = node(doc.body());
        let summary = doc.get("description").map(str::to_owned);
        whole.summary = summary.filter(|text| !text.is_empty());
        return Some(whole).filter(|it| has_words(&it.content)).into_iter().collect();
    }
    sections(doc.body()).into_iter().filter(|part| has_words(part)).map(node).collect()
}

fn has_words(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.any(|line| !line.trim().is_empty()) && !markdown::plain(text).trim().is_empty()
}

/// Splits text before each heading of level 1 to 3 that is outside fenced code.
fn sections(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut start, mut at, mut fence) = (0, 0, None);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let mark = trimmed.chars().next().filter(|c| matches!(c, '`' | '~'));
        let run = trimmed.chars().take_while(|c| Some(*c) == mark).count();
        fence = match (fence, mark) {
            (Some((open, length)), _) => {
                let closes = mark == Some(open) && run >= length && trimmed.trim_end().len() == run;
                (!closes).then_some((open, length))
            }
            (None, Some(mark)) if run >= 3 => Some((mark, run)),
            (None, _) => None,
        };
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if fence.is_none()
            && (1..=3).contains(&level)
            && line[level..].starts_with(' ')
            && at > start
        {
            out.push(&text[start..at]);
            start = at;
        }
        at += line.len();
    }
    out.push(&text[start..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_become_nodes() {
        let source =
            NoteSource { path: "CLAUDE.md", project: Some("p"), tier: Some(Tier::Reference) };
        let text = "# Rules\n\nUse tabs.\n\n## Empty\n\n## Code\n````\n```\n# no heading\n````\nbuild it\n";
        let nodes = nodes_of(text, &source);
        let contents: Vec<&str> = nodes.iter().map(|node| node.content.as_str()).collect();
        assert_eq!(
            contents,
            ["# Rules\n\nUse tabs.", "## Code\n````\n```\n# no heading\n````\nbuild it"]
        );
        assert_eq!(nodes[0].origin.as_deref(), Some("import CLAUDE.md"));
        let note = "---\ntype: decision\ndescription: why\n---\n# T\nbody\n";
        let nodes = nodes_of(note, &source);
        assert_eq!((nodes.len(), nodes[0].kind), (1, Some(NodeType::Decision)));
        assert_eq!(nodes[0].summary.as_deref(), Some("why"));
    }
}
