//! Tests that the reference in the guide contains every setting as the types declare it, and that
//! the embedded schemas match the types.

#![allow(clippy::disallowed_methods, reason = "the test reads a variable and updates a file")]

use std::path::Path;
use std::{env, fs};

use super::reference::{Shapes, describe, is_shared, settings, shapes};

const BEGIN: &str = "<!-- The reference begins here; a test writes it. -->\n";
const END: &str = "<!-- The reference ends here. -->\n";

/// Returns the reference. It lists a setting that `[defaults]` and jobs share only in `[defaults]`.
fn table() -> String {
    let mut table =
        "| setting | value | default | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for setting in settings() {
        let common = setting.path.strip_prefix("jobs.*.").is_some_and(is_shared);
        if common && setting.kinds.is_empty() {
            continue;
        }
        let kinds = setting.kinds.join(", ");
        let kinds = if kinds.is_empty() { kinds } else { format!(" ({kinds})") };
        let default = setting.node.get("default");
        let default = default.map_or_else(String::new, |value| format!("`{value}`"));
        let meaning = setting.node["description"].as_str().unwrap_or_default();
        assert!(meaning.len() > 5 && meaning.ends_with('.'), "{}: {meaning:?}", setting.path);
        let cells =
            [describe(&setting.node), default, meaning.to_owned()].map(|it| it.replace('|', "\\|"));
        table.push_str(&format!("| `{}`{kinds} | {} |\n", setting.path, cells.join(" | ")));
    }
    table
}

#[test]
fn guide_lists_every_setting() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/configuration.md");
    let guide = fs::read_to_string(&path).unwrap();
    let (before, rest) = guide.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(&path, [before, BEGIN, &table(), END, after].concat()).unwrap();
        return;
    }
    assert!(
        found == table(),
        "the reference differs from the types; INSTA_UPDATE=always updates it"
    );
}

#[test]
fn embedded_schemas_match_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/schemas/shapes.json");
    if env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(&path, serde_json::to_string(&shapes()).unwrap() + "\n").unwrap();
        return;
    }
    let found: Shapes = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert!(
        found == shapes(),
        "the schemas differ from the types; INSTA_UPDATE=always updates them"
    );
}
