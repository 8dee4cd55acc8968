//! Finds the `<ctx:…>` elements in the text of an answer.
//!
//! Elements in fenced or inline code are examples, not commands. Elements between the sentinels of
//! an injected block are not commands either. This module must never execute anything, and must
//! never take more than linear time.

use std::collections::HashMap;
use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag};
use runner_engine::digest::Digest;

/// The beginning of the first line of an injected block.
pub const BEGIN: &str = "<!-- ctx:";
/// The last line of an injected block.
pub const END: &str = "<!-- ctx:end -->";
/// The beginning of an element.
const OPEN: &str = "<ctx:";
/// Maximum number of elements in one string. If there are more, a problem is reported.
const MOST: usize = 200;

/// The commands that an element can contain.
const COMMANDS: [&str; 8] =
    ["remember", "recall", "summarize", "link", "supersede", "expand", "task", "status"];
/// The commands whose elements have content.
const WITH_CONTENT: [&str; 2] = ["remember", "summarize"];

/// One `<ctx:…>` element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The name of the command.
    pub name: String,
    pub attributes: HashMap<String, String>,
    /// The content without leading and trailing white space. Empty for a command without content.
    pub content: String,
    /// The short digest of the element's text.
    pub digest: String,
}

/// The elements of a string, and the problems with malformed ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elements {
    pub found: Vec<Element>,
    pub problems: Vec<String>,
}

impl Element {
    /// Returns an attribute, or `None` if it is missing or blank.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns whether an attribute is "true", "yes" or "1", or has no value.
    pub fn is_set(&self, name: &str) -> bool {
        let value = self.attributes.get(name).map(String::as_str);
        matches!(value, Some("true" | "yes" | "1" | ""))
    }
}

/// Finds the elements in a string, in order.
pub fn elements(text: &str) -> Elements {
    let mut out = Elements::default();
    if !text.contains(OPEN) {
        return out;
    }
    let hidden = Hidden::of(text);
    let mut at = 0;
    while let Some(found) = text[at..].find(OPEN) {
        let start = at + found;
        at = start + OPEN.len();
        if let Some(range) = hidden.around(start) {
            at = range.end.max(at);
            continue;
        }
        match element(text, start, &hidden) {
            Ok((element, end)) => {
                if hidden.exposes_command(text, at..end) {
                    out.problems.push(format!(
                        "<ctx:{0}> contains another command, which became part of its content; \
                         fix: put </ctx:{0}> before the command, or the command in code",
                        element.name
                    ));
                }
                at = end;
                match out.found.len() < MOST {
                    true => out.found.push(element),
                    false => {
                        out.problems.push(format!("more than {MOST} commands in one answer"));
                        return out;
                    }
                }
            }
            // A malformed element may require a search to the end of the text, so the number of
            // malformed elements is limited.
            Err(_) if out.problems.len() >= MOST => return out,
            Err(why) => out.problems.push(why),
        }
    }
    out
}

/// Removes injected blocks from a string, so that injected text is never remembered.
pub fn without_injected(text: &str) -> String {
    let mut out = String::new();
    let mut at = 0;
    for range in injected(text) {
        out.push_str(&text[at..range.start]);
        at = range.end;
    }
    out + &text[at..]
}

/// Returns the ranges of injected blocks, including their sentinels.
fn injected(text: &str) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(BEGIN).map(|found| at + found) {
        if text[start..].starts_with(END) {
            at = start + END.len();
            continue;
        }
        let Some(end) = text[start..].find(END) else { break };
        at = start + end + END.len();
        out.push(start..at);
    }
    out
}

/// The ranges of a string in which no command is executed, in order and without overlaps.
struct Hidden(Vec<Range<usize>>);

