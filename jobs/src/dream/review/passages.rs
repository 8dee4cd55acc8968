//! Splits a text into passages, and finds those that another text does not contain.
//!
//! A passage is a heading, a list item with the items nested in it, a code block, or a paragraph.
//! Passages are compared without regard to whitespace. The module is pure.

use std::collections::BTreeSet;

/// Minimum indentation of a nested list item, in bytes.
const NESTED: usize = 2;

/// Returns the passages of `text` that `other` does not contain, as they are written, with the
/// blank lines that follow them. A passage of whole sentences is also contained in `other` if a
/// passage there contains these sentences in a row. The headings above a missing passage are also
/// returned, even if `other` contains them. Only the title is left out if `other` contains it.
pub(super) fn missing(text: &str, other: &str) -> String {
    let known: BTreeSet<String> = passages(other).map(normalized).collect();
    let is_known = |passage: &str| {
        let passage = normalized(passage);
        passage.is_empty()
            || known.contains(&passage)
            || known.iter().any(|known| has_sentences(known, &passage))
    };
    let mut missing = String::new();
    // The headings above the current passage, each with whether it must still be copied.
    let (mut above, mut has_title): (Vec<(&str, bool)>, bool) = (Vec::new(), false);
    for passage in passages(text) {
        let known = is_known(passage);
        if is_heading(passage) {
            above.retain(|(heading, _)| level(heading) < level(passage));
        }
        if !known {
            for (heading, open) in above.iter_mut().filter(|(_, open)| *open) {
                missing.push_str(heading);
                *open = false;
            }
            missing.push_str(passage);
        }
        if is_heading(passage) {
            let is_title = level(passage) == 1 && !has_title;
            has_title = true;
            above.push((passage, known && !is_title));
        }
    }
    missing
}

/// Returns the level of a heading, from 1.
fn level(heading: &str) -> usize {
    heading.len() - heading.trim_start_matches('#').len()
}

fn normalized(passage: &str) -> String {
    passage.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether `part` consists of whole sentences of `text`.
fn has_sentences(text: &str, part: &str) -> bool {
    let ends = |text: &str| text.ends_with(['.', '!', '?']);
    ends(part)
        && text.match_indices(part).any(|(at, _)| {
            let before = text[..at].trim_end();
            before.is_empty() || (before.len() < at && ends(before))
        })
}

/// Divides a text into passages, each with the blank lines that follow it.
fn passages(text: &str) -> impl Iterator<Item = &str> {
    let mut starts = vec![0];
    let (mut at, mut in_code, mut after_blank, mut after_heading) = (0, false, false, false);
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        let fence = bare.starts_with("```") || bare.starts_with("~~~");
        let begins = after_blank || after_heading || fence || is_heading(line) || is_item(line);
        if at > 0 && !in_code && !bare.is_empty() && begins {
            starts.push(at);
        }
        in_code ^= fence;
        after_blank = bare.is_empty();
        after_heading = is_heading(line);
        at += line.len();
    }
    let ends: Vec<usize> = starts[1..].iter().copied().chain([text.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| &text[start..end])
}

fn is_heading(line: &str) -> bool {
    let after = line.trim_start_matches('#');
    after.len() < line.len() && after.starts_with(char::is_whitespace)
}

/// Returns whether a line begins a list item that is not nested in another.
fn is_item(line: &str) -> bool {
    let bare = line.trim_start();
    let after = bare.trim_start_matches(|c: char| c.is_ascii_digit());
    let marker = match after.len() == bare.len() {
        true => after.strip_prefix(['-', '*', '+']),
        false => after.strip_prefix(['.', ')']),
    };
    line.len() - bare.len() < NESTED && marker.is_some_and(|it| it.starts_with([' ', '\t']))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Maps\n\nThe map of a region\nis offline.\n\n## Steps\n- Download tiles\n  - of a region\n- Show the age\n\n```sh\na\n\nb\n```\n";

    #[test]
    fn passages_cover_the_text() {
        let found: Vec<&str> = passages(TEXT).collect();
        assert_eq!(found.concat(), TEXT);
        assert_eq!(
            found,
            [
                "# Maps\n\n",
                "The map of a region\nis offline.\n\n",
                "## Steps\n",
                "- Download tiles\n  - of a region\n",
                "- Show the age\n\n",
                "```sh\na\n\nb\n```\n",
            ]
        );
        assert_eq!(passages("").collect::<String>(), "");
    }

    #[test]
    fn only_missing_passages_are_returned() {
        assert_eq!(missing(TEXT, ""), TEXT);
        assert_eq!(missing(TEXT, TEXT), "");
        let longer = TEXT.replace("- Show the age", "- Delete old tiles\n- Show   the age");
        assert_eq!(missing(TEXT, &longer.replace("region\nis", "region is")), "");
        assert_eq!(missing(&longer, TEXT), "## Steps\n- Delete old tiles\n");
        let titled = "# Maps\n\nA new sentence.\n\n## Steps\n- Show the age\n## Costs\nNone.\n";
        assert_eq!(missing(titled, TEXT), "A new sentence.\n\n## Costs\nNone.\n");
        let flat = "# Notes\n# Storage\n- evict\n# Network\n- retry\n";
        let expected = "# Storage\n- evict\n# Network\n- retry\n";
        assert_eq!(missing(flat, "# Notes\n# Storage\n# Network\n"), expected);
        let other = "# Cache\n## Storage\n### Limits\n- 1 GB\n## Network\n";
        let nested = "# Cache\n## Storage\n### Limits\n- 1 GB\n- evict\n### Quota\n- none\n## Network\n- retry\n";
        let expected = "## Storage\n### Limits\n- evict\n### Quota\n- none\n## Network\n- retry\n";
        assert_eq!(missing(nested, other), expected);
    }

    #[test]
    fn partial_sentences_are_not_contained() {
        let other = "It is not so that maps help. Maps are green. Nobody knows.\n\n- Add jitter\n";
        assert_eq!(missing("Maps are green.\n", other), "");
        assert_eq!(missing("maps help.\n", other), "maps help.\n");
        assert_eq!(missing("- Add\n", other), "- Add\n");
    }
}
