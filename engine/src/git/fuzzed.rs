//! Checks properties that the parsers have for any output of git. A fuzz target and a test that
//! generates its own input call this module.
//!
//! This module must never call git.

use super::changes::{entries, records};
use super::commit::tree_entries;
use super::private::refs::{Head, head};

/// Checks the parsers of listings, tree objects and `HEAD`.
///
/// # Panics
/// Panics if a property does not hold.
pub fn output(bytes: &[u8]) {
    let nuls = bytes.iter().filter(|byte| **byte == 0).count();
    assert!(records(bytes).len() <= nuls, "each record contains a NUL");
    assert!(entries(&records(bytes)).count() <= nuls, "each record is at most one entry");
    for length in [20, 32] {
        let Some(tree) = tree_entries(bytes, length) else { continue };
        assert!(tree.len() * (length + 2) <= bytes.len(), "more entries than bytes");
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some(Head::Branch(name)) = head(text)
    {
        assert!(!name.contains("..") && !name.starts_with('/'), "{name:?} leads out of the folder");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_output_satisfies_the_properties(parts in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                prop::sample::select(vec![
                    b"100644 ".to_vec(), b"\0".to_vec(), b"\t".to_vec(), b"ref: refs/heads/".to_vec(),
                    b"  ctime: 1:2\n  mtime: 3:4\n".to_vec(), vec![b'a'; 40], b"../".to_vec(),
                ]),
            ],
            0..12,
        )) {
            super::output(&parts.concat());
        }
    }
}
