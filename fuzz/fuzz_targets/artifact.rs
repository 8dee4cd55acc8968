//! Fuzzes session artifacts: writing an artifact and reading it again does not change it.
#![no_main]

use runner_jobs::sessions::artifact::Artifact;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(artifact) = Artifact::read(bytes) {
        let written = serde_json::to_vec(&artifact).unwrap();
        let again = Artifact::read(&written).unwrap();
        assert_eq!(serde_json::to_vec(&again).unwrap(), written);
    }
});
