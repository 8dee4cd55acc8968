//! Holding, and a daemon that obeys all of it.

use super::*;

#[test]
fn a_pause_holds_ticks_and_no_person() {
    let house =
        house("[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"every 1h\"\n");
    ticked(&house);
    let waiting = enqueue(&house, &["tidy"]);
    run(&house, &["pause", "tidy"])
        .ends(0)
        .says("tidy is paused until `runner resume tidy`");
    clock(&house, "21:30");
    enqueue(&house, &["count"]);
    assert_eq!(ticked(&house), ["count"], "only tidy is held");
    run(&house, &["status"])
        .says("tidy until `runner resume tidy`")
        .says("tidy: ready, held by a pause")
        .says(&waiting);
    let status = run(&house, &["status", "--json"]).json();
    let paused = serde_json::json!([{ "job": "tidy", "until": null }]);
    assert_eq!(status["projects"][0]["paused"], paused);
    assert_eq!(status["projects"][0]["next"], serde_json::Value::Null);
    run(&house, &["run", "tidy"]).ends(0).says("succeeded");
    run(&house, &["resume", "tidy"])
        .ends(0)
        .says("tidy goes on");
    run(&house, &["resume", "tidy"])
        .ends(0)
        .says("tidy was not paused");
    assert_eq!(
        ticked(&house),
        ["tidy"],
        "what waited; nothing is caught up"
    );
    run(&house, &["status"]).says("missed").says("paused");
    clock(&house, "22:00");
    assert_eq!(ticked(&house), ["tidy"]);
}

#[test]
fn everything_is_paused_until_its_time() {
    let house = house("");
    let json = run(&house, &["pause", "--all", "--until", "21:00", "--json"])
        .ends(0)
        .json();
    let expected = serde_json::json!({ "job": null, "paused": true, "until": "2026-11-21T21:00:00Z", "live": [] });
    assert_eq!(json, expected);
    enqueue(&house, &["count"]);
    assert!(ticked(&house).is_empty());
    run(&house, &["status"]).says("everything is paused until 2026-11-21 21:00:00");
    assert_eq!(
        run(&house, &["status", "--json"]).json()["paused"]["until"],
        "2026-11-21T21:00:00Z"
    );
    run(&house, &["pause", "count"]).ends(0);
    run(&house, &["resume", "count"])
        .ends(0)
        .says("everything is paused");
    clock(&house, "21:00");
    assert_eq!(ticked(&house), ["count"]);
    let json = run(&house, &["resume", "--all", "--json"]).ends(0).json();
    assert_eq!(json["paused"], false);
    for bad in [
        &["pause"][..],
        &["resume"],
        &["pause", "count", "--all"],
        &["pause", "--all", "--until", "2026-11-20"],
        &["pause", "--all", "--until", "soon"],
    ] {
        run(&house, bad).ends(2);
    }
    run(&house, &["pause", "cuont"]).ends(78).says("cuont");
    run(&house, &["resume", "cuont"]).ends(78).says("cuont");
}

#[test]
fn a_daemon_obeys_all_of_it() {
    let house = house("");
    let mut daemon = Daemon::start(&house, &[]);
    enqueue(&house, &["count"]);
    daemon.hears("count: succeeded");
    run(&house, &["pause", "--all"]).ends(0);
    enqueue(&house, &["count"]);
    assert_eq!(daemon.tick()["started"], serde_json::json!([]));
    run(&house, &["resume", "--all"]).ends(0);
    daemon.hears("count: succeeded");
    let id = enqueue(&house, &["wait"]);
    assert_eq!(fs::read_to_string(house.path("up.fifo")).unwrap(), "up\n");
    run(&house, &["cancel", &id]).ends(0);
    daemon.hears("wait: cancelled");
    assert_eq!(shown(&house, &id)["why"], "by hand");
    assert_eq!(house.survivors(), Vec::<String>::new());
    let failed = run(&house, &["run", "good", "--json"]).ends(1).json();
    house.write("good", "");
    run(&house, &["retry", failed["id"].as_str().unwrap()]).ends(0);
    daemon.hears("good: succeeded");
    daemon.signal(Signal::TERM);
    daemon.ends(0);
}

#[test]
fn the_daemons_table_belongs_to_the_user() {
    let house = house("[daemon]\ndrain = \"1h\"\n");
    run(&house, &["status"]).says("runner.toml:").says("daemon");
    run(&house, &["run", "count"])
        .ends(78)
        .says("runner.toml:")
        .says("config.toml");
}
