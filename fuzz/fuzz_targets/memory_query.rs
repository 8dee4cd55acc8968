//! Fuzzes memory queries: any text is either a valid query or refused with a column within the text
//! or directly after it, and never causes a panic.
#![no_main]

use runner_memory::MemoryError;
use runner_memory::query::parse;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(MemoryError::Syntax { column, why, .. }) = parse(text) {
        assert!((1..=text.chars().count() + 1).contains(&column), "{column}: {why}");
    }
});
