//! Tests the API's responses against the schemas in its description, with an independent validator.

use boon::{Compiler, Draft, Schemas};
use serde_json::{Value, json};

use super::{Served, project};

/// The description of the API, as a validator reads it.
struct Description {
    document: Value,
    compiler: Compiler,
    schemas: Schemas,
}

impl Description {
    fn new(document: Value) -> Self {
        let mut compiler = Compiler::new();
        compiler.set_default_draft(Draft::V2020_12);
        compiler.add_resource("http://runner/api.json", document.clone()).unwrap();
        Self { document, compiler, schemas: Schemas::new() }
    }

    /// Checks that a response matches the schema of its operation.
    fn check(&mut self, path: &str, method: &str, answer: &Value) -> Result<(), String> {
        let path = format!("/api/v1{path}").replace('/', "~1");
        let place = format!(
            "http://runner/api.json#/paths/{path}/{method}/responses/200/content/application~1json/schema"
        );
        let schema =
            self.compiler.compile(&place, &mut self.schemas).map_err(|it| it.to_string())?;
        self.schemas
            .validate(answer, schema)
            .map_err(|error| format!("{path}: {error:#}\n{answer:#}"))
    }
}

#[test]
fn responses_match_their_schemas() {
    let fixture = project();
    fixture.write("plan.org", "* Tasks\n** TODO Boil water\n");
    fixture.run(&["night"]).ends(1);
    fixture.run(&["jobs", "run", "bad"]).ends(1);
    fixture.run(&["enqueue", "ok", "--at", "2h", "--set", "timeout=5m"]).ends(0);
    fixture.run(&["budget", "grant", "day", "calls=3", "--reason", "a long audit"]).ends(0);
    fixture.run(&["memory", "add", "Water boils at 100 degrees."]).ends(0);
    let served = Served::start(&fixture);
    let mut api = Description::new(served.api("/openapi.json"));
    let id = served.project();
    let first = |path: &str, field: &str| {
        served.api(path)[0][field].as_str().unwrap_or_else(|| panic!("{path} is empty")).to_owned()
    };
    let run = first("/runs?outcome=failed", "id");
    let proposal = first(&format!("/projects/{id}/proposals"), "id");
    let night = first(&format!("/projects/{id}/nights"), "night");
    let parts = [("project", &id), ("run", &run), ("proposal", &proposal), ("night", &night)];
    let fill = |path: &str| {
        parts.iter().fold(path.to_owned(), |path, (name, value)| {
            path.replace(&format!("{{{name}}}"), value)
        })
    };
    let paths = api.document["paths"].as_object().unwrap().clone();
    let mut checked = Vec::new();
    for (path, _) in paths.iter().filter(|(_, methods)| {
        !methods["get"]["responses"]["200"]["content"]["application/json"]["schema"].is_null()
    }) {
        let path = path.strip_prefix("/api/v1").unwrap();
        let answer = served.api(&fill(path));
        api.check(path, "get", &answer).unwrap();
        // An empty list matches any schema of its items, so it proves nothing.
        if !matches!(&answer, Value::Array(all) if all.is_empty()) {
            checked.push(path.to_owned());
            let wrong = if answer.is_array() { json!([{ "x": 1 }]) } else { json!([]) };
            assert!(api.check(path, "get", &wrong).is_err(), "{path} accepts {wrong}");
        }
    }
    assert!(checked.len() >= 16, "{checked:?}");
    for (path, body) in [
        ("/projects/{project}/jobs/{job}/runs", "{}"),
        ("/projects/{project}/jobs/{job}/pause", "{\"until\":\"2h\"}"),
        ("/projects/{project}/jobs/{job}/resume", "{}"),
        ("/projects/{project}/jobs/{job}/reset", "{}"),
        ("/pause", "{}"),
        ("/resume", "{}"),
        ("/runs/{run}/retry", "{}"),
        ("/projects/{project}/proposals/{proposal}/reject", "{\"note\":\"seen\"}"),
        ("/projects/{project}/proposals/{proposal}/undo", "{}"),
    ] {
        let token = format!("Bearer {}", served.secret("token"));
        let headers = [("Authorization", token.as_str()), ("Origin", &served.origin())];
        let to = format!("/api/v1{}", fill(path).replace("{job}", "bad"));
        let answer = served.send("POST", &to, &headers, body).ends(200).json();
        api.check(path, "post", &answer).unwrap();
        assert!(api.check(path, "post", &json!("x")).is_err(), "{path}");
    }
}

#[test]
fn every_response_has_a_schema() {
    let fixture = project();
    let served = Served::start(&fixture);
    let document = served.api("/openapi.json");
    let mut api = Description::new(document.clone());
    let mut count = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let content = &operation["responses"]["200"]["content"]["application/json"];
            if path.ends_with("/openapi.json") || content.is_null() {
                continue;
            }
            let schema = &content["schema"];
            assert!(schema["$ref"].is_string() || schema["type"].is_string(), "{path}: {schema}");
            let path = path.strip_prefix("/api/v1").unwrap();
            // Every response is an object or a list, so a working schema refuses a number.
            assert!(api.check(path, method, &json!(3)).is_err(), "{method} {path}");
            count += 1;
        }
    }
    assert!(count > 28, "{count}");
}
