//! Fuzzes the output of git: any bytes are parsed without a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    runner_engine::git::fuzzed::output(bytes);
});
