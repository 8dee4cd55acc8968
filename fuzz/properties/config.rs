//! Checks properties that hold for any bytes of a configuration file. The fuzz targets and a test
//! that generates its own input call these functions.
//!
//! This module must never read or write a file.

use std::borrow::Cow;

use super::ctxrc;
use super::overrides::Overrides;
use super::sources::{Layer, Sources, decoded};
use super::{DEFAULT, check_texts, merged, resolve};

/// Checks the bytes as a project's `runner.toml`. Returns whether the file is valid.
///
/// # Panics
/// Panics if a property does not hold.
pub fn toml(bytes: &[u8]) -> bool {
    judge("project", "runner.toml", bytes)
}

/// Checks the bytes as a project's `.ctxrc`. Returns whether the file is valid.
///
/// # Panics
/// Panics if a property does not hold.
pub fn ctxrc(bytes: &[u8]) -> bool {
    judge(ctxrc::NAME, ctxrc::FILE, bytes)
}

/// Checks that a run and `config check` agree on whether the file is valid, and returns whether it
/// is. Also checks the line and the text of each message.
fn judge(name: &'static str, file: &str, bytes: &[u8]) -> bool {
    let Ok(text) = decoded(file.as_ref(), bytes.to_vec()) else { return false };
    let lines = text.split('\n').count();
    let layer = |name, path: &str, text| Layer { name, path: path.into(), text };
    let sources = Sources {
        layers: vec![
            layer("default", "config/default.toml", Cow::Borrowed(DEFAULT)),
            layer(name, file, Cow::Owned(text)),
        ],
        given: Vec::new(),
    };
    let found = check_texts(sources.clone(), &Overrides::default());
    let read = merged(sources).map(|(table, sources)| resolve(&table, &sources).is_ok());
    let read = read.unwrap_or(false);
    assert_eq!(read, found.is_empty(), "{found:?}");
    for reported in &found {
        assert!(reported.line.is_none_or(|line| (1..=lines).contains(&line)), "{reported:?}");
        assert!(!reported.message.is_empty(), "{reported:?}");
        for insides in
            ["usize", "u32", "u64", "i64", "struct ", "invalid type", "variant", "missing field"]
        {
            // The file itself may contain this text.
            let shown = reported.message.contains(insides);
            assert!(!shown || String::from_utf8_lossy(bytes).contains(insides), "{reported:?}");
        }
    }
    read
}
