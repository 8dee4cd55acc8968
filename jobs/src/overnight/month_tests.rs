//! Simulates a month of nights with a user who works through the packets.
//!
//! Sessions find the good nodes helpful and the bad ones misleading. The user finishes some
//! packets, fails at others and ignores the rest.

use std::io::Write as _;

use jiff::civil::{Date, date};
use jiff::{Timestamp, ToSpan as _};
use serde_json::{Value, json};

use super::corpus::close_loop::close_loop;
use super::corpus::defrag::{Options, RetireReason, defrag, suggestions};
use super::corpus::fitness::{fitness, regressions};
use super::corpus::health::measure;
use super::corpus::oscillation::FileHistory;
use super::corpus::uses::{NodeUse, Uses};
use super::corpus::work::{Claim, WorkFile};
use super::corpus::{Changes, Corpus, Maturity};
use super::council::CouncilResult;
use super::facts::Facts;
use super::packets::{Packet, PacketSources};
use super::proposals::Proposals;

const DAYS: i32 = 30;
const GOOD: usize = 12;
const BAD: usize = 6;
const FIRST: Date = date(2026, 10, 1);

fn word(at: usize) -> String {
    const PARTS: [&str; 9] = [
        "harbour", "lantern", "pepper", "quarry", "violin", "walnut", "zephyr", "anvil", "bramble",
    ];
    format!("{}{}", PARTS[at % 9], PARTS[(at / 9 + at) % 9])
}

fn start() -> Corpus {
    let mut changes = Changes::new();
    for at in 0..GOOD + BAD {
        let name = if at < GOOD { format!("good-{at:02}") } else { format!("wrong-{at:02}") };
        let subject = word(at);
        let text = format!(
            "---\ndate: 2026-09-20\nmaturity: provisional\n---\n# The {subject} needs care\n\nThe {subject} fails under load because its buffer is small. Set a limit for {subject} {at}.\n"
        );
        changes.insert(format!("learnings/{name}.md"), Some(text.into_bytes()));
    }
    let items: Vec<Value> = (0..18)
        .map(|at| {
            json!({"title": format!("Repair {}", word(at + 20)), "type": "bug", "severity": "medium",
                   "description": format!("Work on {}", word(at + 20))})
        })
        .collect();
    let row = json!({"source_epic": "e", "timestamp": "2026-09-25T00:00:00Z", "items": items});
    let mut corpus = Corpus::default();
    corpus.apply(&changes);
    corpus.work = WorkFile::parse(format!("{row}\n").as_bytes());
    corpus
}

fn packets(corpus: &Corpus, uses: &Uses, day: Date) -> Vec<Packet> {
    let measured = measure(corpus, uses, day);
    PacketSources {
        root: std::path::Path::new("/nowhere"),
        corpus,
        health: &measured.health,
        facts: &Facts::default(),
        pinned: &[],
        goal: "",
        date: day,
        output: "out",
        kept: "runs/r",
        command: "begin {packet}",
        counsel: &CouncilResult::default(),
    }
    .packets()
}

/// Works on the first eight packets of a morning. A third of all items are finished when they are
/// worked on, and a third fail.
fn work(corpus: &mut Corpus, packets: &[Packet], now: &str) {
    for packet in packets.iter().take(8) {
        let Some(item) = corpus.work.items.iter().find(|it| it.title == packet.title).cloned()
        else {
            continue;
        };
        match item.at.unwrap_or(0) % 3 {
            0 => corpus.work.edit(&item, &[("consumed", json!(true)), ("consumed_at", json!(now))]),
            1 => corpus
                .work
                .edit(&item, &[("failed_at", json!(now)), ("failures", json!(item.failures + 1))]),
            _ => false,
        };
        corpus.work = WorkFile::parse(&corpus.work.kept.to_bytes());
    }
}

