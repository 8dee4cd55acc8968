//! Extracts arrays from intact and damaged replies from programs and models.

use super::*;
use proptest::prelude::*;
use serde_json::json;

/// Formats values as JSON, and errors as `!` followed by the first eight characters at their
/// offset.
fn seen(text: &str) -> Result<Vec<String>, ExtractError> {
    let elements = extract_array(text)?;
    Ok(elements
        .iter()
        .enumerate()
        .map(|(at, element)| match element {
            Ok(value) => value.to_string(),
            Err(bad) => {
                assert_eq!(bad.index, at);
                let found: String = text[bad.offset..].chars().take(8).collect();
                format!("!{found}")
            }
        })
        .collect())
}

fn values(text: &str) -> Vec<Value> {
    extract_array(text).unwrap().into_iter().flatten().collect()
}

#[test]
fn array_is_found_in_surrounding_text() {
    let array = "[{\"id\":\"a\",\"t\":[\"x]\",\"{\"]},{\"id\":\"b\"}]";
    for text in [
        array.to_owned(),
        format!("\u{feff}\n {array} \n"),
        format!("Here it is:\n\n```json\n{array}\n```\nDone [1] and {{ok}}."),
        format!("```\n{array}\n```"),
        format!("```rust\nlet a = [1];\n```\n```JSON title=x\n{array}\n```\n"),
        format!("```json\n{array}"),
        format!("I checked [a] and - [ ] b, so: {array} Hope [that] helps."),
        format!("{array}\n\nThese are all."),
        format!("{{\"proposals\": {array}, \"count\": 2}}"),
        format!("First:\n```json\n{array}\n```\nagain:\n```json\n{array}\n```\n"),
        format!("[note] {array}"),
    ] {
        assert_eq!(seen(&text).unwrap(), [&array[1..26], "{\"id\":\"b\"}"], "{text}");
    }
}

#[test]
fn each_of_several_arrays_is_returned() {
    let text = "Draft: [{\"id\":1},{\"id\":2}]\n\nFinal: [{\"id\":3}]\n\n[{\"id\":3}]";
    let found = extract_arrays(text).unwrap();
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(extract_arrays("no"), Err(ExtractError::NoArray));
}

#[test]
fn missing_and_multiple_arrays_are_errors() {
    for text in ["", "  ", "no", "{\"id\":1}", "[see below]", "- [ ] todo", "call f([])"] {
        assert_eq!(seen(text), Err(ExtractError::NoArray), "{text}");
    }
    for text in [
        "[{\"a\":1}] or [{\"a\":2}]",
        "```json\n[{\"a\":1}]\n```\n```json\n[{\"a\":2}]\n```",
        "{\"x\":[{\"a\":1}],\"y\":[{\"a\":2}]}",
    ] {
        assert_eq!(seen(text), Err(ExtractError::Several { count: 2 }), "{text}");
    }
}

#[test]
fn empty_arrays_and_scalars_are_accepted() {
    assert_eq!(seen("[]"), Ok(vec![]));
    assert_eq!(seen(" [ ]\n"), Ok(vec![]));
    assert_eq!(seen("Nothing found.\n[]\nBye."), Ok(vec![]));
    assert_eq!(seen("```json\n[]\n```"), Ok(vec![]));
    assert_eq!(seen("[1, \"a\", null]").unwrap(), ["1", "\"a\"", "null"]);
}

#[test]
fn limits_are_enforced() {
    let long = " ".repeat(MAX_BYTES + 1);
    assert_eq!(seen(&long), Err(ExtractError::TooLong { bytes: MAX_BYTES + 1 }));
    let many = format!("[{}{{}}]", "{},".repeat(MAX_ELEMENTS));
    let count = MAX_ELEMENTS + 1;
    assert_eq!(seen(&many), Err(ExtractError::TooMany { count }));
    let deep = format!("[{}", "{\"a\":".repeat(5000));
    assert!(values(&deep).is_empty());
}

