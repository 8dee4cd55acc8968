//! Measures a static model: `model_measure MODEL`. It prints the times to open the model and embed
//! a string, to embed another string, and to search 50,000 vectors.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a benchmark program"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use runner_memory::model::{Table, Vector};

const ROUNDS: usize = 51;
const TEXT: &str = "why does the refresh token of a session expire after the port was changed";

fn main() {
    let path = std::env::args().nth(1).unwrap();
    let measure = |what: &str, work: &dyn Fn()| {
        let mut times: Vec<Duration> = (0..ROUNDS)
            .map(|_| {
                let begun = Instant::now();
                work();
                begun.elapsed()
            })
            .collect();
        times.sort();
        println!("{what}: fastest {:?}, median {:?}", times[0], times[ROUNDS / 2]);
    };
    measure("open a model and embed a text", &|| {
        black_box(Table::open(path.as_ref()).unwrap().embed(TEXT));
    });
    let table = Table::open(path.as_ref()).unwrap();
    measure("embed a text", &|| {
        black_box(table.embed(TEXT));
    });
    let asked = table.embed(TEXT).unwrap();
    let table = table.load().unwrap();
    let words: Vec<&str> = TEXT.split(' ').collect();
    let text = |at: usize| format!("{} {} {at}", words[at % words.len()], words[at % 11]);
    let all: Vec<Vector> = (0..50_000).filter_map(|at| table.embed(&text(at))).collect();
    measure("search among 50,000 vectors", &|| {
        black_box(asked.nearest(&all, 10));
    });
}
