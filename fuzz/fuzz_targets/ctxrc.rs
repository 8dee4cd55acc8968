//! Any bytes as a project's `.ctxrc`: read or refused with its place, and never a panic.
#![no_main]

#[path = "../program.rs"]
mod program;
use program::{cli, config};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    config::fuzzed::ctxrc(bytes);
});
