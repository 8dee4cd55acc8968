//! Extracts a note's anchors, and its links, code spans and plain text with their line numbers.

use std::collections::HashMap;

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};
use runner_text::front_matter;

/// The references and the text of a note.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Links, with line numbers.
    pub(super) links: Vec<(Link, usize)>,
    /// The anchors that a `#…` link may refer to.
    pub(super) anchors: Vec<String>,
    /// Code spans, with line numbers.
    pub(super) code: Vec<(String, usize)>,
    /// Plain text, with line numbers.
    pub(super) text: Vec<(String, usize)>,
}

/// The target of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// `[text](target)`.
    Plain(String),
    /// `[[target]]`.
    Wiki(String),
}

pub(super) fn parts(text: &str) -> Parts {
    let document = front_matter::split(text);
    let begin = document.body_start();
    let body = document.body();
    let lines = Lines::of(text);
    let mut parts = Parts::default();
    let mut heading: Option<String> = None;
    let mut slugs: HashMap<String, usize> = HashMap::new();
    let mut block = false;
    let options = Options::ENABLE_WIKILINKS
        | Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_HEADING_ATTRIBUTES;
    for (event, range) in Parser::new_ext(body, options).into_offset_iter() {
        let line = lines.at(begin + range.start);
        match event {
            Event::Start(
                Tag::Link { link_type, dest_url, .. } | Tag::Image { link_type, dest_url, .. },
            ) => {
                let to = dest_url.into_string();
                let link = match link_type {
                    LinkType::WikiLink { .. } => Link::Wiki(to),
                    LinkType::Email | LinkType::Autolink => continue,
                    _ => Link::Plain(to),
                };
                parts.links.push((link, line));
            }
            Event::Start(Tag::Heading { id, .. }) => {
                parts.anchors.extend(id.map(|id| id.to_string()));
                heading = Some(String::new());
            }
            Event::End(TagEnd::Heading(_)) => {
                let base = slug(&heading.take().unwrap_or_default());
                let count = slugs.entry(base.clone()).or_default();
                parts.anchors.push(match *count {
                    0 => base,
                    again => format!("{base}-{again}"),
                });
                *count += 1;
            }
            Event::Start(Tag::CodeBlock(_)) => block = true,
            Event::End(TagEnd::CodeBlock) => block = false,
            Event::Code(code) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&code);
                }
                parts.code.push((code.into_string(), line));
            }
            Event::Text(words) if !block => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
                parts.text.push((words.into_string(), line));
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                parts.anchors.extend(named(&html));
            }
            _ => {}
        }
    }
    parts
}

/// Returns the anchors defined by `id="…"` and `name="…"`.
fn named(html: &str) -> Vec<String> {
    let mut found = Vec::new();
    for key in ["id=\"", "name=\"", "id='", "name='"] {
        let quote = if key.ends_with('"') { '"' } else { '\'' };
        for part in html.split(key).skip(1) {
            found.extend(part.split(quote).next().map(str::to_owned));
        }
    }
    found
}

/// Converts a heading to the anchor that code forges generate for it.
pub(super) fn slug(heading: &str) -> String {
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c),
            _ => None,
        })
        .collect()
}

/// The offsets at which lines begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self(std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect())
    }

    fn at(&self, byte: usize) -> usize {
        self.0.partition_point(|begin| *begin <= byte)
    }
}
