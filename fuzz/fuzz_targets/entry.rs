//! Fuzzes journal entries: rendering an entry and parsing it again does not change it.
#![no_main]

use runner_jobs::lifecycle::entry::{parse, render};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(entry) = parse("2026-06-10-1430", text) {
        let again = parse("2026-06-10-1430", &render(&entry));
        assert_eq!(again.as_ref(), Ok(&entry));
        let _ = (entry.claims(), entry.sections.warnings());
    }
});
