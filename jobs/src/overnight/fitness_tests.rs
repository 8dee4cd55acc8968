//! Tests that fitness reflects actual use: manipulations lower it, and repairs do not.

use std::collections::HashSet;
use std::io::Write as _;

use jiff::civil::date;

use super::corpus::fitness::{Fitness, fitness, regressions};
use super::corpus::uses::{NodeUse, Uses};
use super::corpus::work::WorkFile;
use super::corpus::{Changes, Corpus};

/// Subjects, each with the text of a learning and a task that needs that learning.
const SUBJECTS: [(&str, &str, &str); 28] = [
    (
        "retry-jitter",
        "Retries need jitter because clients return together and overload the server",
        "uploads overload the server when clients retry",
    ),
    (
        "cache-digest",
        "Key the cache by digest because file names are reused between builds",
        "the build cache returns files of another branch",
    ),
    (
        "port-zero",
        "Bind test servers to port zero, otherwise parallel tests collide",
        "parallel tests collide on one port",
    ),
    (
        "lock-kernel",
        "Use kernel locks because stale lock files survive a crash",
        "a stale lock file blocks every start after a crash",
    ),
    (
        "utc-dates",
        "Store dates in UTC, since local midnight moves with daylight saving",
        "the report of one day is empty after daylight saving",
    ),
    (
        "rename-atomic",
        "Rename a temporary file so that readers never see a partial document",
        "readers see partial JSON documents",
    ),
    (
        "sql-index",
        "Add an index for the tenant column because the planner scans the table",
        "the tenant page scans the whole table",
    ),
    (
        "env-clear",
        "Clear the environment of child processes, otherwise tokens leak into logs",
        "tokens of the parent leak into child logs",
    ),
    (
        "utf8-bom",
        "Strip the byte order mark since the parser takes it for a key",
        "the first key of imported spreadsheets is unknown",
    ),
    (
        "fd-limit",
        "Close sockets early because the descriptor limit stops the accept loop",
        "the accept loop stops after a thousand connections",
    ),
    (
        "float-money",
        "Use integers for money because floats lose cents in sums",
        "invoice sums differ by one cent",
    ),
    (
        "shell-quote",
        "Quote shell words, otherwise names with spaces become two arguments",
        "backups skip folders with spaces in their names",
    ),
    (
        "mmap-truncate",
        "Never map files that others truncate because reads then crash",
        "the viewer crashes while a log rotates",
    ),
    (
        "tls-chain",
        "Send the intermediate certificate since old phones do not fetch it",
        "old phones refuse the certificate",
    ),
    (
        "queue-ack",
        "Acknowledge messages after the commit, otherwise a crash loses orders",
        "orders are lost when a worker crashes",
    ),
    (
        "gzip-etag",
        "Vary the etag by encoding because proxies mix compressed bodies",
        "proxies deliver compressed bodies to plain clients",
    ),
    (
        "regex-anchor",
        "Anchor the pattern since prefixes match other hosts",
        "other hosts pass the allow list",
    ),
    (
        "thread-pool",
        "Limit the pool because each thread holds a database connection",
        "the database refuses connections under load",
    ),
    (
        "case-paths",
        "Compare paths by inode since macOS ignores case",
        "imports break on macOS when the case differs",
    ),
    (
        "leap-cron",
        "Use calendar arithmetic because adding months to the thirty-first skips February",
        "the monthly invoice skips February",
    ),
    (
        "csrf-cookie",
        "Set the same-site attribute, otherwise forms of other sites are accepted",
        "forms of other sites change the address",
    ),
    (
        "sort-stable",
        "Sort by id too because equal scores change pages between requests",
        "results repeat on the second page",
    ),
    (
        "wal-copy",
        "Back up through the database because copying misses the write-ahead log",
        "the restored database misses the newest rows",
    ),
    (
        "symlink-tmp",
        "Open temporary files without following links, otherwise another user chooses the target",
        "another user overwrites files through temporary links",
    ),
    (
        "emoji-width",
        "Measure columns by cells because emoji take two",
        "table columns shift when names contain emoji",
    ),
    (
        "pty-size",
        "Forward the window size since the pager wraps at eighty columns",
        "the pager wraps long lines in wide windows",
    ),
    (
        "ntp-step",
        "Use the monotonic clock for timeouts because time steps backwards",
        "timeouts never fire after the clock was corrected",
    ),
    (
        "yaml-no",
        "Quote country codes because YAML reads NO as false",
        "Norway is missing in the list of countries",
    ),
];

