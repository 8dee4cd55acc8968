//! Fuzzes the extraction of an array from an answer: any text yields elements or an error, and
//! extracted elements can be extracted again from their own JSON.
#![no_main]

use runner_text::json_extract::extract_array;
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(elements) = extract_array(text) {
        let good: Vec<Value> = elements.into_iter().filter_map(Result::ok).collect();
        let written = serde_json::to_string(&good).unwrap();
        let again: Vec<Value> =
            extract_array(&written).unwrap().into_iter().map(|it| it.unwrap()).collect();
        assert_eq!(whole(again.into()), whole(good.into()));
    }
});

/// Replaces floating-point numbers, whose last digit may change when they are written.
fn whole(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => Value::Null,
        Value::Array(items) => items.into_iter().map(whole).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, it)| (key, whole(it))).collect(),
        other => other,
    }
}
