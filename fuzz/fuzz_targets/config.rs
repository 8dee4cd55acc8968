//! Fuzzes `runner.toml`: any bytes are either valid or refused, and never cause a panic.
#![no_main]

#[path = "../program.rs"]
mod program;
use program::{config, ui};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    config::fuzzed::toml(bytes);
});