fn node(at: usize) -> (String, String) {
    let (name, lesson, _) = SUBJECTS[at];
    let maturity = ["provisional", "provisional", "candidate", "established"][at % 4];
    let text = format!(
        "---\ndate: 2026-10-{:02}\nmaturity: {maturity}\nutility: 0.5\n---\n# {}\n\n{lesson}.\n",
        at + 1,
        name.replace('-', " ")
    );
    (format!("learnings/{name}.md"), text)
}

fn corpus(files: impl IntoIterator<Item = (String, String)>) -> Corpus {
    let mut corpus = Corpus::default();
    let files = files.into_iter().map(|(path, text)| (path, Some(text.into_bytes())));
    corpus.apply(&files.collect::<Changes>());
    corpus.work = WorkFile::parse(
        b"{\"items\":[{\"title\":\"A\",\"consumed\":true},{\"title\":\"B\",\"consumed\":true},{\"title\":\"C\",\"failed_at\":\"2026-11-01\"}]}\n",
    );
    corpus
}

fn whole() -> Corpus {
    corpus((0..SUBJECTS.len()).map(node))
}

/// Returns a history in which three out of four nodes were used, and the last node misled its user.
fn history() -> Uses {
    let mut uses = Uses { consumed: 2, failed: 1, ..Uses::default() };
    for (at, (name, _, task)) in SUBJECTS.iter().enumerate() {
        if at % 4 == 1 {
            continue;
        }
        uses.events.push(NodeUse {
            name: (*name).to_owned(),
            by: format!("session {at}"),
            date: date(2026, 11, 1),
            helped: at + 1 < SUBJECTS.len(),
            question: (*task).to_owned(),
        });
    }
    uses
}

fn score(corpus: &Corpus, uses: &Uses) -> Fitness {
    fitness(corpus, uses, date(2026, 11, 22))
}

/// Returns words that the corpus does not contain, different for each seed.
fn gibberish(seed: usize, count: usize) -> String {
    let mut state = seed as u64 * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    let word = |n: usize| -> String {
        (0..6).map(|at| char::from(b'a' + ((n >> (at * 4)) % 23) as u8)).collect()
    };
    (0..count).map(|_| word(next())).collect::<Vec<_>>().join(" ")
}

/// Returns junk made up of words from real nodes, so searches find it.
fn plausible(seed: usize) -> String {
    let words: Vec<&str> = SUBJECTS.iter().flat_map(|(_, text, _)| text.split(' ')).collect();
    (0..12).map(|at| words[(seed * 31 + at * 17) % words.len()]).collect::<Vec<_>>().join(" ")
}

