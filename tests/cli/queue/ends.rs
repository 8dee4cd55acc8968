//! Tests cancelling and retrying runs.

use super::*;

#[test]
fn queued_runs_can_be_cancelled() {
    let fixture = fixture("");
    let queued = enqueue(&fixture, &["count", "--at", "23:00"]);
    let behind = enqueue(&fixture, &["count", "--after", &queued]);
    run(&fixture, &["cancel", &behind]).ends(0).expect_text("count will not run");
    let json = run(&fixture, &["cancel", &queued.to_lowercase(), "--json"]).ends(0).json();
    assert_eq!((&json["outcome"], &json["why"]), (&"cancelled".into(), &"manually".into()));
    run(&fixture, &["cancel", &queued])
        .ends(65)
        .expect_text("has already ended: cancelled: manually");
    clock(&fixture, "23:10");
    assert!(ticked(&fixture).is_empty());
}

#[test]
fn cancelling_ends_the_whole_process_tree() {
    let fixture = fixture("");
    let id = enqueue(&fixture, &["wait"]);
    let mut tick = busy(&fixture);
    let open = run(&fixture, &["retry", &id]).ends(65);
    assert!(open.err.contains("has not ended") && open.err.contains("running"), "{open:?}");
    run(&fixture, &["cancel", &id]).ends(0).expect_text("asked to end");
    assert!(ended_within(tick.id(), LIMIT), "the tick did not end");
    assert_eq!(tick.wait().unwrap().code(), Some(130));
    let row = shown(&fixture, &id);
    assert_eq!((&row["outcome"], &row["why"]), (&"cancelled".into(), &"manually".into()));
    assert_eq!(row["asked_to_end"], "manually");
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    assert!(!fixture.path(".runner/failed/wait.json").exists());
    assert!(ticked(&fixture).is_empty(), "the run was retried");
    run(&fixture, &["cancel", &id]).ends(65);
}

#[test]
fn retry_queues_another_attempt() {
    let fixture = fixture("");
    run(&fixture, &["run", "good"]).ends(1);
    let id = run(&fixture, &["runs", "--json"]).json()[0]["id"].as_str().unwrap().to_owned();
    let said = run(&fixture, &["retry", &id]).ends(0);
    assert!(said.out.contains("good queued: ready, waiting its turn; attempt 2"), "{said:?}");
    run(&fixture, &["retry", &id]).ends(65).expect_text("is queued");
    fixture.write("good", "");
    assert_eq!(ticked(&fixture), ["good"]);
    let runs = run(&fixture, &["runs", "--json"]).json();
    let second = runs.as_array().unwrap().iter().find(|run| run["attempt"] == 2);
    assert_eq!(second.unwrap()["outcome"], "succeeded");
    // A run can also be retried by another attempt's id, and after a success.
    let json = run(&fixture, &["retry", &id, "--json"]).ends(0).json();
    assert_eq!((&json["state"], &json["attempt"]), (&"queued".into(), &3.into()));
}

#[test]
fn retry_restarts_a_stopped_job() {
    let fixture = fixture(
        "[jobs.tidy]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"[ -e good ]\"]\ntrigger = \"every 1h\"\nretries = 0\n",
    );
    for hour in ["20:00", "21:00", "22:00", "23:00"] {
        clock(&fixture, hour);
        ticked(&fixture);
    }
    let status = run(&fixture, &["status", "--json"]).ends(0).json();
    let stopped = serde_json::json!([{ "job": "tidy", "failures_in_a_row": 3 }]);
    assert_eq!(status["projects"][0]["stopped"], stopped);
    run(&fixture, &["status"]).expect_text("STOPPED").expect_text("3 consecutive failures");
    clock(&fixture, "23:59");
    fixture.write("good", "");
    let runs = run(&fixture, &["runs", "--job", "tidy", "--json"]).json();
    run(&fixture, &["retry", runs[0]["id"].as_str().unwrap()]).ends(0);
    ticked(&fixture);
    let status = run(&fixture, &["status", "--json"]).ends(0).json();
    assert_eq!(status["projects"][0]["stopped"], serde_json::json!([]));
}

#[test]
fn unknown_or_ambiguous_run_is_refused() {
    let fixture = fixture("");
    run(&fixture, &["cancel", "01ZZ"]).ends(65).expect_text("no run 01ZZ");
    enqueue(&fixture, &["count", "--at", "23:00"]);
    enqueue(&fixture, &["count", "--at", "23:00"]);
    for command in ["cancel", "retry"] {
        run(&fixture, &[command, "01ZZ"]).ends(65).expect_text("no run 01ZZ");
        run(&fixture, &[command, "01ZZZZZZZZZZZZZZZZZZZZZZZZ"]).ends(65).expect_text("no run");
        run(&fixture, &[command, "01"]).ends(65).expect_text("2 runs begin with 01");
        run(&fixture, &[command, ""]).ends(2);
        run(&fixture, &[command]).ends(2);
    }
    assert_eq!(fixture.count("SELECT count(*) FROM runs WHERE state = 'queued'"), 2);
}
