//! Tests with malformed configurations. Each error must be reported with its line, and none may
//! cause a panic.

use super::*;

/// Prints a line even if the test harness captures output.
fn print_line(line: &str) {
    use std::io::Write as _;
    let _closed = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn mistyped_keys_are_located() {
    let keys = all();
    let names: BTreeSet<&str> = keys.iter().map(last).collect();
    let (mut count, mut hinted) = (0, 0);
    for key in keys {
        let name = last(key);
        let letters: Vec<char> = name.chars().collect();
        for at in 0..letters.len() {
            let mut dropped = letters.clone();
            dropped.remove(at);
            let mut swapped = letters.clone();
            swapped.swap(at, (at + 1).min(letters.len() - 1));
            for slip in [dropped, swapped] {
                let slip: String = slip.into_iter().collect();
                if slip.is_empty() || names.contains(slip.as_str()) {
                    continue;
                }
                let (text, line) = file(key, &slip, values(key).0);
                let error = resolved(text.as_bytes()).unwrap_err();
                // The error about a required key points to its table.
                let needed =
                    ["kind", "type", "program", "prompt", "to", "slots", "url", "recipient"]
                        .contains(&name);
                let named = line_named(&error, &text);
                assert!(named == line || needed && named == 1, "{text}: {error}");
                count += 1;
                hinted +=
                    usize::from(error.to_string().contains(&format!("did you mean {name:?}?")));
            }
        }
    }
    print_line(&format!("mistyped keys: {count}, {hinted} with the correct suggestion"));
    assert!(count > 300 && hinted * 10 > count * 8, "{hinted} of {count}");
}

#[test]
fn invalid_values_are_located() {
    let mut count = 0;
    for key in all() {
        let (good, bad) = values(key);
        let (text, _) = file(key, last(key), good);
        if let Err(error) = resolved(text.as_bytes()) {
            panic!("{text}: {error}");
        }
        for bad in bad {
            let (text, line) = file(key, last(key), bad);
            let Err(error) = resolved(text.as_bytes()) else {
                panic!("accepted: {text}");
            };
            assert_eq!(line_named(&error, &text), line, "{text}: {error}");
            count += 1;
        }
        // The key is set twice, with LF and CRLF line endings and after a byte order mark.
        let (text, line) = file(key, last(key), good);
        let twice = format!("{text}{} = {good}\n", last(key));
        let twice_crlf = twice.replace('\n', "\r\n");
        let marked = format!("\u{feff}{twice}");
        for text in [twice, twice_crlf, marked] {
            let error = resolved(text.as_bytes()).unwrap_err();
            assert_eq!(line_named(&error, &text), line + 1, "{text}: {error}");
            count += 1;
        }
    }
    print_line(&format!("bad values: {count}"));
    assert!(count > 600, "{count}");
}

#[test]
fn broken_texts_are_located() {
    let whole = uncommented();
    let (mut refused, mut fine) = (0, 0);
    let mut each = |bytes: &[u8]| match resolved(bytes) {
        Ok(_) => fine += 1,
        Err(error) => {
            line_named(&error, &String::from_utf8_lossy(&bytes[..bytes.len().min(200)]));
            refused += 1;
        }
    };
    for at in (0..whole.len()).step_by(11) {
        each(&whole.as_bytes()[..at]);
        for broken in [&b"\0"[..], b"\xff", b"\r", b"\"", b"]", b"\n[night]\n", b"=\x1b[2J"] {
            let bytes = [&whole.as_bytes()[..at], broken, &whole.as_bytes()[at..]].concat();
            each(&bytes);
        }
    }
    for deep in [80, 81, 1_000, 100_000] {
        each(format!("a = {}", "[".repeat(deep)).as_bytes());
        each(format!("a = {}{}", "[".repeat(deep), "]".repeat(deep)).as_bytes());
        each(format!("a = {}1{}", "{ b = ".repeat(deep), " }".repeat(deep)).as_bytes());
        each(format!("night{} = 1", ".at".repeat(deep)).as_bytes());
        each(format!("[night{}]", ".at".repeat(deep)).as_bytes());
        each(format!("{}\nat = 1", "[[night]]\n".repeat(deep.min(1_000))).as_bytes());
    }
    let odd = [
        "\"\" = 1",
        "\"a.b\" = 1",
        "'n\u{e9}' = 1",
        "日本 = 1",
        "[jobs.\"a.b\"]\nkind = \"command\"",
        "[jobs.\"\"]",
        "[backends.\"a.b\"]\ntpe = 1",
        "jobs = 3",
        "[[jobs]]",
        "jobs.dream = \"x\"",
        "night.budget = []",
        "[jobs.dream]\nbudget = 3",
        "[jobs.dream]\nbudget.calls = \"\"\"\n3\n\"\"\"",
        "night = { at = \"25:00\",\n length = \"x\" }",
        "a = 99999999999999999999999999",
        "a = 2026-13-40",
    ];
    for text in odd {
        each(text.as_bytes());
    }
    print_line(&format!("broken texts: {refused} refused, {fine} still valid"));
    assert!(refused > 300, "{refused}");
}

#[test]
fn mistakes_in_huge_files_are_located() {
    let filler = "# nothing\n".repeat(1_000_000);
    let lines = 1_000_000;
    let text = format!("{filler}[night]\nlenght = \"8h\"\n");
    let error = resolved(text.as_bytes()).unwrap_err();
    assert_eq!(line_named(&error, "comments"), lines + 2);
    assert!(error.message().len() < 1_000, "the excerpt is too long");
    assert!(resolved(filler.as_bytes()).is_ok());
    let long = format!("[night]\nat = \"{}\"\n", "x".repeat(10_000_000));
    let error = resolved(long.as_bytes()).unwrap_err();
    assert_eq!(line_named(&error, "a long value"), 2);
    let many: String = (0..400_000).map(|n| format!("key{n} = \"some text\"\n")).collect();
    let error = resolved(many.as_bytes()).unwrap_err();
    assert_eq!(line_named(&error, "many keys"), 1);
    assert!(error.message().len() < 2_000, "the excerpt is too long");
}

#[test]
fn huge_numbers_have_plain_messages() {
    for digits in 20..60 {
        for sign in ["", "-"] {
            let number = format!("{sign}{}", "9".repeat(digits));
            let text = format!("[jobs.dream]\nkind = \"dream\"\nmax_ideas = {number}\n");
            let error = resolved(text.as_bytes()).unwrap_err();
            assert_eq!(line_named(&error, &text), 3, "{error}");
            let said = error.to_string();
            assert!(!said.contains("i128") && !said.contains("u128"), "{said}");
            assert!(!said.contains("invalid type"), "{said}");
        }
    }
}