#[test]
fn manipulations_lower_the_fitness() {
    let uses = history();
    let before = score(&whole(), &uses);
    let was = before.composite.unwrap();
    let _closed = writeln!(std::io::stderr(), "as written: {was} {:?}", before.metrics);
    let all = || (0..SUBJECTS.len()).map(node);
    let front = |text: &str, body: String| {
        let end = text.find("\n---\n# ").unwrap() + 5;
        format!("{}# {}\n", &text[..end], body)
    };
    let junk = |text: fn(usize) -> String, maturity: &'static str| {
        let one = move |at: usize| {
            let text = format!(
                "---\ndate: 2026-11-20\nmaturity: {maturity}\nutility: 1.0\n---\n# {}\n",
                text(at)
            );
            (format!("learnings/junk-{at:03}.md"), text)
        };
        corpus(all().chain((0..200).map(one)))
    };
    let established = |(path, text): (String, String)| {
        let text = ["provisional", "candidate"].iter().fold(text, |text, it| {
            text.replace(&format!("maturity: {it}"), "maturity: established")
        });
        (path, text.replace("utility: 0.5", "utility: 1.0"))
    };
    for (what, corpus) in [
        (
            "random words",
            corpus(all().enumerate().map(|(at, (path, text))| {
                let text = front(&text, gibberish(at, 16));
                (path, text)
            })),
        ),
        ("every label is established", corpus(all().map(established))),
        ("all but one deleted", corpus(all().take(1))),
        ("200 junk nodes", junk(|at| gibberish(at, 12), "provisional")),
        (
            "200 junk nodes that are labelled established",
            junk(|at| gibberish(at, 12), "established"),
        ),
        ("200 junk nodes that runner harvested long ago", {
            let junk = (0..200).map(|at| {
                let front = "---\ngenerated_by: runner\nharvested_at: 2026-10-20\nmaturity: provisional\n---\n";
                (format!("learnings/junk-{at}.md"), format!("{front}# {}\n", gibberish(at, 12)))
            });
            corpus(all().chain(junk))
        }),
        ("200 junk nodes made of real words", junk(plausible, "provisional")),
        ("200 copies of a used node", junk(|_| SUBJECTS[0].1.to_owned(), "provisional")),
    ] {
        let now = score(&corpus, &uses);
        let _closed =
            writeln!(std::io::stderr(), "{what}: {} {:?}", now.composite.unwrap(), now.metrics);
        assert!(now.composite.unwrap() < was, "{what}");
    }
    // The values in `Floors` are compared even if no uses are known.
    let unknown = score(&whole(), &Uses::default());
    assert_eq!(unknown.composite, None);
    assert!(
        regressions(&unknown, &score(&corpus(all().take(1)), &Uses::default()), 0.05).len() == 2
    );
}

#[test]
fn repairs_do_not_lower_the_fitness() {
    let uses = history();
    let at_least = |what: &str, before: &Corpus, after: &Corpus, uses: &Uses| {
        let (before, after) = (score(before, uses), score(after, uses));
        let _closed =
            writeln!(std::io::stderr(), "{what}: {:?} -> {:?}", before.composite, after.composite);
        assert!(after.composite >= before.composite, "{what}: {before:?} {after:?}");
        assert_eq!(regressions(&before, &after, 0.05), [], "{what}");
    };
    let all = || (0..SUBJECTS.len()).map(node);
    let few = corpus(all().skip(20));
    let harvested = (0..SUBJECTS.len()).map(|at| {
        let front =
            "---\ngenerated_by: runner\nharvested_at: 2026-11-20\nmaturity: provisional\n---\n";
        (format!("learnings/harvest-{at}.md"), format!("{front}# {}\n", gibberish(at, 12)))
    });
    at_least("learnings are harvested", &whole(), &corpus(all().chain(harvested)), &uses);
    at_least("twenty nodes are added", &few, &whole(), &uses);

    // Both copies were used too, and their uses count towards the node that remains.
    let (_, text) = node(2);
    let copy = ("learnings/copy-of-it.md".to_owned(), text.clone());
    let near = ("learnings/near-to-it.md".to_owned(), text.replace(".\n", " often.\n"));
    let mut more = uses.clone();
    for name in ["copy-of-it", "near-to-it"] {
        more.events.push(NodeUse {
            name: name.to_owned(),
            by: format!("session {name}"),
            date: date(2026, 11, 2),
            helped: true,
            question: SUBJECTS[2].2.to_owned(),
        });
    }
    let merged = Uses {
        merged: [("copy-of-it".to_owned(), SUBJECTS[2].0.to_owned())].into(),
        ..more.clone()
    };
    let superseded =
        near.1.replace("---\n# ", &format!("superseded_by: {}\n---\n# ", SUBJECTS[2].0));
    let twice = corpus(all().chain([copy, near.clone()]));
    let once = corpus(all().chain([(near.0, superseded)]));
    at_least("duplicates are merged", &twice, &once, &merged);

    let retired = |(path, text): (String, String)| {
        let failed = path.contains(SUBJECTS[SUBJECTS.len() - 1].0);
        let text = match failed {
            true => text.replace("utility", "status: retired\nutility"),
            false => text,
        };
        (path, text)
    };
    at_least("a node that failed is retired", &whole(), &corpus(all().map(retired)), &uses);
}

