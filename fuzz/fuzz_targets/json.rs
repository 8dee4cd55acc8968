//! Fuzzes the extraction of an array from an answer: any text gives elements or a reason, and elements
//! that were extracted are extracted again from their own text.
#![no_main]

use runner_text::json_extract::extract_array;
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(elements) = extract_array(text) {
        let good: Vec<Value> = elements.into_iter().filter_map(Result::ok).collect();
        let written = serde_json::to_string(&good).unwrap();
        let again: Vec<Value> =
            extract_array(&written).unwrap().into_iter().map(|it| it.unwrap()).collect();
        assert_eq!(again, good);
    }
});
