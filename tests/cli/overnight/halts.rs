//! How the loop ends, and what that says in the summary and in the iterations.

use std::fs;

use super::{WORK_FILE, night, start, summary_of, tree};

#[test]
fn strict_rules_caps_and_the_pinned_queue_are_kept() {
    let house = night();
    // A checkpoint beyond its cap: nothing is staged, the rest of the night goes on.
    house.write(".agents/knowledge/big.bin", vec![7; 2 * 1024 * 1024]);
    let before = tree(&house);
    start(&house, &["--checkpoint-max-mb", "1"])
        .ends(0)
        .says("checkpoint");
    assert_eq!(tree(&house), before);
    let summary = summary_of(&house);
    assert_eq!(summary["iterations"][0]["status"], "failed");
    fs::remove_file(house.path(".agents/knowledge/big.bin")).unwrap();
    house.write("queue.md", "# Tonight\n- Look at the network [file: src/net.rs] [severity: low] [x: y]\n  it is slow\n\n- Second\n");
    start(
        &house,
        &[
            "--queue",
            "queue.md",
            "--warn-only=false",
            "--plateau-epsilon",
            "1",
        ],
    )
    .ends(0);
    let summary = summary_of(&house);
    let packets = summary["morning_packets"].as_array().unwrap();
    assert_eq!(packets[0]["title"], "Look at the network [x: y]");
    assert_eq!(packets[0]["severity"], "low");
    assert_eq!(packets[1]["title"], "Second");
    assert_eq!(
        packets[0]["target_files"],
        serde_json::json!(["src/net.rs"])
    );
    let last = summary["iterations"].as_array().unwrap().last().unwrap();
    assert_eq!(last["status"], "halted-on-regression-pre-commit");
    assert!(
        summary["plateau_reason"]
            .as_str()
            .unwrap()
            .contains("under 1")
    );
    let work = house.read(WORK_FILE);
    assert!(
        work.contains("\"dedup_key\":\"pinned|second\"")
            && work.contains("\"status\":\"proposed\""),
        "{work}"
    );
    start(&house, &["--queue", "queue.md"]).ends(0);
    assert_eq!(
        house.read(WORK_FILE).matches("pinned|second").count(),
        1,
        "nothing is added twice"
    );
    for bad in [
        ["--plateau-window", "1"],
        ["--output-dir", ".agents/learnings/x"],
        ["--output-dir", "../x"],
        ["--plateau-epsilon", "2"],
    ] {
        let said = start(&house, &bad);
        assert!(matches!(said.code, 2 | 78), "{bad:?}: {said:?}");
    }
}
