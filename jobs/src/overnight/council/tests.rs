//! Tests answer validation and the synthesis of reports.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::packet::{CONFIDENCES, KINDS};
use super::packet::{CouncilPacket, Offer};
use super::report::{Report, Wildcard, read, read_wildcard, schema};
use super::synthesis::{NoReply, Synthesis, synthesize};
use crate::json::pretty;
use crate::overnight::schema::check;

const ID: &str = "dream-0123456789abcdef";

fn packet() -> CouncilPacket {
    CouncilPacket {
        offer: Offer { backs: vec![ID.to_owned()], ..Offer::default() },
        ..CouncilPacket::default()
    }
}

fn answer() -> Value {
    json!({
        "headline": "Mend the retry", "recommended_kind": "repair", "recommended_first_action": "Add jitter",
        "risks": ["none"], "opportunities": [], "confidence": "high", "wildcard_idea": "", "backs": [ID],
    })
}

fn same(text: &str) -> String {
    text.to_owned()
}

#[test]
fn invalid_answer_is_refused() {
    let good = read(&answer(), "claude", &packet(), &same).unwrap();
    assert_eq!((good.runner.as_str(), good.backs.len()), ("claude", 1));
    assert_eq!(check(&serde_json::to_value(&good).unwrap(), "council-report"), []);
    // An answer cannot set its own author.
    let mut posing = answer();
    posing["runner"] = json!("codex");
    assert_eq!(read(&posing, "claude", &packet(), &same).unwrap().runner, "claude");
    for (key, bad, why) in [
        ("recommended_kind", json!("destroy"), "not one of"),
        ("confidence", json!("certain"), "not one of"),
        ("headline", json!("  \u{200b}* "), "is empty"),
        ("headline", json!(7), "not text"),
        ("risks", json!("many"), "not a list"),
        ("risks", json!([1]), "not a list of texts"),
        ("backs", json!(["dream-ffffffffffffffff"]), "not shown"),
        ("recommended_first_action", Value::Null, "has no"),
    ] {
        let mut value = answer();
        value[key] = bad;
        let reported = read(&value, "claude", &packet(), &same).unwrap_err();
        assert!(reported.contains(why), "{key}: {reported}");
    }
    for nothing in [json!(null), json!([]), json!("text"), json!({})] {
        assert!(read(&nothing, "claude", &packet(), &same).is_err());
        assert!(read_wildcard(&nothing, "claude", &same).is_err());
    }
}

#[test]
fn answer_text_is_shortened_and_redacted() {
    let mut value = answer();
    value["headline"] = json!(format!("a\u{1b}[31m\nb\u{202e} {}", "x".repeat(9_000)));
    value["risks"] = json!(vec!["key-4711"; 50]);
    let redact = |text: &str| text.replace("4711", "[redacted]");
    let reported = read(&value, "claude", &packet(), &redact).unwrap();
    assert!(
        reported.headline.chars().count() <= 200
            && !reported.headline.chars().any(char::is_control)
    );
    assert_eq!(reported.risks, vec!["key-[redacted]"; 5]);
}

#[test]
fn rule_answer_passes_validation() {
    let empty = CouncilPacket::default();
    let reported = read(&empty.by_rule(), "builtin", &empty, &same).unwrap();
    assert_eq!(
        (reported.recommended_kind.as_str(), reported.confidence.as_str()),
        ("research", "low")
    );
    let form = schema(&empty);
    assert_eq!(
        form["required"].as_array().unwrap().len(),
        8,
        "strict schemas require all properties"
    );
    assert!(form["properties"]["backs"]["items"].get("enum").is_none(), "an empty enum is invalid");
    assert_eq!(schema(&packet())["properties"]["backs"]["items"]["enum"], json!([ID]));
}

fn report(runner: &str, kind: &str, action: &str, confidence: &str, backs: &[&str]) -> Report {
    Report {
        runner: runner.to_owned(),
        headline: format!("{action}, says {runner}"),
        recommended_kind: kind.to_owned(),
        recommended_first_action: action.to_owned(),
        risks: vec!["it is late".to_owned()],
        opportunities: Vec::new(),
        confidence: confidence.to_owned(),
        wildcard_idea: format!("a moon for {runner}"),
        backs: backs.iter().map(|it| (*it).to_owned()).collect(),
    }
}

