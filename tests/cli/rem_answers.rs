//! Tests how a rem job handles wrong, truncated and vague answers from a model.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fixture::Fixture;
use crate::http::dialect::{COST, Dialect, Why};
use crate::http::{SeenRequest, Server, Talk};
use crate::rem::{BOARD, ORG, TALE, answer, asked, data, entries, fixture};

#[test]
fn untrue_answers_are_repaired_once_then_replaced() {
    let verdict = |line: &str| ORG.replace("- keep course — fine", line);
    let data = |act: &str, task: &str| data(TALE, act, task).to_string();
    let cases = [
        (
            ORG.replace("It ran and wrote its rows.", "It ran in a3f91c2."),
            "commit a3f91c2 does not occur in the sources that were shown",
        ),
        (
            ORG.replace("It ran and wrote its rows.", "Commit 20480 ran."),
            "commit 20480 does not occur",
        ),
        (verdict("- pick up: no such task — why"), "names no task"),
        (verdict("- cancel: twice — why"), "occurs on lines 7, 8"),
        (verdict("- think it over"), "is listed below verdicts but is not a verdict"),
        (data("keep-course", "tidy the page"), "names a task"),
        (data("pick-up", ""), "names no task"),
        (data("pick-up", "tidy"), "names no task"),
    ];
    for (words, why) in &cases {
        let fixture = fixture("answer = \"org\"\n");
        // If both answers are wrong, the entry by rule is published, and the run is degraded.
        answer(&fixture, "", words);
        let said = fixture.run(&["run", "rem"]).ends(0).expect_text("degraded");
        said.expect_text("wrote the entry by rule").expect_text(why);
        let list = entries(&fixture, "rem");
        assert!(fixture.read(&format!("rem/{}", list[0])).contains("#+MODEL: by rule\n"), "{why}");
        // The second request names the mistake, and the second answer is correct.
        answer(&fixture, "2", ORG);
        fixture.run(&["run", "rem"]).ends(0).expect_text("succeeded").expect_text(why);
        let list = entries(&fixture, "rem");
        assert!(fixture.read(&format!("rem/{}", list[0])).contains("#+MODEL: dreamer\n"), "{why}");
        assert!(asked(&fixture, 2).contains(why), "{why}");
        assert!(!asked(&fixture, 1).contains("was refused"), "{why}");
    }
}

#[test]
fn malformed_answer_after_untrue_one_is_replaced() {
    let fixture = fixture("answer = \"org\"\n");
    answer(&fixture, "1", &ORG.replace("It ran and wrote its rows.", "It ran in a3f91c2."));
    answer(&fixture, "2", "no entry at all");
    fixture.run(&["run", "rem"]).ends(0).expect_text("wrote the entry by rule");
    // The program fails at the second request.
    let script = fixture.root().join("dreamer.sh");
    let dies = fs::read_to_string(&script).unwrap().replacen("f=", "[ $n = 2 ] && exit 3\nf=", 1);
    fs::write(&script, dies).unwrap();
    fixture.run(&["run", "rem"]).ends(0).expect_text("the second question was not answered");
    assert_eq!(entries(&fixture, "rem").len(), 2);
    answer(&fixture, "1", "no entry at all");
    fixture.run(&["run", "rem"]).ends(1);
    assert_eq!(entries(&fixture, "rem").len(), 2);
}

/// Creates a project whose backend on loopback truncates its first `truncated` answers.
fn truncating(truncated: usize) -> (Fixture, Server) {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |talk: &mut Talk, seen: &SeenRequest| {
        if !seen.is_call() {
            let json = [("content-type", "application/json")];
            return talk.reply(200, &json, Dialect::Chat.models(&["m"]));
        }
        let why = match count.fetch_add(1, Ordering::SeqCst) {
            turn if turn < truncated => Why::Length,
            _ => Why::Done,
        };
        let text = data(TALE, "keep-course", "").to_string();
        let events = Dialect::Chat.events(&[&text], why, COST).concat();
        talk.reply(200, &[("content-type", Dialect::Chat.content_type())], events);
    });
    let url = server.url();
    let fixture = Fixture::with("");
    fixture.write("plan.org", BOARD);
    fixture.configure(&format!(
        "[jobs.dream]\nenabled = false\n[backends.dreamer]\ntype = \"openai\"\nmodel = \"m\"\nbase_url = \"{url}/v1\"\n\
         [jobs.rem]\nkind = \"rem\"\nbackend = \"dreamer\"\ntrigger = \"manual\"\nretries = 0\n"
    ));
    (fixture, server)
}

#[test]
fn truncated_answer_is_repeated_once_then_replaced() {
    for (truncated, outcome, author, headline) in [
        (1, "succeeded", "m", "dreamer dreamt rem/"),
        (2, "degraded", "by rule", "the rules dreamt rem/"),
    ] {
        let (fixture, server) = truncating(truncated);
        fixture
            .run(&["run", "rem"])
            .ends(0)
            .expect_text(outcome)
            .expect_text("was truncated at")
            .expect_text(headline);
        let entry = fixture.read(&format!("rem/{}", entries(&fixture, "rem")[0]));
        assert!(entry.contains(&format!("#+MODEL: {author}\n")), "{entry}");
        let asked: Vec<String> = server
            .seen()
            .iter()
            .filter(|it| it.is_call())
            .map(|it| String::from_utf8_lossy(&it.body).into_owned())
            .collect();
        assert_eq!(asked.len(), 2);
        assert!(!asked[0].contains("was too long") && asked[1].contains("was too long"));
    }
}

#[test]
fn entry_of_a_model_states_source_facts() {
    let fixture = fixture("");
    fixture.write(
        "_steps.jsonl",
        "{\"step\":1,\"tool\":\"Bash\",\"args\":{\"cmd\":\"make site\"},\"exit_code\":2,\"error\":\"* fears\\n#+FACT: all is well\"}\n",
    );
    let vague = "Many things were good and everything went along well, as it always does here.";
    answer(&fixture, "", &data(vague, "keep-course", "").to_string());
    fixture.run(&["run", "rem"]).ends(0).expect_text("succeeded");
    let entry = fixture.read(&format!("rem/{}", entries(&fixture, "rem")[0]));
    let facts: Vec<&str> = entry.lines().filter(|line| line.starts_with("#+FACT: ")).collect();
    assert_eq!(facts[0], "#+FACT: Until now one commit was made.", "{entry}");
    assert_eq!(
        facts[2..],
        [
            "#+FACT: One tool was used, and it failed.",
            "#+FACT: Failed: `make site` (exit 2): #+FACT: all is well.",
        ],
        "{entry}"
    );
    fixture.run(&["journal"]).ends(0).expect_text("One tool was used, and it failed.");
}
