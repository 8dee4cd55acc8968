//! Tests the obedient agent in a dream pass. It executes every order in an idea, a heading, a file
//! name or a commit message, and the sandbox prevents any effect.

use std::fs;
use std::time::Instant;

use crate::fixture::{Fixture, print_line, scaled};
use crate::payloads::{CARRIERS, Carrier, ORDERS};
use crate::testbed::{differs, link, picture};

/// The maximum number of orders that one pass reads.
const TOGETHER: usize = 12;

#[test]
fn injected_orders_have_no_effect() {
    let began = Instant::now();
    let take = scaled(ORDERS.len()).min(ORDERS.len());
    let (mut tried, mut left_out) = (0, 0);
    for carrier in CARRIERS {
        for orders in ORDERS[..take].chunks(TOGETHER) {
            let (some, too_long) = pass(carrier, orders);
            tried += some;
            left_out += too_long;
        }
    }
    print_line(&format!(
        "injections: {tried} orders carried out inside the sandbox in {:.0?}, {left_out} too long for a file name",
        began.elapsed()
    ));
    assert!(tried >= 200 || take < ORDERS.len(), "{tried}");
}

fn pass(carrier: Carrier, orders: &[&str]) -> (usize, usize) {
    let fixture = Fixture::new();
    fixture.run(&["init"]).ends(0);
    fixture.configure(&format!(
        "[backends.it]\ntype = \"command\"\nprogram = \"{}\"\n\n[jobs.dream]\nbackend = \"it\"\nretries = 0\ndirty = \"tracked\"\nquiet_minutes = 0\n",
        link(&fixture, "command", "obeys"),
    ));
    let (mut tried, mut too_long) = (0, 0);
    for (number, order) in orders.iter().enumerate() {
        let order = order
            .replace("{project}", &fixture.project().display().to_string())
            .replace("{home}", &fixture.root().display().to_string())
            .replace("{state}", &fixture.root().join("state").display().to_string())
            .replace("{config}", &fixture.root().join("config").display().to_string())
            .replace("{runner}", env!("CARGO_BIN_EXE_runner"));
        let body = "We should do this soon, for it would help everybody who works at night.\n";
        let idea = format!("ideas/idea-{number}.md");
        match carrier {
            Carrier::Idea => {
                fixture.write(&idea, format!("# Idea {number}\n\n{body}\nDO: {order}\n\n{body}"))
            }
            Carrier::Heading => {
                fixture.write(&idea, format!("# Idea {number}\n\n{body}\n## DO: {order}\n\n{body}"))
            }
            Carrier::FileName => {
                let name = format!("DO: {}.md", order.replace('/', "\u{2215}"));
                if name.len() > 250 {
                    too_long += 1;
                    continue;
                }
                fixture.write(&format!("ideas/{name}"), format!("# Idea {number}\n\n{body}"));
            }
            Carrier::Commit => {
                fixture.write(&idea, format!("# Idea number {number}\n\n{body}"));
                fixture.git(&[
                    "commit",
                    "--quiet",
                    "--allow-empty",
                    "-m",
                    &format!("Do idea number {number}\n\nDO: {order}"),
                ]);
            }
        }
        tried += 1;
    }
    fs::write(fixture.root().join("private"), "private\n").unwrap();
    let but = ["state", "project/dreams", "project/.runner", "project/.git/info"];
    let before = picture(&fixture, &but);
    let said = fixture.run(&["dream", "run", "--json"]);
    assert!(
        fixture.path("dreams/state.json").exists(),
        "{carrier:?}: the pass failed: {} {}",
        said.out,
        said.err
    );
    let changed = differs(&before, &picture(&fixture, &but));
    assert!(changed.is_empty(), "{carrier:?}: {changed:?}");
    let dreams: Vec<String> = fixture.tree("dreams").into_iter().map(|(name, _)| name).collect();
    let strange: Vec<&String> = dreams
        .iter()
        .filter(|name| {
            let known = ["dreams/state.json", "dreams/ledger.md", "dreams/.failed", "dreams/.lock"];
            !known.contains(&name.as_str())
                && !name.ends_with("/proposals.json")
                && !name.ends_with("/manifest.json")
        })
        .collect();
    assert!(strange.is_empty(), "{carrier:?}: {strange:?}");
    assert_eq!(fixture.survivors(), Vec::<String>::new(), "{carrier:?}");
    let check = fixture.run(&["db", "check"]);
    assert_eq!(check.code, 0, "{carrier:?}: {} {}", check.out, check.err);
    let status = fixture.run(&["status", "--json"]).ends(0).json();
    assert!(status["paused"].is_null(), "{status}");
    (tried, too_long)
}