#[test]
fn month_keeps_good_nodes_and_retires_bad_ones() {
    let mut corpus = start();
    let mut uses = Uses::default();
    let mut proposals = Proposals::default();
    let history = FileHistory::default();
    let mut retired = Vec::new();
    let mut first = None;
    for number in 0..DAYS {
        let day = FIRST.checked_add(number.days()).unwrap();
        let now: Timestamp = format!("{day}T02:30:00Z").parse().unwrap();
        let at = usize::try_from(number).unwrap();
        for (name, node) in [("good", at % GOOD), ("wrong", GOOD + at % BAD)] {
            uses.events.push(NodeUse {
                name: format!("{name}-{node:02}"),
                by: format!("session {number}"),
                date: day,
                helped: name == "good",
                question: format!("overload of the {} when its buffer is full", word(node)),
            });
        }
        let before = fitness(&corpus, &uses, day);
        let (_, changes) = close_loop(&corpus, &uses, day, 0);
        corpus.apply(&changes);
        let (_, changes) = defrag(&corpus, &history, Options::default());
        assert!(changes.is_empty(), "no node is removed without a decision");
        assert_eq!(regressions(&before, &fitness(&corpus, &uses, day), 0.05), []);
        let found = suggestions(&corpus, &uses, &history, day, Options::default());
        proposals.update(&corpus, &found, Options::default(), ("run", &now.to_string()));
        // Once a week the user accepts the proposals to retire nodes that failed.
        if number % 7 == 6 {
            let ids: Vec<String> = proposals
                .open()
                .filter(|it| it.reason == RetireReason::Failed)
                .map(|it| it.id.clone())
                .collect();
            for id in ids {
                let changes = proposals.accept(&corpus, &id, &now.to_string()).unwrap();
                retired.extend(changes.keys().cloned());
                corpus.apply(&changes);
            }
        }
        let morning = packets(&corpus, &uses, day);
        work(&mut corpus, &morning, &now.to_string());
        (uses.consumed, uses.failed) = (0, 0);
        for item in &corpus.work.items {
            uses.consumed += usize::from(item.claim == Claim::Consumed);
            uses.failed += usize::from(item.claim != Claim::Consumed && item.failures > 0);
        }
        first.get_or_insert(fitness(&corpus, &uses, day));
    }
    let last = FIRST.checked_add(DAYS.days()).unwrap();
    let (first, end) = (first.unwrap(), fitness(&corpus, &uses, last));
    let good = corpus.active().filter(|node| node.path.contains("good")).count();
    let promoted = corpus.active().filter(|node| node.maturity >= Maturity::Candidate).count();
    let morning = packets(&corpus, &uses, last);
    let _closed = writeln!(
        std::io::stderr(),
        "fitness {:?} -> {:?} {:?}; {good} of {GOOD} good nodes kept, {promoted} promoted; {} of {BAD} bad nodes retired; {} of 18 items finished, {} failed",
        first.composite,
        end.composite,
        end.metrics,
        retired.len(),
        uses.consumed,
        uses.failed
    );
    assert_eq!(good, GOOD);
    assert_eq!(retired.len(), BAD, "{retired:?}");
    assert!(retired.iter().all(|path| path.contains("wrong")));
    assert!(
        corpus
            .active()
            .filter(|it| it.path.contains("wrong"))
            .all(|it| it.maturity == Maturity::Provisional)
    );
    assert_eq!(promoted, GOOD);
    assert!(end.composite > first.composite);
    assert!(end.metrics["found"] > 0.9, "the good nodes are found: {end:?}");
    // Finished work is not offered again, and failed work ranks below other work.
    let done: Vec<&str> = corpus
        .work
        .items
        .iter()
        .filter(|it| it.claim == Claim::Consumed)
        .map(|it| it.title.as_str())
        .collect();
    assert!(!done.is_empty() && morning.iter().all(|it| !done.contains(&it.title.as_str())));
    let failures: Vec<u64> =
        morning.iter().filter(|it| it.kind == "bug").map(|it| it.failures).collect();
    assert!(failures.is_sorted(), "failed packets rank lower: {failures:?}");
}
