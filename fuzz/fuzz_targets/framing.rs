//! Fuzzes streams of JSON lines: no line is counted twice, regardless of its length, and all bytes
//! are read.
#![no_main]

use runner_text::jsonl::Jsonl;

libfuzzer_sys::fuzz_target!(|input: (u8, &[u8])| {
    let (cap, bytes) = input;
    let mut lines = Jsonl::<_, serde_json::Value>::new(bytes, usize::from(cap).max(1));
    let count = lines.by_ref().filter(Result::is_ok).count() as u64;
    let counts = lines.counts();
    assert!(counts.parsed <= count);
    // A NUL byte also separates records.
    let records = bytes.split(|byte| matches!(*byte, b'\n' | 0)).count() as u64;
    assert!(counts.parsed + counts.bad <= records);
    assert_eq!(lines.offset(), bytes.len() as u64);
});
