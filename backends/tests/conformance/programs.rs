//! Tests behaviour that is specific to `command` backends: files in the run folder and the
//! environment.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runner_backends::{Backend, NullSink, Request, VecSink, build};
use runner_engine::process::Cancel;
use serde_json::{Value, json};

use super::{Situation as S, around, ask, block_on, command, place, request, spec};

#[test]
fn run_folder_has_no_stale_answer() {
    let (place, run_dir) = place();
    fs::write(run_dir.join("proposals.json"), "[\"of an earlier attempt\"]").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", run_dir.join("request.json")).unwrap();
    let case = command(S::Empty, place.path()).unwrap();
    let request = request(S::Empty, &run_dir, 1);
    let error = ask(S::Empty, &case, &request, &mut VecSink::default()).unwrap_err();
    assert_eq!(error.to_string(), "exited with code 0 without an answer");
    let written = fs::read(run_dir.join("request.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Request>(&written).unwrap(), request);
}

#[test]
fn answer_file_takes_precedence_over_stdout() {
    let (place, run_dir) = place();
    let case = command(S::GoodInAFile, place.path()).unwrap();
    let request = request(S::GoodInAFile, &run_dir, 1);
    let reply = ask(S::GoodInAFile, &case, &request, &mut VecSink::default()).unwrap();
    let ignored = "15 bytes on stdout were ignored: proposals.json is the answer";
    assert_eq!((reply.usage, reply.notes), (None, vec![ignored.to_owned()]));
}

#[test]
fn prose_is_accepted_without_a_schema() {
    let (place, run_dir) = place();
    let case = command(S::Prose, place.path()).unwrap();
    let request = Request { schema: None, ..request(S::Prose, &run_dir, 1) };
    let reply = ask(S::Prose, &case, &request, &mut VecSink::default()).unwrap();
    assert!(reply.text.starts_with("Sure!"));
    assert_eq!(reply.value, None);
}

/// Builds a command backend without the additional settings of the suite.
fn program(place: &Path, script: &str, more: Value) -> Arc<dyn Backend> {
    let file = place.join("agent.sh");
    fs::write(&file, script).unwrap();
    let mut settings = json!({ "program": "/bin/sh", "args": [file] });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let env = [("PATH", "/usr/bin:/bin"), ("NAMED", "given"), ("OTHER", "kept back")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
    build(&spec("command", settings), &around(&env.into())).unwrap()
}

#[test]
fn quiet_program_has_only_its_total_deadline() {
    let (place, run_dir) = place();
    let backend = program(place.path(), "sleep 0.3; echo '[1]'", json!({ "quiet": true }));
    let mut request = request(S::Good, &run_dir, 1);
    request.limits.first_byte = Duration::from_millis(50);
    let cancel = Cancel::new().unwrap();
    let reply = block_on(backend.run(&request, &mut NullSink, &cancel)).unwrap();
    assert_eq!(reply.value, Some(json!([1])));
}

#[test]
fn program_sees_only_default_and_named_variables() {
    let (place, run_dir) = place();
    let script = "printf '[\"%s\", \"%s\", \"%s\"]' \"$RUNNER_RUN\" \"$NAMED\" \"${OTHER-absent}\"";
    let backend = program(place.path(), script, json!({ "env": ["NAMED"] }));
    let request = request(S::Good, &run_dir, 1);
    let cancel = Cancel::new().unwrap();
    let reply = block_on(backend.run(&request, &mut NullSink, &cancel)).unwrap();
    assert_eq!(reply.value, Some(json!([request.id, "given", "absent"])));
}

#[test]
fn program_needs_no_run_folder() {
    let (place, _) = place();
    let backend = program(place.path(), "pwd >&2; cat", json!({}));
    let request = Request { run_dir: None, work: None, ..request(S::Good, place.path(), 1) };
    let cancel = Cancel::new().unwrap();
    let reply = block_on(backend.run(&request, &mut NullSink, &cancel)).unwrap();
    assert_eq!(reply.value, Some(serde_json::to_value(&request).unwrap()));
}
