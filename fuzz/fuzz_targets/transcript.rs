//! Fuzzes session transcripts: any bytes are read to their end, and a second reader that starts
//! where the first one stopped reads nothing more.
#![no_main]

use runner_jobs::sessions::transcript::{LineGap, Transcript};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut transcript = Transcript::with_cap(bytes, LineGap::default(), 4096);
    let events = transcript.by_ref().filter(Result::is_ok).count() as u64;
    assert!(events <= bytes.len() as u64 + 1);
    let place = transcript.place();
    assert!(place.offset <= bytes.len() as u64);
    let rest = &bytes[usize::try_from(place.offset).unwrap()..];
    assert_eq!(Transcript::with_cap(rest, place, 4096).count(), 0);
});
