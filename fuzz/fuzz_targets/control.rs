//! Fuzzes the control protocol: writing a message and parsing it again does not change it.
#![no_main]

#[path = "../../src/daemon/protocol.rs"]
mod protocol;
use protocol::{Reply, Request};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<Request>(bytes) {
        let line = serde_json::to_vec(&request).unwrap();
        assert_eq!(serde_json::from_slice::<Request>(&line).unwrap(), request);
        assert!(!line.contains(&b'\n'));
    }
    if let Ok(reply) = serde_json::from_slice::<Reply>(bytes) {
        let line = serde_json::to_vec(&reply).unwrap();
        assert_eq!(serde_json::from_slice::<Reply>(&line).unwrap(), reply);
    }
});
