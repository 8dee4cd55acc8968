//! Fuzzes the transcript reader of the memory's hooks: a part that was read is never read again.
#![no_main]

use std::time::Duration;

use runner_memory::hooks::{Turn, read};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let name = format!("runner-fuzz-transcript-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, bytes).unwrap();
    let first = read(&path, Turn::default(), Duration::from_secs(60)).unwrap();
    assert!(first.end <= bytes.len() as u64);
    let unread = Turn { offset: first.end, ..Turn::default() };
    let rest = read(&path, unread, Duration::from_secs(60)).unwrap();
    assert!(rest.turns.iter().all(|turn| turn.segments.is_empty()));
    assert_eq!(rest.end, first.end);
});