impl Hidden {
    fn of(text: &str) -> Self {
        let mut all = injected(text);
        for (event, range) in Parser::new(text).into_offset_iter() {
            let code = match event {
                Event::Code(_) => true,
                Event::Start(Tag::CodeBlock(kind)) => matches!(kind, CodeBlockKind::Fenced(_)),
                _ => false,
            };
            if code {
                all.push(range);
            }
        }
        all.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<usize>> = Vec::new();
        for range in all {
            match merged.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Self(merged)
    }

    /// Returns the range that contains a position, if there is one.
    fn around(&self, at: usize) -> Option<&Range<usize>> {
        let next = self.0.partition_point(|range| range.end <= at);
        self.0.get(next).filter(|range| range.start <= at)
    }

    /// Returns whether the range contains the start of a command that is not hidden.
    fn exposes_command(&self, text: &str, range: Range<usize>) -> bool {
        let commands = text[range.clone()].match_indices(OPEN).filter(|(at, open)| {
            let rest = &text[range.start + at + open.len()..];
            COMMANDS.iter().any(|name| rest.starts_with(name))
        });
        commands.map(|(at, _)| range.start + at).any(|at| self.around(at).is_none())
    }
}

/// Parses the element at `start`. Returns the element and the position after it, or the reason why
/// it is not valid.
fn element(text: &str, start: usize, hidden: &Hidden) -> Result<(Element, usize), String> {
    let mut at = start + OPEN.len();
    let name: String = text[at..].chars().take_while(char::is_ascii_lowercase).take(20).collect();
    at += name.len();
    if !COMMANDS.contains(&name.as_str()) {
        return Err(format!("there is no command <ctx:{name}>"));
    }
    let mut attributes = HashMap::new();
    let empty = loop {
        let rest = &text[at..];
        at += rest.len() - rest.trim_start().len();
        let rest = &text[at..];
        if rest.starts_with("/>") {
            at += 2;
            break true;
        }
        if rest.starts_with('>') {
            at += 1;
            break false;
        }
        let (key, value, length) =
            attribute(rest).ok_or_else(|| format!("<ctx:{name}> has a malformed attribute"))?;
        at += length;
        attributes.insert(key, value);
    };
    let mut content = String::new();
    if WITH_CONTENT.contains(&name.as_str()) && !empty {
        let close = format!("</ctx:{name}>");
        let mut from = at;
        let end = loop {
            let found = text[from..].find(&close).map(|found| from + found);
            let Some(end) = found else { return Err(format!("<ctx:{name}> is not closed")) };
            match hidden.around(end) {
                Some(range) => from = range.end.max(end + close.len()),
                None => break end,
            }
        };
        content = without_injected(&text[at..end]).trim().to_owned();
        at = end + close.len();
    } else if !empty {
        // The element of a command without content may have an end tag.
        let close = format!("</ctx:{name}>");
        let rest = text[at..].trim_start();
        if let Some(after) = rest.strip_prefix(close.as_str()) {
            at = text.len() - after.len();
        }
    }
    if WITH_CONTENT.contains(&name.as_str()) && content.is_empty() {
        return Err(format!("<ctx:{name}> has no content"));
    }
    let digest = Digest::of(&text.as_bytes()[start..at]).short();
    Ok((Element { name, attributes, content, digest }, at))
}

/// Parses `key="value"`, `key='value'` or `key`. Returns the key, the value and the attribute's
/// length in bytes, or `None` if the attribute is malformed.
fn attribute(text: &str) -> Option<(String, String, usize)> {
    let key: String =
        text.chars().take_while(|c| c.is_ascii_alphabetic() || *c == '-').take(40).collect();
    if key.is_empty() {
        return None;
    }
    let Some(rest) = text[key.len()..].strip_prefix('=') else {
        let length = key.len();
        return Some((key, String::new(), length));
    };
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    // A value may end on a later line, but never after the start of another element.
    let end = rest[1..].find(quote)?;
    let value = &rest[1..1 + end];
    if value.contains(OPEN) {
        return None;
    }
    let value = value
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    let length = key.len() + 1 + 1 + end + 1;
    Some((key, value, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(text: &str) -> Vec<String> {
        elements(text).found.into_iter().map(|it| format!("{} {}", it.name, it.content)).collect()
    }

    #[test]
    fn elements_are_found_in_order() {
        let text = "I see. <ctx:remember type=\"fact\" tags='tier:reference, a'>\n  One\n   two\n</ctx:remember>\n\
            <ctx:recall query=\"text:&quot;a b&quot;\"/> and <ctx:status/><ctx:task name=\"x\" action=\"start\"></ctx:task>";
        let found = elements(text);
        assert_eq!(found.problems, [""; 0]);
        assert_eq!(names(text), ["remember One\n   two", "recall ", "status ", "task "]);
        assert_eq!(found.found[0].attribute("tags"), Some("tier:reference, a"));
        assert_eq!(found.found[1].attribute("query"), Some("text:\"a b\""));
    }

    #[test]
    fn code_contains_no_commands() {
        for text in [
            "```\n<ctx:status/>\n```",
            "~~~xml\n<ctx:status/>\n~~~",
            "an example: `<ctx:status/>`",
            "``a ` <ctx:status/>``",
            "- item\n  ```\n  <ctx:status/>\n  ```",
            "````\n```\n<ctx:status/>\n````",
            "```\nnever closed\n<ctx:status/>",
            "<!-- ctx: 1 node, 2 tokens -->\n<ctx:status/>\n<!-- ctx:end -->",
        ] {
            assert_eq!(names(text), [""; 0], "{text}");
        }
        assert_eq!(names("`a` <ctx:status/> `b`"), ["status "]);
        assert_eq!(names("```\na\n```\n<ctx:status/>"), ["status "]);
        assert_eq!(names("a lone ` and <ctx:status/>"), ["status "]);
        assert_eq!(names("```\n`\n```\n<ctx:status/> `x`"), ["status "]);
        let code = "<ctx:remember type=\"pattern\">Run:\n```\n</ctx:remember>\n```\nthen go</ctx:remember>";
        assert_eq!(names(code), ["remember Run:\n```\n</ctx:remember>\n```\nthen go"]);
    }

    #[test]
    fn malformed_elements_are_reported() {
        for text in [
            "<ctx:remember type=\"fact\"></ctx:remember>",
            "<ctx:remember type=\"fact\"> \n </ctx:remember>",
            "<ctx:remember type=\"fact\"/>",
            "<ctx:remember type=\"fact\">no end",
            "<ctx:forget id=\"1\"/>",
            "<ctx:recall query=x/>",
            "<ctx:recall query=\"x",
            "<ctx:",
        ] {
            let found = elements(text);
            assert_eq!((found.found.len(), found.problems.len()), (0, 1), "{text}");
        }
    }

    #[test]
    fn commands_in_content_are_reported() {
        let unclosed = "<ctx:remember>one\n<ctx:remember type=\"fact\">two</ctx:remember>";
        let quoted = "<ctx:remember>`<ctx:status/>` and <ctx:x> are quoted</ctx:remember>";
        for (text, problems) in [(unclosed, 1), (quoted, 0)] {
            let found = elements(text);
            assert_eq!((found.found.len(), found.problems.len()), (1, problems), "{text}");
            let content = text.split_once('>').unwrap().1.strip_suffix("</ctx:remember>");
            assert_eq!(Some(found.found[0].content.as_str()), content);
        }
    }

    #[test]
    fn injected_blocks_are_removed() {
        let text =
            "a <!-- ctx: 2 nodes -->\nold\n<!-- ctx:end --> b <!-- ctx:end --> <!-- ctx: open";
        assert_eq!(without_injected(text), "a  b <!-- ctx:end --> <!-- ctx: open");
        let kept = names("<ctx:remember>x <!-- ctx: 1 -->y<!-- ctx:end --></ctx:remember>");
        assert_eq!(kept, ["remember x"]);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(
            parts in prop::collection::vec(prop_oneof![
                Just("<ctx:remember>"), Just("</ctx:remember>"), Just("`"), Just("```\n"), Just("x\n"),
                Just("<ctx:status/>"), Just("<!-- ctx:"), Just("<!-- ctx:end -->"), Just("é"), Just("\""),
                Just("<ctx:task name="), Just("/>"), Just("> "), Just("    "), Just("\n\n"),
            ], 0..24)
        ) {
            let text = parts.concat();
            let found = elements(&text);
            for element in &found.found {
                prop_assert_eq!(&without_injected(&element.content), &element.content);
            }
            let _ = without_injected(&text);
        }
    }
}