#[test]
fn majority_leads_and_other_positions_are_kept() {
    let reports = [
        report("a", "research", "Read more", "high", &[]),
        report("b", "repair", "Mend it", "low", &["dream-1"]),
        report("c", "repair", "Mend that", "medium", &["dream-1", "dream-2"]),
    ];
    let lane = Wildcard {
        runner: "a".into(),
        lane: "wildcard".into(),
        wildcard_idea: "Delete it".into(),
        ..Wildcard::default()
    };
    let unheard =
        [NoReply { runner: "d".into(), why: "auth: no key".into(), ..NoReply::default() }];
    let reported = synthesize("R", &reports, Some(&lane), &unheard).unwrap();
    assert_eq!(reported.recommended_kind, "repair");
    assert_eq!((reported.agreement.voices, reported.agreement.of), (2, 3));
    // The synthesis quotes the most confident councillor of the leading position and has the
    // confidence of the least confident one.
    assert_eq!((reported.said_by.as_str(), reported.confidence.as_str()), ("c", "low"));
    assert_eq!(reported.positions[1].voices[0].recommended_first_action, "Read more");
    assert_eq!(reported.backed[0].voices, ["b", "c"]);
    assert_eq!(reported.risks[0].voices, ["a", "b", "c"]);
    let tension = reported.tension.clone().unwrap();
    assert_eq!(
        tension,
        "b would repair (“Mend it”) and c would repair (“Mend that”); a would research (“Read more”)"
    );
    assert_eq!(reported.unheard, unheard);
    // Every wildcard is listed and marked.
    assert_eq!(reported.wildcards.len(), 4);
    assert!(reported.wildcards.iter().all(|it| it.wildcard));
    assert_eq!(check(&serde_json::to_value(&reported).unwrap(), "council-synthesis"), []);
    assert_eq!(synthesize("R", &[], Some(&lane), &unheard), None);
}

#[test]
fn tension_covers_target_and_confidence() {
    let of = |reports: &[Report]| synthesize("R", reports, None, &[]).unwrap().tension;
    let one = report("a", "repair", "Mend it", "high", &["dream-1"]);
    assert_eq!(of(std::slice::from_ref(&one)), None, "a single councillor cannot disagree");
    let other = report("b", "repair", "Mend that", "high", &["dream-2"]);
    let reported = of(&[one.clone(), other]).unwrap();
    assert_eq!(reported, "a would repair (“Mend it”); b would repair (“Mend that”)");
    let unsure = report("b", "repair", "Mend it", "low", &["dream-1"]);
    let reported = of(&[one.clone(), unsure]).unwrap();
    assert!(reported.contains("high confidence: a; with low confidence: b"), "{reported}");
    assert_eq!(of(&[one, report("b", "repair", "Mend it", "medium", &["dream-1"])]), None);
}

fn any_report() -> impl Strategy<Value = Report> {
    let text = || prop_oneof![Just("Mend it"), Just("Read more"), Just("ä“<b>")];
    let backs = proptest::collection::vec(prop_oneof![Just("dream-1"), Just("dream-2")], 0..3);
    let risks = proptest::collection::vec("[a-c]{1,2}", 0..4);
    (0..7_usize, 0..6_usize, 0..3_usize, text(), text(), backs, risks).prop_map(
        |(who, kind, sure, action, idea, backs, risks)| Report {
            risks,
            wildcard_idea: idea.to_owned(),
            ..report(&format!("r{who}"), KINDS[kind], action, CONFIDENCES[sure], &backs)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn synthesis_is_independent_of_report_order(
        reports in proptest::collection::vec(any_report(), 1..8),
        seed in any::<u64>(),
    ) {
        // A real council has only one report per runner.
        let mut own: Vec<Report> = Vec::new();
        for report in reports {
            if own.iter().all(|it| it.runner != report.runner) {
                own.push(report);
            }
        }
        let unheard = |turned: bool| {
            let mut all = vec![
                NoReply { runner: "x".into(), why: "1".into(), ..NoReply::default() },
                NoReply { runner: "y".into(), why: "2".into(), ..NoReply::default() },
            ];
            if turned {
                all.reverse();
            }
            all
        };
        let first = synthesize("R", &own, None, &unheard(false)).unwrap();
        let mut mixed = own.clone();
        let mut dice = seed;
        for at in (1..mixed.len()).rev() {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            mixed.swap(at, (dice >> 33) as usize % (at + 1));
        }
        let second = synthesize("R", &mixed, None, &unheard(true)).unwrap();
        prop_assert_eq!(pretty(&first), pretty(&second));
        check_complete(&first, &own)?;
    }
}

/// Checks that no report is lost or counted twice, and that every wildcard is marked.
fn check_complete(reported: &Synthesis, reports: &[Report]) -> Result<(), TestCaseError> {
    let voices: usize = reported.positions.iter().map(|it| it.voices.len()).sum();
    prop_assert_eq!(voices, reports.len());
    prop_assert_eq!(reported.agreement.of as usize, reports.len());
    let target = |it: &Report| it.backs.first().unwrap_or(&it.recommended_first_action).clone();
    let acts: std::collections::BTreeSet<_> =
        reports.iter().map(|it| (&it.recommended_kind, target(it))).collect();
    prop_assert_eq!(acts.len(), reported.positions.len());
    prop_assert!(acts.len() == 1 || reported.tension.is_some());
    prop_assert!(
        reported.positions.iter().all(|it| it.voices.len() <= reported.positions[0].voices.len())
    );
    prop_assert!(reported.wildcards.iter().all(|it| it.wildcard));
    Ok(())
}
