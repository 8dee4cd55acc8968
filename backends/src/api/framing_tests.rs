//! Checks that a body's events do not depend on how the body is split, and that they match those of
//! another parser.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use eventsource_stream::EventStream;
use futures_core::Stream;

use super::*;
use crate::api::chance_tests::{TestRandom, print_line, scaled};

type Events = Vec<(Vec<u8>, Vec<u8>)>;

fn read(mut framing: Framing, pieces: &[&[u8]]) -> Events {
    let mut all = Vec::new();
    let mut each = |name: &[u8], data: &[u8]| {
        all.push((name.to_vec(), data.to_vec()));
        ControlFlow::Continue(())
    };
    for piece in pieces {
        framing.feed(piece, &mut each).unwrap();
    }
    framing.finish(&mut each);
    all
}

struct Pieces(Vec<Vec<u8>>);

impl Stream for Pieces {
    type Item = Result<Vec<u8>, std::convert::Infallible>;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(match self.0.is_empty() {
            true => None,
            false => Some(Ok(self.0.remove(0))),
        })
    }
}

/// Reads the events with another parser, for comparison.
fn judge(pieces: &[&[u8]]) -> Events {
    let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
    let mut stream = Box::pin(EventStream::new(Pieces(pieces)));
    let mut context = Context::from_waker(Waker::noop());
    let mut all = Vec::new();
    while let Poll::Ready(Some(event)) = stream.as_mut().poll_next(&mut context) {
        let event = event.unwrap();
        let name = match event.event.as_str() {
            "message" => Vec::new(),
            name => name.as_bytes().to_vec(),
        };
        all.push((name, event.data.into_bytes()));
    }
    all
}

fn sse(events: &Events, end: &str, random: &mut TestRandom) -> Vec<u8> {
    let mut all = Vec::new();
    for (name, data) in events {
        if random.below(4) == 0 {
            all.extend(format!(": a comment{end}id: 7{end}").into_bytes());
        }
        if !name.is_empty() {
            all.extend([b"event: ", &name[..], end.as_bytes()].concat());
        }
        for line in data.split(|byte| *byte == b'\n') {
            all.extend([b"data: ", line, end.as_bytes()].concat());
        }
        all.extend(end.as_bytes());
    }
    all
}

#[test]
fn random_chunks_lose_no_byte() {
    let seed = 0x5eed_c0de_u64;
    let mut random = TestRandom(seed);
    let words = ["a", "{\"ä\":\"€\"}", " 😀 ", "", "data: x", "\u{fffd}", ":", "z\nz"];
    let (mut cases, mut judged) = (0, 0);
    let wanted = scaled(10_000);
    while cases < wanted {
        let events: Events = (0..=random.below(6))
            .map(|number| {
                let data: String =
                    (0..=random.below(5)).map(|_| words[random.below(words.len())]).collect();
                // The number prevents empty data, for which the other parser delivers no event.
                let data = format!("{number}{data}");
                let name = ["", "delta", "message_stop"][random.below(3)];
                (name.as_bytes().to_vec(), data.into_bytes())
            })
            .collect();
        let end = ["\n", "\r\n", "\r"][cases % 3];
        let whole = sse(&events, end, &mut random);
        let pieces = random.cut(&whole, 40);
        let found = read(Framing::Sse(Sse::new(LONGEST)), &pieces);
        assert_eq!(found, events, "seed {seed:#x}, case {cases}, {end:?}, {pieces:?}");
        if end != "\r" {
            judged += 1;
            assert_eq!(judge(&pieces), events, "the other parser, case {cases}");
        }
        let lines: Vec<u8> = (events.iter())
            .flat_map(|(_, data)| [&data.replace_feeds()[..], b"\n"].concat())
            .collect();
        let found = read(Framing::Lines(Lines::new(LONGEST)), &random.cut(&lines, 40));
        let texts: Vec<_> = events.iter().map(|(_, data)| data.replace_feeds()).collect();
        let found: Vec<_> = found.into_iter().map(|(_, data)| data).collect();
        assert_eq!(found, texts, "seed {seed:#x}, case {cases}, lines");
        cases += 1;
    }
    print_line(&format!(
        "framing: {cases} random splits (seed {seed:#x}), {judged} compared with another parser"
    ));
}

trait ReplaceFeeds {
    fn replace_feeds(&self) -> Vec<u8>;
}

impl ReplaceFeeds for Vec<u8> {
    fn replace_feeds(&self) -> Vec<u8> {
        self.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }).collect()
    }
}

#[test]
fn unterminated_event_is_not_delivered() {
    for end in ["\n", "\r\n", "\r"] {
        let mut sse = Framing::Sse(Sse::new(LONGEST));
        let mut count = 0;
        let mut each = |_: &[u8], data: &[u8]| {
            assert_eq!(data, b"[DONE]");
            count += 1;
            ControlFlow::Continue(())
        };
        let text = format!("data: [DONE]{end}{end}data: open");
        sse.feed(text.as_bytes(), &mut each).unwrap();
        sse.finish(&mut each);
        assert_eq!(count, 1, "{end:?}");
    }
    // The other parser does not deliver a final event that ends in bare CRs, so the random test
    // does not compare CR input.
    assert!(judge(&[b"data: [DONE]\r\r"]).is_empty());
}

#[test]
fn endless_event_is_too_large() {
    let mut endless = Framing::Sse(Sse::new(1_000));
    let mut none = |_: &[u8], _: &[u8]| -> ControlFlow<()> { panic!("no event was expected") };
    assert_eq!(endless.feed(b"data: ", &mut none), Ok(()));
    assert_eq!(endless.feed(&[b'x'; 2_000], &mut none), Err(TooLarge));
    let mut lines = Framing::Sse(Sse::new(1_000));
    let many = b"data: 123\n".repeat(400);
    assert_eq!(lines.feed(&many, &mut none), Err(TooLarge));
    let mut whole = Framing::Whole(vec![0; LONGEST]);
    assert_eq!(whole.feed(b"x", &mut none), Err(TooLarge));
    // Comments are not events and use no memory.
    let mut comments = Framing::Sse(Sse::new(1_000));
    for _ in 0..1_000 {
        assert_eq!(comments.feed(b": alive\n\n", &mut none), Ok(()));
    }
}

#[test]
fn events_after_a_break_are_dropped() {
    let mut sse = Framing::Sse(Sse::new(LONGEST));
    let mut seen = 0;
    sse.feed(b"data: 1\n\ndata: 2\n\n", &mut |_, _| {
        seen += 1;
        ControlFlow::Break(())
    })
    .unwrap();
    assert_eq!(seen, 1);
    assert!(Framing::of("text/event-stream; charset=utf-8").is_some());
    assert!(Framing::of("Application/X-NDJSON").is_some());
    assert!(Framing::of("text/html").is_none() && Framing::of("").is_none());
}
