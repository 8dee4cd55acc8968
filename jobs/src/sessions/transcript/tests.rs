//! Tests valid lines, damaged lines, and memory use with a large file.

use std::io::{self, BufRead, BufReader, Read};

use proptest::prelude::*;

use super::*;

const USER: &str = r#"{"type":"user","timestamp":"2026-01-02T03:04:05Z","cwd":"/p","message":{"role":"user","content":"Please mend it"}}"#;
const ASSISTANT: &str = r#"{"type":"assistant","timestamp":"2026-01-02T03:04:06Z","message":{"content":[{"type":"text","text":"Done."},{"type":"tool_use","id":"t1","name":"Edit","input":{"file_path":"src/a.rs","old_string":"x"}}]}}"#;
const RESULT: &str = r#"{"type":"user","timestamp":"2026-01-02T03:04:07Z","isSidechain":true,"message":{"content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":[{"type":"text","text":"no such file"}]}]}}"#;

fn read(bytes: &[u8]) -> (Vec<SessionEvent>, Tally, LineGap) {
    let mut transcript = Transcript::with_cap(bytes, LineGap::default(), 4096);
    let events: Vec<SessionEvent> = transcript.by_ref().map(Result::unwrap).collect();
    let tally = transcript.tally().clone();
    assert!(tally.adds_up(), "{tally:?}");
    (events, tally, transcript.place())
}

#[test]
fn rows_of_each_form_become_events() {
    let file = format!(
        "{USER}\n{ASSISTANT}\n{RESULT}\n{{\"type\":\"summary\",\"summary\":\"A mend\",\"leafUuid\":\"x\"}}\n{{\"type\":\"file-history-snapshot\",\"snapshot\":{{}}}}\n"
    );
    let (events, tally, place) = read(file.as_bytes());
    let what: Vec<&SessionEventKind> = events.iter().map(|event| &event.what).collect();
    assert_eq!(*what[0], SessionEventKind::Prompt("Please mend it".into()));
    assert_eq!(*what[1], SessionEventKind::Answer("Done.".into()));
    assert_eq!(
        *what[2],
        SessionEventKind::Call {
            id: "t1".into(),
            tool: "Edit".into(),
            target: "src/a.rs".into(),
            written: String::new()
        }
    );
    assert_eq!(
        *what[3],
        SessionEventKind::Outcome { id: "t1".into(), failed: true, text: "no such file".into() }
    );
    assert_eq!(*what[4], SessionEventKind::Summary("A mend".into()));
    assert_eq!(*what[5], SessionEventKind::Other("file-history-snapshot".into()));
    assert_eq!((events[0].line, events[3].line), (1, 3));
    assert!(events[3].sidechain && events[0].cwd.as_deref() == Some("/p"));
    assert_eq!((tally.read, tally.lines), (5, 5));
    assert_eq!((place.line, place.offset), (6, file.len() as u64));
}

#[test]
fn unexpected_fields_do_not_affect_the_rest_of_a_row() {
    let rows = [
        // Half of a character, in a field that is read and in one that is not.
        USER.replace("mend", r"\ud83d mend"),
        USER.replace("\"cwd\"", r#""toolUseResult":"cut \udc00","cwd""#),
        // Duplicate fields, and fields of an unexpected form.
        USER.replace("\"cwd\"", "\"cwd\":\"/q\",\"cwd\""),
        USER.replace(
            "\"cwd\"",
            "\"isSidechain\":{\"a\":[1]},\"gitBranch\":7,\"summary\":[null],\"cwd\"",
        ),
        ASSISTANT.replace("\"text\":\"Done.\"", "\"text\":null,\"input\":\"none\",\"content\":1.5"),
        ASSISTANT.replace("{\"type\":\"text\"", "\"text\",{\"type\":\"text\""),
    ];
    let (events, tally, _) = read(rows.join("\n").as_bytes());
    let texts = events.iter().filter_map(|event| match &event.what {
        SessionEventKind::Prompt(text) | SessionEventKind::Answer(text) => Some(text.as_str()),
        _ => None,
    });
    let texts: Vec<&str> = texts.collect();
    let mended = "Please mend it";
    assert_eq!(texts, ["Please \u{fffd} mend it", mended, mended, mended, "", "Done."]);
    assert!(events.iter().all(|event| !event.sidechain && event.branch.is_none()));
    assert!(events.iter().take(4).all(|event| event.cwd.as_deref() == Some("/p")));
    assert_eq!((tally.read, tally.lines), (6, 6));
}

#[test]
fn damaged_lines_do_not_affect_other_lines() {
    let pretty =
        serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(USER).unwrap())
            .unwrap();
    let long = format!("{{\"type\":\"user\",\"x\":\"{}\"}}", "y".repeat(5000));
    let spans = pretty.lines().count() as u64;
    let file = [
        "\u{feff}".to_owned() + USER,             // read
        format!("{USER}{ASSISTANT}"),             // two objects on one line
        "\0\0\0".to_owned(),                      // a run of NUL
        format!("\0\0{USER}"),                    // NUL before an object
        long,                                     // too long
        "not json".to_owned(),                    // bad
        pretty,                                   // one object on several lines
        "{\"type\":\"user\",\"mess".to_owned(),   // torn in the middle
        USER.to_owned(),                          // read after resynchronizing
        format!("nonsense {USER}"),               // an object after other text
        "[1,2,3]".to_owned(),                     // foreign
        "{\"ts\":1,\"detail\":\"x\"}".to_owned(), // foreign
        String::new(),
        "{\"type\":\"user\",\"timestamp\":\"2026".to_owned(), // torn at the end
    ]
    .join("\n");
    let (events, tally, place) = read(file.as_bytes());
    let prompts =
        events.iter().filter(|event| matches!(event.what, SessionEventKind::Prompt(_))).count();
    assert_eq!(prompts, 6);
    assert_eq!(tally.read, 5 + spans);
    assert_eq!((tally.too_long, tally.bad, tally.torn), (1, 2, 1));
    assert_eq!((tally.foreign, tally.blank, tally.nuls), (2, 2, 5));
    assert_eq!(tally.long_at.len(), 1);
    let rest = &file.as_bytes()[usize::try_from(place.offset).unwrap()..];
    assert!(rest.starts_with(b"{\"type\":\"user\",\"timestamp\":\"2026"));
    assert_eq!(place.line, tally.lines);
}