#[test]
fn uses_are_read_from_citations_and_sessions() {
    let corpus = whole();
    let (mut uses, mut rows) = (Uses::default(), HashSet::new());
    let odd = uses.add_citations(concat!(
        "{\"artifact_path\":\"/p/.agents/learnings/retry-jitter.md\",\"session_id\":\"s1\",\"cited_at\":\"2026-11-01T00:00:00Z\",\"citation_type\":\"retrieved\"}\n",
        "{\"artifact_path\":\".agents/learnings/retry-jitter.md\",\"session_id\":\"s2\",\"cited_at\":\"2026-11-01T00:00:00Z\",\"citation_type\":\"applied\",\"query\":\"a slow server\"}\n",
        "{\"artifact_path\":\".agents/learnings/cache-digest.md\",\"session_id\":\"s2\",\"cited_at\":\"2026-11-01T00:00:00Z\",\"citation_type\":\"retrieved\",\"feedback_given\":true,\"feedback_reward\":0.1}\n",
        "damaged\n",
    ));
    assert_eq!((odd, uses.events.len()), (1, 2));
    assert!(uses.events[0].helped && !uses.events[1].helped);
    let session = concat!(
        "{\"uuid\":\"u1\",\"type\":\"user\",\"timestamp\":\"2026-11-03T08:00:00Z\",\"message\":{\"role\":\"user\",\"content\":\"tests collide\"}}\n",
        "{\"uuid\":\"u2\",\"type\":\"assistant\",\"timestamp\":\"2026-11-03T08:00:01Z\",\"message\":{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"Read\",\"input\":{\"file_path\":\"/p/.agents/learnings/port-zero.md\"}},{\"type\":\"tool_use\",\"id\":\"2\",\"name\":\"Write\",\"input\":{\"file_path\":\"/p/.agents/learnings/own-words.md\"}}]}}\n",
    );
    uses.add_session("s3", session.as_bytes(), &mut rows).unwrap();
    let last = uses.events.last().unwrap();
    assert_eq!(uses.events.len(), 3, "writing a node is not a use: {:?}", uses.events);
    assert_eq!((last.name.as_str(), last.question.as_str()), ("port-zero", "tests collide"));
    assert_eq!(last.date, date(2026, 11, 3));
    // A fork keeps the ids of the rows that it copies. Its next answer is its own.
    let answer = "{\"uuid\":\"u3\",\"type\":\"assistant\",\"timestamp\":\"2026-11-04T08:00:00Z\",\"message\":{\"role\":\"assistant\",\"content\":\".agents/learnings/port-zero.md helped\"}}\n";
    let count = |uses: &Uses| uses.events.iter().filter(|it| it.name == "port-zero").count();
    uses.add_session("s4", session.as_bytes(), &mut rows).unwrap();
    assert_eq!(count(&uses), 1);
    uses.add_session("s5", format!("{session}{answer}").as_bytes(), &mut rows).unwrap();
    assert_eq!((count(&uses), uses.events[3].question.as_str()), (2, "tests collide"));
    uses.events.pop();
    assert_eq!(uses.by_node(&corpus).len(), 3);
}
