//! Determines which agent tools write nothing, and where in their input the other tools name the
//! paths that they write.
//!
//! Agents gain tools with each version and can add any number from their own servers. The list
//! therefore contains the tools that are known to write no files. Every other tool must name paths,
//! and each path is checked, whatever its key is called; at worst, a path that is only read is
//! refused. This module must never let a tool pass because its name is unknown.

use serde_json::{Map, Value};

/// Tools that write no files themselves. The hook is also called for tools used by sub-agents.
const READS: [&str; 30] = [
    "Agent",
    "AskUserQuestion",
    "BashOutput",
    "EnterPlanMode",
    "ExitPlanMode",
    "Glob",
    "Grep",
    "KillBash",
    "KillShell",
    "LS",
    "LSP",
    "ListMcpResourcesTool",
    "NotebookRead",
    "Read",
    "ReadMcpResourceTool",
    "Skill",
    "SlashCommand",
    "StructuredOutput",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TodoRead",
    "TodoWrite",
    "ToolSearch",
    "WebFetch",
    "WebSearch",
];
/// Tools whose input is text except for these keys.
const WRITES: [(&str, &str); 4] = [
    ("Write", "file_path"),
    ("Edit", "file_path"),
    ("MultiEdit", "file_path"),
    ("NotebookEdit", "notebook_path"),
];
/// Keys whose values are paths. A key matches if it equals one of these or ends in one.
const PATHS: [&str; 19] = [
    "path",
    "paths",
    "file",
    "files",
    "filename",
    "filepath",
    "dir",
    "directory",
    "folder",
    "destination",
    "dest",
    "dst",
    "source",
    "src",
    "target",
    "output",
    "location",
    "uri",
    "cwd",
];
/// Keys whose values are commands or code to run.
const RUNS: [&str; 9] =
    ["command", "commands", "cmd", "script", "code", "shell", "exec", "program", "argv"];
/// Keys whose values are text, even if they look like paths.
const TEXTS: [&str; 12] = [
    "content",
    "contents",
    "text",
    "body",
    "description",
    "message",
    "query",
    "pattern",
    "prompt",
    "old_string",
    "new_string",
    "new_source",
];

/// Returns whether a tool is known to write nothing, either from the built-in list or because it
/// matches a name in `more`.
pub fn reads(tool: &str, more: &[String]) -> bool {
    READS.contains(&tool)
        || more.iter().any(|name| match name.strip_suffix('*') {
            Some(start) => tool.starts_with(start),
            None => tool == name,
        })
}

/// Returns every path that a tool names in its input.
///
/// # Errors
/// Returns an error if the tool names no path, if it names something to run, or if a value that
/// should be a path is not a string.
pub fn named<'a>(tool: &str, input: &'a Map<String, Value>) -> Result<Vec<&'a str>, String> {
    let mut found = Vec::new();
    if let Some((_, must)) = WRITES.iter().find(|(name, _)| *name == tool) {
        for (key, value) in input.iter().filter(|(key, _)| names_a_path(key)) {
            found.push(value.as_str().ok_or(format!("{tool}: {key} is not text"))?);
        }
        return match input.contains_key(*must) {
            true => Ok(found),
            false => Err(format!("{tool} names no file: it has no {must}")),
        };
    }
    for (key, value) in input {
        gather(tool, key, value, &mut found)?;
    }
    match found.is_empty() {
        true => Err(format!(
            "{tool} is not known and names no path that can be checked; if it writes nothing: --reads {tool}"
        )),
        false => Ok(found),
    }
}

fn gather<'a>(
    tool: &str,
    key: &str,
    value: &'a Value,
    found: &mut Vec<&'a str>,
) -> Result<(), String> {
    if under(key, &RUNS) {
        return Err(format!(
            "{tool} is not known, and what it runs ({key}) cannot be checked; use Bash"
        ));
    }
    match value {
        Value::String(text) if names_a_path(key) => found.push(text),
        Value::String(text) if !under(key, &TEXTS) && looks_like_a_path(text) => found.push(text),
        Value::Array(all) => {
            for one in all {
                gather(tool, key, one, found)?;
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                gather(tool, key, value, found)?;
            }
        }
        Value::Number(_) | Value::Bool(true) if names_a_path(key) => {
            return Err(format!("{tool}: {key} is not text"));
        }
        _ => {}
    }
    Ok(())
}

fn names_a_path(key: &str) -> bool {
    !TEXTS.contains(&key) && under(key, &PATHS)
}

/// Returns whether a key is one of these names or ends in one: `file_path`, `outputFile`,
/// `target-dir`.
fn under(key: &str, names: &[&str]) -> bool {
    let last = key.rfind(['_', '-', '.']).map_or(key, |at| &key[at + 1..]);
    let capital = last.rfind(|c: char| c.is_ascii_uppercase());
    let end = capital.map_or(last, |at| &last[at..]);
    [key, last, end].iter().any(|part| names.contains(&part.to_lowercase().as_str()))
}

fn looks_like_a_path(text: &str) -> bool {
    let text = text.trim_start();
    let starts = ["/", "~", "./", "../", "file:"];
    starts.iter().any(|start| text.starts_with(start)) || text.split('/').any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tools_that_write_must_name_paths() {
        let wanted: [(&str, Value, &[&str]); 5] = [
            ("Write", json!({"file_path": "a", "content": "/* x */"}), &["a"]),
            ("mcp__f__w", json!({"path": "a", "content": "/* x */"}), &["a"]),
            ("mcp__f__w", json!({"files": [{"outputFile": "a"}, {"to": "/b"}]}), &["a", "/b"]),
            ("New", json!({"where": "x/../y"}), &["x/../y"]),
            ("New", json!({"target-dir": "x"}), &["x"]),
        ];
        for (tool, input, wanted) in wanted {
            let found = named(tool, input.as_object().unwrap()).unwrap();
            assert_eq!(found, wanted, "{tool} {input}");
        }
        for (tool, input) in [
            ("Write", json!({"path": "a"})),
            ("Write", json!({"file_path": 3})),
            ("New", json!({})),
            ("New", json!({"text": "/etc"})),
            ("New", json!({"path": 3})),
            ("PowerShell", json!({"command": "ls", "path": "a"})),
        ] {
            assert!(named(tool, input.as_object().unwrap()).is_err(), "{tool} {input}");
        }
        assert!(reads("Read", &[]) && !reads("read", &[]) && !reads("mcp__a__b", &[]));
        assert!(reads("mcp__a__b", &["mcp__a__*".to_owned()]));
    }
}