#[test]
fn chunked_reading_equals_whole_reading() {
    let file: String =
        (0..40).map(|at| USER.replace("mend it", &format!("mend {at}")) + "\n").collect();
    let (whole, ..) = read(file.as_bytes());
    let mut parts = Vec::new();
    for from in (1..=40).step_by(7) {
        let mut chunk = Transcript::new(file.as_bytes(), LineGap::default()).until(from + 6);
        chunk.skip_to(from).unwrap();
        parts.extend(chunk.by_ref().map(Result::unwrap));
        assert!(chunk.tally().adds_up() && chunk.tally().lines <= 7);
    }
    assert_eq!(parts, whole);

    let cut = file.len() - 30;
    let (mut events, _, place) = read(&file.as_bytes()[..cut]);
    assert_eq!(events.len(), 39);
    let rest = &file.as_bytes()[usize::try_from(place.offset).unwrap()..];
    events.extend(Transcript::new(rest, place).map(Result::unwrap));
    assert_eq!(events, whole);
    let mut beyond = Transcript::new(file.as_bytes(), LineGap::default());
    beyond.skip_to(100).unwrap();
    assert!(beyond.next().is_none());
}

/// A reader that returns one line that is far too long, followed by the same rows repeatedly.
struct Endless {
    left: u64,
    long: u64,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            if self.left == 0 {
                return Ok(0);
            }
            self.at = 0;
            if self.long > 0 {
                self.long = self.long.saturating_sub(1 << 20);
                self.piece = vec![b'x'; 1 << 20];
                if self.long == 0 {
                    self.piece.push(b'\n');
                }
            } else {
                self.piece = format!("{ASSISTANT}\n{RESULT}\n").into_bytes();
            }
            self.left = self.left.saturating_sub(self.piece.len() as u64);
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[test]
fn large_file_is_read_in_limited_memory() {
    let source = Endless { left: 50 << 20, long: 20 << 20, piece: Vec::new(), at: 0 };
    let mut transcript = Transcript::new(BufReader::new(source), LineGap::default());
    let mut events = 0;
    for event in transcript.by_ref() {
        event.unwrap();
        events += 1;
    }
    let tally = transcript.tally();
    assert!(tally.adds_up() && tally.too_long == 1 && tally.bad == 0, "{tally:?}");
    assert_eq!(tally.long_at, [0]);
    assert_eq!(events, tally.read / 2 * 3);
    let allocated = transcript.records.allocated();
    // Buffers grow by doubling.
    assert!(allocated <= 2 * MAX_LINE, "{allocated} bytes are allocated");
}

#[test]
fn reader_error_is_reported_and_ends_iteration() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("gone"))
        }
    }
    let mut transcript = Transcript::new(BufReader::new(Broken), LineGap::default());
    assert!(transcript.next().unwrap().is_err());
    assert!(transcript.next().is_none());
}

proptest! {
    #[test]
    fn every_line_is_counted_once(
        pieces in prop::collection::vec(prop_oneof![
            Just(USER.as_bytes().to_vec()), Just(ASSISTANT.as_bytes().to_vec()), Just(b"\n".to_vec()),
            Just(b"\0".to_vec()), Just(b"{".to_vec()), Just(b"}".to_vec()), Just(b"\"".to_vec()),
            Just(b"{\"type\":\"user\"".to_vec()), prop::collection::vec(any::<u8>(), 0..6),
        ], 0..20),
        cap in 1_usize..400,
    ) {
        let bytes = pieces.concat();
        let mut small = Transcript::with_cap(BufReader::with_capacity(3, &bytes[..]), LineGap::default(), cap);
        let a: Vec<SessionEvent> = small.by_ref().map(Result::unwrap).collect();
        let mut large = Transcript::with_cap(&bytes[..], LineGap::default(), cap);
        let b: Vec<SessionEvent> = large.by_ref().map(Result::unwrap).collect();
        prop_assert_eq!(a, b);
        prop_assert_eq!(small.tally(), large.tally());
        prop_assert!(large.tally().adds_up(), "{:?}", large.tally());
        let lines = bytes.lines_of();
        prop_assert_eq!(large.tally().lines, lines);
    }
}

trait Lines {
    fn lines_of(&self) -> u64;
}

impl Lines for Vec<u8> {
    fn lines_of(&self) -> u64 {
        BufRead::split(&self[..], b'\n').count() as u64
    }
}

#[test]
fn an_object_before_an_unfinished_one_is_read_once() {
    let text = format!("{USER} {USER}\n").into_bytes();
    let torn = &text[..text.len() - 2];
    let mut first = Transcript::with_cap(torn, LineGap::default(), 4096);
    assert_eq!(first.by_ref().count(), 1);
    let place = first.place();
    let from = usize::try_from(place.offset).unwrap();
    assert_eq!(Transcript::with_cap(&torn[from..], place, 4096).count(), 0);
    assert_eq!(Transcript::with_cap(&text[from..], place, 4096).count(), 1);
}
