//! Formats counts and lists for human readers. Programs must never parse the result.

use std::fmt::Display;

/// Formats a count with its noun, given in the singular: "1 run", "2 runs", "0 entries". Only
/// plural forms that occur in the program are supported.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str) -> String {
    if count == N::from(1) {
        return format!("{count} {one}");
    }
    let before = |ending: &str| one.strip_suffix(ending);
    match before("y") {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{count} {stem}ies"),
        _ if ["s", "x", "ch", "sh"].iter().any(|it| one.ends_with(it)) => {
            format!("{count} {one}es")
        }
        _ => format!("{count} {one}s"),
    }
}

/// Joins the first twelve names with commas and counts the rest. Returns "none" if there are no
/// names.
pub fn some_of<'n>(names: impl Iterator<Item = &'n str>) -> String {
    const MOST: usize = 12;
    let names: Vec<&str> = names.collect();
    let (first, more) = names.split_at(names.len().min(MOST));
    match (first, more.len()) {
        ([], _) => "none".to_owned(),
        (_, 0) => first.join(", "),
        (_, more) => format!("{}, and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_are_pluralized_by_count() {
        assert_eq!(counted(1_u64, "more idea"), "1 more idea");
        assert_eq!(counted(0_usize, "idea"), "0 ideas");
        for (one, many) in [
            ("entry", "2 entries"),
            ("day", "2 days"),
            ("process", "2 processes"),
            ("branch", "2 branches"),
            ("model call", "2 model calls"),
        ] {
            assert_eq!(counted(2_i64, one), many);
        }
    }
}