/// Three of the four elements are damaged, and one is intact.
#[test]
fn valid_element_of_corrupted_array_survives() {
    let text = r#"[
  {
    "id": "1111111111111111",
    "targets": ["ideas/a.md"],
    "rationale": "it says "done" in the log
  },
  {
    "id": "2222222222222222",
    "targets": ["ideas/b.md",
    "meta": {"id": "not me"}
  },
  {
    "id": "3333333333333333",
    "targets": ["ideas/c.md"],
    "rationale": "whole"
  },
  {
    "id": "4444444444444444",
    "targets": ["ideas/d.m"#;
    let elements = extract_array(text).unwrap();
    assert_eq!(elements.len(), 4);
    let good = json!({"id": "3333333333333333", "targets": ["ideas/c.md"], "rationale": "whole"});
    assert_eq!(elements[2], Ok(good));
    for at in [0, 1, 3] {
        let bad = elements[at].as_ref().unwrap_err();
        assert_eq!(bad.index, at);
        assert!(text[bad.offset..].starts_with("{\n"), "{bad}");
    }
    let message = elements[3].as_ref().unwrap_err().to_string();
    assert!(message.starts_with("element 3 at byte "), "{message}");
}

#[test]
fn damage_stays_within_its_element() {
    let good = |n: u8| format!("{{\"id\":\"{n}\",\"s\":[{{\"k\":1}},{{\"k\":2}}]}}");
    for bad in [
        r#"{"id":"x","s":"5" wide"}"#,
        r#"{"id":"x","s":"a "quoted" word"}"#,
        r#"{"id":"x","s":[{"k":1},{"k":2}}"#,
        r#"{"id":"x","s":[{"k":1},{"k":2}]"#,
        r#"{"id":"x","s":"never closed}"#,
        r#"{"id":"x","s":"}" and "{"}"#,
        r#"{"id":"x",,}"#,
        r#"{"id":"x","s":tru}"#,
        r#"{"id":"x" "s":1}"#,
        "{\"id\":\"x\",\"s\":\"\u{1}\"}",
        r#"{"id":"x","s":"\q"}"#,
        r#"{"id":"x","s":{"id":"nested"},}"#,
    ] {
        let text = format!("Sure:[{},{bad},{}] done", good(1), good(2));
        let expected = [good(1), format!("!{}", &bad[..8]), good(2)];
        assert_eq!(seen(&text).unwrap(), expected, "{text}");
    }
}

#[test]
fn text_between_elements_is_reported() {
    assert_eq!(seen("[{\"a\":1} {\"a\":2}]").unwrap(), ["{\"a\":1}", "{\"a\":2}", "![{\"a\":1}"]);
    assert_eq!(
        seen("[{\"a\":1}, oops {, {\"a\":2}, \"s\"").unwrap(),
        ["{\"a\":1}", "!oops {, ", "{\"a\":2}", "!\"s\""]
    );
    assert_eq!(seen("[{\"a\":1},]").unwrap(), ["{\"a\":1}", "![{\"a\":1}"]);
    assert_eq!(seen("[{\"a\":1}").unwrap(), ["{\"a\":1}", "![{\"a\":1}"]);
    assert_eq!(seen("[{\"a\":1}],{\"a\":2}]").unwrap()[..2], ["{\"a\":1}", "{\"a\":2}"]);
}

#[test]
fn hostile_texts_take_linear_time() {
    for piece in
        ["[{\"", "{\"a\":[", "[{\"a\":1,", "{\"a\":\"", "[{}x", "\n  {\"a\"", "[ ", "```\n["]
    {
        let text = format!("[{{\"a\":1 {}", piece.repeat(400_000 / piece.len()));
        let _ = extract_array(&text);
        let _ = extract_array(&text[1..]);
    }
}

fn element() -> impl Strategy<Value = Value> {
    let text = "([a-z\"\\\\{}\\[\\],:\n]|é){0,8}";
    (0..100_u8, text, prop::collection::vec(text, 0..3))
        .prop_map(|(id, why, targets)| json!({"id": id, "why": why, "targets": targets}))
}

proptest! {
    #[test]
    fn arrays_round_trip(
        elements in prop::collection::vec(element(), 1..6), pretty: bool, wrap in 0..4_u8,
    ) {
        let array = Value::Array(elements.clone());
        let array = if pretty { format!("{array:#}") } else { array.to_string() };
        let text = match wrap {
            0 => array,
            1 => format!("Here:\n```json\n{array}\n```\nBye [x]."),
            2 => format!("Here: {array}\nBye."),
            _ => format!("{{\"list\": {array}}}"),
        };
        prop_assert_eq!(values(&text), elements);
    }

    /// Checks that changing one byte after the start loses at most two elements.
    #[test]
    fn changed_byte_damages_few_elements(
        mut elements in prop::collection::vec(element(), 4..7),
        place in any::<prop::sample::Index>(), with in prop::sample::select(&b" x\"{}[],:\n\\"[..]),
        pretty: bool,
    ) {
        for (at, element) in elements.iter_mut().enumerate() {
            element["id"] = json!(at);
            element["why"] = json!(element["why"].as_str().unwrap_or("").replace(['{', '}', '"'], ""));
        }
        let array = Value::Array(elements.clone());
        let text = if pretty { format!("{array:#}") } else { array.to_string() };
        let mut bytes = text.into_bytes();
        let at = place.index(bytes.len());
        // On one line, the elements after an unclosed bracket may be read as part of its array.
        let unclosed = !pretty && (bytes[at] == b']' || with == b'[');
        if at > 4 && !unclosed && bytes[at].is_ascii() {
            bytes[at] = with;
        }
        let text = String::from_utf8(bytes).unwrap();
        if let Ok(found) = extract_array(&text) {
            let back = found.iter().flatten().filter(|v| elements.contains(v)).count();
            let whole = serde_json::from_str::<Value>(&text).is_ok();
            prop_assert!(whole || back + 2 >= elements.len(), "{} of {}: {}", back, elements.len(), text);
            let all = back == elements.len();
            prop_assert!(whole || all || found.iter().any(Result::is_err), "{}", text);
        }
    }

    #[test]
    fn arbitrary_text_yields_valid_positions(
        pieces in prop::collection::vec(
            prop::sample::select(&["[", "]", "{", "}", "\"", ":", ",", "\"a\":1", "\n", "  ", "\\",
                "```json\n", "```\n", "é", "{\"a\":1}", "{\"a\":", "[{\"a\":1"][..]),
            0..24,
        ),
    ) {
        let text = pieces.concat();
        if let Ok(elements) = extract_array(&text) {
            for (at, element) in elements.iter().enumerate() {
                if let Err(bad) = element {
                    prop_assert_eq!(bad.index, at);
                    prop_assert!(text.is_char_boundary(bad.offset));
                }
            }
        }
    }
}
