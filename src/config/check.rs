//! All mistakes of a configuration, not only the first.
//!
//! The reader stops at the first; here it is asked again and again, each time with the last mistake
//! set aside by a value that is good and changes nothing else. Must never say "ok" where the reader
//! would not.

use toml::{Table, Value};

use super::overrides::Overrides;
use super::sources::{ConfigFinding, ConfigMistake, Sources, syntax_mistakes};
use super::{DEFAULT, Stack, merged, resolve, texts};

/// More than these help nobody.
const MOST: usize = 100;

/// Returns all mistakes of a configuration; empty for a valid one.
pub fn mistakes(stack: &Stack<'_>) -> Vec<ConfigFinding> {
    match texts(stack) {
        Ok(sources) => check_texts(sources, stack.overrides),
        Err(mistake) => vec![mistake.into()],
    }
}

/// Returns all mistakes of configuration texts that are already read.
pub(super) fn check_texts(sources: Sources, overrides: &Overrides) -> Vec<ConfigFinding> {
    let syntax: Vec<ConfigMistake> = sources.layers.iter().flat_map(syntax_mistakes).collect();
    if !syntax.is_empty() {
        return syntax.into_iter().take(MOST).map(Into::into).collect();
    }
    let (mut table, mut sources) = match merged(sources) {
        Ok(read) => read,
        Err(mistake) => return vec![mistake.into()],
    };
    let mut found = all(&mut table.clone(), &sources);
    if found.is_empty() {
        // Settings outside of the files are checked only if the files are valid.
        if let Err(failure) = overrides.lay_over(&mut table, &mut sources) {
            return vec![failure.into()];
        }
        found = all(&mut table, &sources);
    }
    found.into_iter().map(Into::into).collect()
}

/// Returns the mistakes of the merged files.
pub(super) fn all(table: &mut Table, sources: &Sources) -> Vec<ConfigMistake> {
    let mut found: Vec<ConfigMistake> = Vec::new();
    while found.len() < MOST {
        let Err(mistake) = resolve(&mut table.clone(), sources) else {
            break;
        };
        let aside = set_aside(table, &mistake.key);
        let said_before = found.iter().any(|known| known.said() == mistake.said());
        if said_before {
            break;
        }
        found.push(mistake);
        if !aside {
            break;
        }
    }
    found
}

/// Makes `key` good; false where nothing could be done.
fn set_aside(table: &mut Table, key: &str) -> bool {
    let default: Table = toml::from_str(DEFAULT).expect("the embedded default parses");
    let parts = parts(table, key);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let good = |text: &str| toml::from_str::<Table>(text).ok().map(Value::Table);
    let text = |text: &str| Some(Value::String(text.to_owned()));
    match parts.as_slice() {
        ["jobs", name] | ["jobs", name, "kind"] => {
            let spare = good("kind = \"command\"\nprogram = \"x\"\ntrigger = \"manual\"");
            // A name that is no good cannot stay.
            let spare = spare.filter(|_| super::good_name(name) && *name != super::REPORT_JOB);
            put(table, &["jobs", name], spare)
        }
        ["jobs", _, "program" | "prompt" | "to"] => put(table, &parts, text("x")),
        ["backends", name] | ["backends", name, "type"] => {
            put(table, &["backends", name], good("type = \"builtin\""))
        }
        ["channels", name] => {
            let spare = good("type = \"desktop\"").filter(|_| super::good_name(name));
            put(table, &parts, spare)
        }
        ["groups", name] => {
            let spare = good("slots = 1").filter(|_| super::good_name(name));
            put(table, &parts, spare)
        }
        ["pools", name] => {
            let spare = good("unlimited = true").filter(|_| super::good_name(name));
            put(table, &parts, spare)
        }
        ["groups", _, "slots"] => put(table, &parts, Some(Value::Integer(1))),
        // Any other key gets its default value; a key without a default is removed.
        _ => {
            let mut stated = Some(&default);
            let mut value = None;
            for part in &parts {
                value = stated.and_then(|table| table.get(*part));
                stated = value.and_then(Value::as_table);
            }
            put(table, &parts, value.cloned())
        }
    }
}

/// Splits a full key name into its parts. A part may contain dots itself.
fn parts(table: &Table, key: &str) -> Vec<String> {
    for (name, value) in table {
        let Some(rest) = key.strip_prefix(name.as_str()) else {
            continue;
        };
        if rest.is_empty() {
            return vec![name.clone()];
        }
        if let (Some(rest), Some(inner)) = (rest.strip_prefix('.'), value.as_table()) {
            let mut all = vec![name.clone()];
            all.extend(parts(inner, rest));
            return all;
        }
    }
    key.split('.').map(str::to_owned).collect()
}

fn put(table: &mut Table, path: &[&str], value: Option<Value>) -> bool {
    let [outer @ .., last] = path else {
        return false;
    };
    let mut inner = table;
    for part in outer {
        match inner.get_mut(*part).and_then(Value::as_table_mut) {
            Some(next) => inner = next,
            None => return false,
        }
    }
    match value {
        Some(value) => inner.insert((*last).to_owned(), value.clone()) != Some(value),
        None => inner.remove(*last).is_some(),
    }
}
