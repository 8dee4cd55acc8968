//! Tests pausing, and a daemon that respects the queue and pauses.

use super::*;

#[test]
fn paused_job_still_runs_manually() {
    let fixture =
        fixture("[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"every 1h\"\n");
    ticked(&fixture);
    let waiting = enqueue(&fixture, &["tidy"]);
    run(&fixture, &["pause", "tidy"])
        .ends(0)
        .expect_text("tidy is paused until you run `runner resume tidy`");
    clock(&fixture, "21:30");
    enqueue(&fixture, &["count"]);
    assert_eq!(ticked(&fixture), ["count"], "the pause does not affect exactly tidy");
    run(&fixture, &["status"])
        .expect_text("tidy until you run `runner resume tidy`")
        .expect_text("tidy: ready, but paused")
        .expect_text(&waiting);
    let status = run(&fixture, &["status", "--json"]).json();
    let paused = serde_json::json!([{ "job": "tidy", "until": null }]);
    assert_eq!(status["projects"][0]["paused"], paused);
    assert_eq!(status["projects"][0]["next"], serde_json::Value::Null);
    run(&fixture, &["run", "tidy"]).ends(0).expect_text("succeeded");
    run(&fixture, &["resume", "tidy"]).ends(0).expect_text("tidy is resumed");
    run(&fixture, &["resume", "tidy"]).ends(0).expect_text("tidy was not paused");
    assert_eq!(ticked(&fixture), ["tidy"], "more than the queued run was started");
    run(&fixture, &["status"]).expect_text("missed").expect_text("paused");
    clock(&fixture, "22:00");
    assert_eq!(ticked(&fixture), ["tidy"]);
}

#[test]
fn global_pause_ends_at_its_time() {
    let fixture = fixture("");
    let json = run(&fixture, &["pause", "--all", "--until", "21:00", "--json"]).ends(0).json();
    let expected = serde_json::json!({ "job": null, "paused": true, "until": "2026-11-21T21:00:00Z", "live": [] });
    assert_eq!(json, expected);
    enqueue(&fixture, &["count"]);
    assert!(ticked(&fixture).is_empty());
    run(&fixture, &["status"]).expect_text("everything is paused until 2026-11-21 21:00:00");
    assert_eq!(
        run(&fixture, &["status", "--json"]).json()["paused"]["until"],
        "2026-11-21T21:00:00Z"
    );
    run(&fixture, &["pause", "count"]).ends(0);
    run(&fixture, &["resume", "count"]).ends(0).expect_text("all jobs are still paused");
    clock(&fixture, "21:00");
    assert_eq!(ticked(&fixture), ["count"]);
    let json = run(&fixture, &["resume", "--all", "--json"]).ends(0).json();
    assert_eq!(json["paused"], false);
    for bad in [
        &["pause"][..],
        &["resume"],
        &["pause", "count", "--all"],
        &["pause", "--all", "--until", "2026-11-20"],
        &["pause", "--all", "--until", "soon"],
    ] {
        run(&fixture, bad).ends(2);
    }
    run(&fixture, &["pause", "cuont"]).ends(78).expect_text("cuont");
    run(&fixture, &["resume", "cuont"]).ends(78).expect_text("cuont");
}

#[test]
fn daemon_obeys_queue_and_pause_commands() {
    let fixture = fixture("");
    let mut daemon = Daemon::start(&fixture, &[]);
    enqueue(&fixture, &["count"]);
    daemon.wait_for_text("count: succeeded");
    run(&fixture, &["pause", "--all"]).ends(0);
    enqueue(&fixture, &["count"]);
    assert_eq!(daemon.tick()["started"], serde_json::json!([]));
    run(&fixture, &["resume", "--all"]).ends(0);
    daemon.wait_for_text("count: succeeded");
    let id = enqueue(&fixture, &["wait"]);
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    run(&fixture, &["cancel", &id]).ends(0);
    daemon.wait_for_text("wait: cancelled");
    assert_eq!(shown(&fixture, &id)["why"], "manually");
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    let failed = run(&fixture, &["run", "good", "--json"]).ends(1).json();
    fixture.write("good", "");
    run(&fixture, &["retry", failed["id"].as_str().unwrap()]).ends(0);
    daemon.wait_for_text("good: succeeded");
    daemon.signal(Signal::TERM);
    daemon.ends(0);
}

#[test]
fn daemon_table_requires_user_config() {
    let fixture = fixture("[daemon]\ndrain = \"1h\"\n");
    run(&fixture, &["status"]).expect_text("runner.toml:").expect_text("daemon");
    run(&fixture, &["run", "count"])
        .ends(78)
        .expect_text("runner.toml:")
        .expect_text("config.toml");
}
