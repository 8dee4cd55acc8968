//! Describes the API as an OpenAPI 3.1 document, from the tables of views and actions.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::actions::ACTIONS;
use super::views::{QueryFlag, QueryKind, VIEWS};

/// The media type of responses for views and actions.
const JSON: &str = "application/json";

/// The path prefix of the API.
pub const BASE: &str = "/api/v1";

/// A function that returns the schema of a command's response.
pub type AnswerSchemas = fn(&[&str], &mut SchemaGenerator) -> Option<Schema>;

/// Returns the description of the API.
pub fn document(answers: AnswerSchemas) -> Value {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let mut answer = |words: &[&str]| json!({ "schema": answers(words, &mut generator) });
    let mut paths: Map<String, Value> = Map::new();
    let mut add = |path: &str, method: &str, operation: Value| {
        let place = paths.entry(format!("{BASE}{path}")).or_insert_with(|| json!({}));
        place[method] = operation;
    };
    for view in VIEWS {
        let mut parameters = path_parameters(view.path);
        parameters.extend(view.query.iter().map(|flag| {
            json!({ "name": flag.name, "in": "query", "description": flag.summary, "schema": schema(flag) })
        }));
        let what = format!("The JSON of `runner {} --json`", shown(view.words));
        let mut described = operation(view.name, view.summary, &parameters, &what);
        described["responses"]["200"]["content"] = json!({ JSON: answer(view.words) });
        add(view.path, "get", described);
    }
    for action in ACTIONS {
        let mut parameters = path_parameters(action.path);
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "schema": { "type": "string", "maxLength": 200 },
            "description": "A repeated request with the same key has no further effect",
        }));
        let what = format!("The JSON of `runner {} --json`", shown(action.words));
        let mut described = operation(action.name, action.summary, &parameters, &what);
        described["responses"]["200"]["content"] = json!({ JSON: answer(action.words) });
        let fields: Map<String, Value> = action
            .fields
            .iter()
            .map(|field| {
                (field.name.to_owned(), json!({ "type": "string", "description": field.summary }))
            })
            .collect();
        described["requestBody"] = json!({ "content": { "application/json": { "schema": {
            "type": "object", "properties": fields, "additionalProperties": false
        } } } });
        add(action.path, "post", described);
    }
    for (path, name, summary, kind) in [
        (
            "/events",
            "events",
            "Changes to the database as server-sent events; Last-Event-ID resumes the stream",
            "text/event-stream",
        ),
        ("/runs/{run}/log", "log", "A run's log; the Range header selects bytes", "text/plain"),
        ("/openapi.json", "openapi", "This document", "application/json"),
    ] {
        let mut described = operation(name, summary, &path_parameters(path), summary);
        described["responses"]["200"]["content"] = json!({ kind: {} });
        add(path, "get", described);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "runner",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Views and actions of runner. Each runs a command and responds with the command's JSON.",
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{ "token": [] }],
    })
}

fn operation(name: &str, summary: &str, parameters: &[Value], answer: &str) -> Value {
    let problem = json!({ "description": "An error message, and the command that fixes the problem, if there is one", "content": {
        "application/json": { "schema": { "type": "object", "required": ["error"], "properties": {
            "error": { "type": "string" }, "fix": { "type": ["string", "null"] }
        } } }
    } });
    json!({
        "operationId": name,
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": { "description": answer, "content": { JSON: {} } },
            "4XX": problem,
        },
    })
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect()
}

fn schema(flag: &QueryFlag) -> Value {
    match flag.kind {
        QueryKind::Text => json!({ "type": "string" }),
        QueryKind::Present => json!({ "type": "string", "enum": ["1"] }),
        QueryKind::Count(most) => json!({ "type": "integer", "minimum": 1, "maximum": most }),
    }
}

fn shown(words: &[&str]) -> String {
    let words = words.iter().filter(|word| **word != "--").map(|word| word.replace(['{', '}'], ""));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_names_are_unique() {
        let document = document(|_, _| Some(Schema::default()));
        let mut names = Vec::new();
        for methods in document["paths"].as_object().unwrap().values() {
            for operation in methods.as_object().unwrap().values() {
                names.push(operation["operationId"].as_str().unwrap().to_owned());
            }
        }
        assert_eq!(names.len(), VIEWS.len() + ACTIONS.len() + 3);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), VIEWS.len() + ACTIONS.len() + 3);
    }
}
