//! Measures the time to analyze transcripts: `session_measure FILE...`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a measuring program"
)]

use std::time::Instant;

use runner_jobs::sessions::{analyze, sources::source};

fn main() {
    let files: Vec<_> = std::env::args().skip(1).collect();
    let begun = Instant::now();
    let (mut bytes, mut lines) = (0, 0);
    for file in &files {
        let source = source(file.into()).unwrap();
        let begun = Instant::now();
        let record = analyze(&source, &[], &|| false).unwrap();
        bytes += source.size;
        lines += record.tally.lines;
        if files.len() == 1 {
            println!("{} calls in {:?}", record.calls, begun.elapsed());
        }
    }
    println!("{} files, {lines} lines, {bytes} bytes in {:?}", files.len(), begun.elapsed());
}
