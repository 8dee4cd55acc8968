//! Tests the readers of settings with valid files that are corrupted at random.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "the test reads its scale, its seed and the clock"
)]

use std::env;
use std::time::Instant;

use super::fuzzed::{ctxrc, toml};

/// The SplitMix64 random number generator.
struct Random(u64);

impl Random {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % (below.max(1) as u64)).unwrap()
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.roll(from.len())]
    }
}

const TOML: [&str; 3] = [
    "[night]\nat = \"02:30\"\nlength = \"8h\"\nzone = \"UTC\"\n[night.budget]\ncalls = 3\nmoney = 0.5\n",
    "[jobs.tidy]\nkind = \"command\"\ntrigger = \"cron 30 2 * * *\"\nprogram = \"make\"\nargs = [\"a\"]\nartifacts = [{ from = \"a\", to = \"n/a\" }]\nretries = 2\nbackoff = [\"1m\"]\nquiet = \"22:00-06:00\"\n",
    "[jobs.dream]\nmax_ideas = 5\nmax_idea_bytes = \"1MB\"\ndirty = \"strict\"\ncanonical = [\"a\"]\n[groups.heavy]\nslots = 1\n[backends.m]\ntype = \"command\"\nprogram = \"m\"\n",
];
const CTXRC: [&str; 2] = [
    "context_dir: .context\ndream:\n  enabled: true\n  mode: discipline\n  max: 5\n  cadence: \"30 2 * * *\"\n  quiet_minutes: 60\n  model: fast\n  budget: {calls: 3}\n  executor: [m, --json]\nother: [1, {a: b}]\n",
    "a: &a {b: c}\ndream:\n  budget: 5000\nz: *a\n",
];
/// Replacements for the text after `=` or `:` in a line.
const WORDS: [&str; 40] = [
    "\"\"",
    "''",
    "0",
    "-1",
    "9223372036854775808",
    "1e999",
    "nan",
    "inf",
    "0x10",
    "1_000",
    "true",
    "yes",
    "null",
    "~",
    "2026-11-21",
    "02:30",
    "\"8 parsecs\"",
    "\"-1s\"",
    "\"1h 1h\"",
    "\"99999999999GB\"",
    "[]",
    "{}",
    "[[]]",
    "{a={b=1}}",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "'''x",
    "\"cron * * 31 2 *\"",
    "\"after dream\"",
    "\"cron 0 0 L * *\"",
    "\"UTC\"",
    "{from=1,to=2}",
    "[{from=\"a\"}]",
    "!!int 3",
    "&a",
    "*a",
    "<<",
    "? x",
    "|\n  x",
    "\"night\"",
];

/// Makes one to four random changes to a string.
fn broken(dice: &mut Random, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len() + 1);
        match dice.roll(14) {
            0 => bytes = [b"\xef\xbb\xbf", bytes.as_slice()].concat(),
            1 => bytes = String::from_utf8_lossy(&bytes).replace('\n', "\r\n").into_bytes(),
            2 => bytes.insert(at, 0),
            3 => {
                let byte = u8::try_from(dice.roll(256)).unwrap();
                bytes.insert(at, byte);
            }
            4 => {
                let deep = 1 + dice.roll(300);
                let open = dice.pick(&["[", "{a=", "{a: ", "a.", "- ", "\"", "# "]);
                bytes.splice(at..at, open.repeat(deep).into_bytes());
            }
            // Appends a copy of a line, which creates duplicate keys and tables.
            5 | 6 => {
                let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
                if let Some(line) = lines.get(dice.roll(lines.len())) {
                    bytes = [bytes.as_slice(), *line].concat();
                }
            }
            // Replaces a byte, usually in a key or a value.
            7 | 8 if !bytes.is_empty() => {
                let at = dice.roll(bytes.len());
                bytes[at] = b"abcxyz0189-_.\"'=[]{}:,# \n\t"[dice.roll(26)];
            }
            9 => bytes.truncate(at),
            10 if !bytes.is_empty() => {
                bytes.remove(dice.roll(bytes.len()));
            }
            _ => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
                let at = dice.roll(lines.len());
                if let Some(end) = lines[at].find(['=', ':']) {
                    lines[at].truncate(end + 1);
                    lines[at].push(' ');
                    lines[at].push_str(dice.pick(&WORDS));
                }
                bytes = lines.join("\n").into_bytes();
            }
        }
    }
    bytes
}

fn number(name: &str) -> Option<f64> {
    env::var(name).ok()?.parse().ok()
}

#[test]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a count of cases"
)]
fn random_settings_are_read_or_located() {
    let began = Instant::now();
    let seed = number("RUNNER_TEST_SEED")
        .map_or_else(|| u64::from(std::process::id()), |seed| seed as u64);
    let cases = (20_000.0 * number("RUNNER_TEST_SCALE").unwrap_or(1.0)).ceil() as usize;
    eprintln!("random settings: RUNNER_TEST_SEED={seed}");
    let half = |from: usize| {
        let mut dice = Random(seed.wrapping_add(from as u64));
        let mut good = 0;
        for case in (from..cases).step_by(2) {
            let (text, read): (&str, fn(&[u8]) -> bool) = if dice.roll(2) == 0 {
                (dice.pick(&TOML), toml)
            } else {
                (dice.pick(&CTXRC), ctxrc)
            };
            let bytes = broken(&mut dice, text);
            let done = std::panic::catch_unwind(|| read(&bytes));
            match done {
                Ok(fine) => good += usize::from(fine),
                Err(_) => {
                    panic!("case {case} of seed {seed}: {:?}", String::from_utf8_lossy(&bytes))
                }
            }
        }
        good
    };
    let good: usize = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        half(0) + other.join().unwrap()
    });
    assert!(
        good > cases / 50 && good < cases,
        "{good} of {cases} cases are valid, so the test proves little"
    );
    eprintln!(
        "random settings: {cases} cases, {good} valid, {:.1} s",
        began.elapsed().as_secs_f64()
    );
}

#[test]
fn long_files_are_read_or_refused() {
    let long = "x".repeat(10 << 20);
    for text in [
        format!("a = \"{long}\"\n"),
        format!("# {long}\n[night]\nat = \"02:30\"\n"),
        format!("{long} = 1\n"),
        format!("a = '''{}\n", "\n".repeat(10 << 20)),
        "[jobs.a]\n".repeat(100_000),
    ] {
        toml(text.as_bytes());
        assert!(!ctxrc(text.as_bytes()), "an oversized file was accepted");
    }
    for read in [toml, ctxrc] {
        assert!(
            TOML.iter().chain(&CTXRC).any(|text| read(text.as_bytes())),
            "no sample was accepted"
        );
        read(&[0xff; 100]);
    }
}
