//! Checks the API's responses for a random database against the schemas in the API description.

use boon::{Compiler, Draft, Schemas};
use serde_json::Value;

use super::Sample;
use super::forms::{items, text};

/// Returns the schema violations in the responses, and the number of responses.
pub fn violations(sample: &Sample) -> (Vec<String>, usize) {
    let mut compiler = Compiler::new();
    compiler.set_default_draft(Draft::V2020_12);
    compiler.add_resource("http://runner/api.json", sample.api("/openapi.json")).unwrap();
    let mut schemas = Schemas::new();
    let mut found = Vec::new();
    let mut count = 0;
    let mut check = |operation: &str, path: &str| -> Value {
        let answer = sample.api(path);
        let place = format!("/api/v1{operation}").replace('/', "~1");
        let place = format!(
            "http://runner/api.json#/paths/{place}/get/responses/200/content/application~1json/schema"
        );
        let schema = compiler.compile(&place, &mut schemas).unwrap();
        let checked = schemas.validate(&answer, schema);
        found.extend(checked.err().map(|error| format!("{path}: {error:#}")));
        count += 1;
        answer
    };
    for run in items(&check("/runs", "/runs?limit=200")) {
        check("/runs/{run}", &format!("/runs/{}", text(run, "id")));
    }
    for night in items(&check("/projects/{project}/nights", "/~/nights")) {
        let path = format!("/~/nights/{}", text(night, "night"));
        check("/projects/{project}/nights/{night}", &path);
    }
    for (operation, path) in [
        ("/status", "/status"),
        ("/projects", "/projects"),
        ("/alerts", "/alerts?over=1"),
        ("/projects/{project}", "/~"),
        ("/projects/{project}/runs", "/~/runs"),
        ("/projects/{project}/jobs", "/~/jobs"),
        ("/projects/{project}/budget", "/~/budget"),
        ("/projects/{project}/settings", "/~/settings"),
    ] {
        check(operation, path);
    }
    (found, count)
}
