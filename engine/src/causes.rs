//! An error with all its causes, in one line: what a reason in the ledger or on a terminal is made of.

use std::error::Error;

/// The error and its causes, each that adds something, joined by colons.
pub fn whole(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the map")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn causes_are_told_once() {
        let error = Outer(std::io::Error::other("wet paper"));
        assert_eq!(whole(&error), "cannot read the map: wet paper");
    }
}
