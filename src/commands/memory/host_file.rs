//! Adds hooks to the JSON settings of an agent's program, and removes them, without changing any
//! other byte.
//!
//! Only the inserted parts are generated; the rest of the file is copied. Nothing is inserted into
//! a file that is neither blank nor a JSON object.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The hooks to insert: each event, with the entry to add to its list.
pub type HookEntries = Vec<(&'static str, Value)>;

/// The names of the memory's hooks.
const NAMES: [&str; 5] = ["session-start", "prompt-submit", "stop", "session-end", "pre-compact"];

type Fields<'t> = BTreeMap<String, &'t RawValue>;

/// Returns the file's contents with the entries inserted, and the inserted strings. If the contents
/// are blank, returns a new file that contains only the entries.
///
/// # Errors
/// Returns an error if the contents are not a JSON object, if `hooks` is not an object, or if the
/// value of one of the events is not a list.
pub fn insert(text: &str, entries: &HookEntries) -> Result<(String, Vec<String>), String> {
    if text.trim().is_empty() {
        let hooks: serde_json::Map<String, Value> =
            entries.iter().map(|(event, entry)| ((*event).to_owned(), json!([entry]))).collect();
        let whole = pretty(&json!({ "hooks": hooks }), 0) + "\n";
        return Ok((whole.clone(), vec![whole]));
    }
    let mut text = text.to_owned();
    let mut inserted = Vec::new();
    for (event, entry) in entries.iter().rev() {
        let (at, snippet) = place(&text, event, entry)?;
        text.insert_str(at, &snippet);
        inserted.push(snippet);
    }
    Ok((text, inserted))
}

/// Returns the file's contents without the strings inserted by [`insert`], or `None` if one of
/// these strings no longer occurs exactly once.
pub fn remove(text: &str, inserted: &[String]) -> Option<String> {
    let mut text = text.to_owned();
    for snippet in inserted.iter().rev() {
        let mut found = text.match_indices(snippet.as_str()).map(|(at, _)| at);
        let (at, others) = (found.next()?, found.next());
        if others.is_some() {
            return None;
        }
        text.replace_range(at..at + snippet.len(), "");
    }
    Some(text)
}

/// Returns whether the file contains each of the entries, and no other hooks of runner's memory.
pub fn is_complete(text: &str, entries: &HookEntries) -> bool {
    let Ok(settings) = serde_json::from_str::<Value>(text) else { return false };
    let has = |(event, entry): &(&str, Value)| {
        settings["hooks"][*event].as_array().is_some_and(|list| list.contains(entry))
    };
    // The hooks of a program with another name are not recognized, so they are not counted.
    let own = entries.iter().map(|(_, entry)| own_in(entry)).sum::<usize>();
    entries.iter().all(has) && own_hooks(text).is_ok_and(|found| found.len() == own)
}

/// Returns the position in the settings of each hook that calls runner's memory, such as
/// `hooks.Stop[1]`.
///
/// # Errors
/// Returns an error if the contents are neither blank nor JSON.
pub fn own_hooks(text: &str) -> Result<Vec<String>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let settings: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    for (event, list) in settings["hooks"].as_object().into_iter().flatten() {
        for (at, entry) in list.as_array().into_iter().flatten().enumerate() {
            out.extend((0..own_in(entry)).map(|_| format!("hooks.{event}[{at}]")));
        }
    }
    Ok(out)
}

/// Returns how many of an entry's hooks call runner's memory.
fn own_in(entry: &Value) -> usize {
    entry["hooks"].as_array().into_iter().flatten().filter(|hook| is_own(hook)).count()
}

/// Returns whether a hook's command contains a program whose name begins with "runner", followed by
/// `hook` and the name of a memory hook. Variables may precede the program, and global options may
/// follow it.
fn is_own(hook: &Value) -> bool {
    let words = hook["args"].as_array().into_iter().flatten();
    let words = hook["command"].as_str().into_iter().chain(words.filter_map(Value::as_str));
    let line = words.collect::<Vec<_>>().join(" ").replace(['\'', '"'], "");
    NAMES.iter().any(|name| {
        let Some((program, rest)) = line.split_once(&format!(" hook {name}")) else { return false };
        let is_runner =
            |word: &str| word.rsplit('/').next().is_some_and(|it| it.starts_with("runner"));
        program.split(' ').any(is_runner) && (rest.is_empty() || rest.starts_with(' '))
    })
}

