//! Taking out, ending, asking again.

use super::*;

#[test]
fn what_waits_can_be_taken_out() {
    let house = house("");
    let queued = enqueue(&house, &["count", "--at", "23:00"]);
    let behind = enqueue(&house, &["count", "--after", &queued]);
    run(&house, &["cancel", &behind])
        .ends(0)
        .says("count will not run");
    let json = run(&house, &["cancel", &queued.to_lowercase(), "--json"])
        .ends(0)
        .json();
    assert_eq!(
        (&json["outcome"], &json["why"]),
        (&"cancelled".into(), &"by hand".into())
    );
    run(&house, &["cancel", &queued])
        .ends(65)
        .says("is over: cancelled: by hand");
    clock(&house, "23:10");
    assert!(ticked(&house).is_empty());
}

#[test]
fn what_runs_is_ended_with_all_that_it_started() {
    let house = house("");
    let id = enqueue(&house, &["wait"]);
    let mut tick = busy(&house);
    let open = run(&house, &["retry", &id]).ends(65);
    assert!(
        open.err.contains("is not over") && open.err.contains("running"),
        "{open:?}"
    );
    run(&house, &["cancel", &id]).ends(0).says("asked to end");
    assert!(ended_within(tick.id(), LIMIT), "the tick does not end");
    assert_eq!(tick.wait().unwrap().code(), Some(130));
    let row = shown(&house, &id);
    assert_eq!(
        (&row["outcome"], &row["why"]),
        (&"cancelled".into(), &"by hand".into())
    );
    assert_eq!(row["asked_to_end"], "by hand");
    assert_eq!(house.survivors(), Vec::<String>::new());
    assert!(!house.path(".runner/failed/wait.json").exists());
    assert!(ticked(&house).is_empty(), "it is not tried again");
    run(&house, &["cancel", &id]).ends(65);
}

#[test]
fn another_attempt_is_made_when_somebody_asks() {
    let house = house("");
    run(&house, &["run", "good"]).ends(1);
    let id = run(&house, &["runs", "--json"]).json()[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let said = run(&house, &["retry", &id]).ends(0);
    assert!(
        said.out
            .contains("good queued: ready, waits its turn; attempt 2"),
        "{said:?}"
    );
    run(&house, &["retry", &id]).ends(65).says("is queued");
    house.write("good", "");
    assert_eq!(ticked(&house), ["good"]);
    let runs = run(&house, &["runs", "--json"]).json();
    let second = runs
        .as_array()
        .unwrap()
        .iter()
        .find(|run| run["attempt"] == 2);
    assert_eq!(second.unwrap()["outcome"], "succeeded");
    // The other attempt of the same, and what went well.
    let json = run(&house, &["retry", &id, "--json"]).ends(0).json();
    assert_eq!(
        (&json["state"], &json["attempt"]),
        (&"queued".into(), &3.into())
    );
}

#[test]
fn a_job_that_was_stopped_is_named_and_starts_again_by_a_retry() {
    let house = house(
        "[jobs.tidy]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"[ -e good ]\"]\ntrigger = \"every 1h\"\nretries = 0\n",
    );
    for hour in ["20:00", "21:00", "22:00", "23:00"] {
        clock(&house, hour);
        ticked(&house);
    }
    let status = run(&house, &["status", "--json"]).ends(0).json();
    let stopped = serde_json::json!([{ "job": "tidy", "failures_in_a_row": 3 }]);
    assert_eq!(status["projects"][0]["stopped"], stopped);
    run(&house, &["status"])
        .says("STOPPED")
        .says("3 failures in a row");
    clock(&house, "23:59");
    house.write("good", "");
    let runs = run(&house, &["runs", "--job", "tidy", "--json"]).json();
    run(&house, &["retry", runs[0]["id"].as_str().unwrap()]).ends(0);
    ticked(&house);
    let status = run(&house, &["status", "--json"]).ends(0).json();
    assert_eq!(status["projects"][0]["stopped"], serde_json::json!([]));
}

#[test]
fn a_run_that_is_not_there_or_not_one_is_said() {
    let house = house("");
    run(&house, &["cancel", "01ZZ"])
        .ends(65)
        .says("no run 01ZZ");
    enqueue(&house, &["count", "--at", "23:00"]);
    enqueue(&house, &["count", "--at", "23:00"]);
    for command in ["cancel", "retry"] {
        run(&house, &[command, "01ZZ"]).ends(65).says("no run 01ZZ");
        run(&house, &[command, "01ZZZZZZZZZZZZZZZZZZZZZZZZ"])
            .ends(65)
            .says("no run");
        run(&house, &[command, "01"])
            .ends(65)
            .says("2 runs begin with 01");
        run(&house, &[command, ""]).ends(2);
        run(&house, &[command]).ends(2);
    }
    assert_eq!(
        house.count("SELECT count(*) FROM runs WHERE state = 'queued'"),
        2
    );
}
