//! Fuzzes the input of session hooks: any bytes parse as a payload, and any text can be searched
//! for elements without a panic. Removing the injected blocks from a text leaves no further block.
#![no_main]

use runner_memory::element::{elements, without_injected};
use runner_memory::hooks::Payload;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let payload = Payload::parse(bytes);
    let text = payload.prompt.unwrap_or_else(|| String::from_utf8_lossy(bytes).into_owned());
    let _found = elements(&text);
    let own = without_injected(&text);
    assert_eq!(without_injected(&own), own);
});