/// Returns where to insert an entry, and the string to insert.
fn place(text: &str, event: &str, entry: &Value) -> Result<(usize, String), String> {
    let fields = |raw: &str, what: &str| -> Result<(), String> {
        serde_json::from_str::<Fields<'_>>(raw)
            .map(drop)
            .map_err(|error| format!("{what}: {error}"))
    };
    fields(text, "the file is not a JSON object")?;
    let top: Fields<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let offset = |raw: &RawValue| raw.get().as_ptr() as usize - text.as_ptr() as usize;
    let Some(hooks) = top.get("hooks") else {
        let value = json!({ event: [entry] });
        let at = text.find('{').map_or(0, |at| at + 1);
        return Ok((at, item(&format!("\"hooks\": {}", pretty(&value, 2)), 2, top.is_empty())));
    };
    fields(hooks.get(), "hooks is not an object")?;
    let inner: Fields<'_> = serde_json::from_str(hooks.get()).map_err(|error| error.to_string())?;
    let Some(list) = inner.get(event) else {
        let value = format!("\"{event}\": {}", pretty(&json!([entry]), 4));
        return Ok((offset(hooks) + 1, item(&value, 4, inner.is_empty())));
    };
    let all: Vec<&RawValue> = serde_json::from_str(list.get())
        .map_err(|error| format!("hooks.{event} is not a list: {error}"))?;
    Ok((offset(list) + 1, item(&pretty(entry, 6), 6, all.is_empty())))
}

/// Formats a new first item of a list or an object. `alone` means that it is the only item.
fn item(text: &str, indent: usize, alone: bool) -> String {
    let comma = if alone { "" } else { "," };
    format!("\n{}{text}{comma}", " ".repeat(indent))
}

/// Formats a value on several lines, and indents each line after the first by `indent` spaces.
fn pretty(value: &Value, indent: usize) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.replace('\n', &format!("\n{}", " ".repeat(indent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> HookEntries {
        vec![("SessionStart", json!({"hooks": [{"command": "a"}]})), ("Stop", json!({"hooks": []}))]
    }

    #[test]
    fn removal_restores_every_byte() {
        for text in [
            "{}",
            "{ }\n",
            "{\r\n\t\"model\": \"x\",\r\n  \"n\":1.50e2 }",
            "{\"hooks\":{}}",
            "{\"hooks\": {\"Stop\": [ ], \"Other\": [1]}, \"z\": \"\\u00e9\"}",
            "{\"a\":1,\"hooks\":{\"Stop\":[{\"hooks\":[{\"command\":\"mine\"}]}],\"SessionStart\":[{}]}}",
        ] {
            let (with, inserted) = insert(text, &entries()).unwrap();
            let value: Value =
                serde_json::from_str(&with).unwrap_or_else(|it| panic!("{with}: {it}"));
            assert_eq!(value["hooks"]["SessionStart"][0]["hooks"][0]["command"], "a", "{with}");
            assert_eq!(value["hooks"]["Stop"][0]["hooks"], json!([]), "{with}");
            assert_eq!(remove(&with, &inserted).as_deref(), Some(text));
            let edited = with.replacen('{', "{ \"added\": 1,", 1);
            let left = remove(&edited, &inserted).unwrap();
            assert_eq!(left, text.replacen('{', "{ \"added\": 1,", 1));
        }
        let (with, inserted) = insert("", &entries()).unwrap();
        assert_eq!(remove(&with, &inserted).as_deref(), Some(""));
        assert_eq!(remove("{}", &inserted), None);
    }

    #[test]
    fn own_hooks_are_recognized() {
        for (hook, own) in [
            (json!({"command": "/opt/my tools/runner", "args": ["hook", "stop"]}), true),
            (json!({"command": "'/opt/it'\\''s/runner' hook pre-compact --host codex"}), true),
            (json!({"command": "runner hook stop --db x"}), true),
            (json!({"command": "A=1 /opt/runner -C /p hook stop"}), true),
            (json!({"command": "runner", "args": ["hook", "post-tool-use"]}), false),
            (json!({"command": "/bin/ctx hook stop"}), false),
            (json!({"command": "/bin/runner-memory hook stopwatch"}), false),
            (json!({"command": ["runner hook stop"]}), false),
        ] {
            assert_eq!(is_own(&hook), own, "{hook}");
        }
        let text = json!({"hooks": {"Stop": [{}, {"hooks": [{"command": "runner hook stop"}]}]}});
        assert_eq!(own_hooks(&text.to_string()).unwrap(), ["hooks.Stop[1]"]);
        assert!(own_hooks("").unwrap().is_empty() && own_hooks("not json").is_err());
    }

    #[test]
    fn complete_entries_are_recognized_for_any_program_name() {
        for program in ["runner", "/opt/night"] {
            let hook = json!({"command": program, "args": ["hook", "stop"]});
            let entries = vec![("Stop", json!({ "hooks": [hook] }))];
            let (with, _) = insert("", &entries).unwrap();
            assert!(is_complete(&with, &entries), "{with}");
            assert!(!is_complete("{}", &entries));
            let other = vec![("Stop", json!({"hooks": [{"command": "runner hook stop"}]}))];
            let (doubled, _) = insert(&with, &other).unwrap();
            assert!(!is_complete(&doubled, &entries), "{doubled}");
        }
    }

    #[test]
    fn unexpected_structures_are_refused() {
        for text in ["[]", "not json", "{\"hooks\": []}", "{\"hooks\": {\"Stop\": {}}}", "{} {}"] {
            assert!(insert(text, &entries()).is_err(), "{text}");
        }
    }
}
