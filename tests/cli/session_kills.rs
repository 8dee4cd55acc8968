//! Kills the analysis of sessions at random times while transcripts grow, break and are replaced.
//!
//! Every few kills, the transcripts rest and ticks complete the work. Then each session must have
//! the counts that its writer kept, and all findings must be those of a project that never saw a
//! kill.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Random, ended_within, print_line, scaled_from};
use crate::random_kills::kill_some;
use crate::served;
use crate::sessions::transcript;

const JOB: &str =
    "[jobs.dream]\nenabled = false\n[jobs.sessions]\nkind = \"sessions\"\ntrigger = \"manual\"\n";
const FOLDER: &str = ".warden/cross-session";
/// The number of sessions that grow at the same time, and of lines after which one is replaced.
const SESSIONS: usize = 8;
const LINES: u64 = 1_500;
/// A length that exceeds the maximum length of a line.
const LONG: usize = (8 << 20) + 1;

/// The counts of a file by name: the categories of its lines, and its calls.
type Counts = BTreeMap<&'static str, u64>;

/// A file that its writer extends: a transcript, or that of a sub-agent.
struct GrowingFile {
    path: PathBuf,
    counts: Counts,
    /// The rest of an unfinished line, and what the file counts when the line is complete.
    unfinished: Option<(Vec<u8>, Counts)>,
}

/// A session with the files of its sub-agents. The transcript is the first one.
struct GrowingSession {
    id: String,
    files: Vec<GrowingFile>,
}

/// Everything that changes the transcripts.
struct Writer {
    dice: Random,
    now: Timestamp,
    /// The number of rows, which makes ids and times of changes unique.
    rows: i64,
    sessions: Vec<GrowingSession>,
}

fn one(names: &[&'static str]) -> Counts {
    names.iter().map(|name| (*name, 1)).collect()
}

fn add(to: &mut Counts, from: &Counts) {
    for (name, count) in from {
        *to.entry(name).or_default() += count;
    }
}

impl GrowingFile {
    fn new(path: PathBuf) -> Self {
        Self { path, counts: Counts::new(), unfinished: None }
    }

    /// Appends bytes in two writes, so that a reader may see the first part alone.
    fn append(&mut self, bytes: &[u8], dice: &mut Random) {
        fs::create_dir_all(self.path.parent().unwrap()).unwrap();
        let mut file = File::options().create(true).append(true).open(&self.path).unwrap();
        let (first, rest) = bytes.split_at(dice.roll(bytes.len() as u64) as usize);
        file.write_all(first).unwrap();
        file.write_all(rest).unwrap();
    }

    fn lines(&self) -> u64 {
        self.counts.get("lines").copied().unwrap_or(0)
    }

    /// Returns the counts of the file as it is, with an unfinished line at its end.
    fn seen(&self) -> Counts {
        let mut counts = self.counts.clone();
        if self.unfinished.is_some() {
            add(&mut counts, &one(&["lines", "torn"]));
        }
        counts
    }
}

impl Writer {
    /// Returns a row as a line.
    fn row(&mut self, kind: &str, session: &str, content: &Value) -> Vec<u8> {
        self.rows += 1;
        let row = json!({ "type": kind, "sessionId": session, "timestamp": self.now.to_string(),
            "gitBranch": "main", "cwd": "/home/me/project", "message": { "content": [content] } });
        format!("{row}\n").into_bytes()
    }

    /// Returns a call and its outcome as two lines, and what they count.
    fn call(
        &mut self,
        session: &str,
        tool: &str,
        input: &Value,
        end: (&str, &str),
    ) -> (Vec<u8>, Counts) {
        let id = format!("call-{}", self.rows);
        let mut lines = self.row(
            "assistant",
            session,
            &json!({ "type": "tool_use", "id": id, "name": tool, "input": input }),
        );
        let (what, text) = end;
        let outcome = json!({ "type": "tool_result", "tool_use_id": id, "is_error": !what.is_empty(), "content": text });
        lines.extend(self.row("user", session, &outcome));
        let mut counts: Counts = [("lines", 2), ("read", 2), ("calls", 1)].into();
        if !what.is_empty() {
            add(
                &mut counts,
                &[if what == "failed" { ("failed", 1) } else { ("denied", 1) }].into(),
            );
        }
        (lines, counts)
    }

    /// Returns the next lines of a session, and what they count.
    fn lines(&mut self, session: &str) -> (Vec<u8>, Counts) {
        let number = self.dice.roll(5);
        let file = json!({ "file_path": format!("/home/me/project/src/{number}.rs") });
        let test = json!({ "command": format!("cargo test --package é{number}") });
        match self.dice.roll(16) {
            0..=3 => self.call(session, "Read", &file, ("", "text")),
            4..=6 => self.call(session, "Edit", &file, ("", "changed")),
            7 => self.call(
                session,
                "Bash",
                &test,
                ("denied", "Permission to use Bash has been denied"),
            ),
            8 | 9 => {
                let mut all = (Vec::new(), Counts::new());
                for (tool, input, end) in [
                    ("Bash", &test, ("failed", "test a::b ... FAILED")),
                    ("Edit", &file, ("", "changed")),
                    ("Bash", &test, ("", "ok")),
                ] {
                    let (lines, counts) = self.call(session, tool, input, end);
                    all.0.extend(lines);
                    add(&mut all.1, &counts);
                }
                all
            }
            10 => {
                let text = json!({ "type": "text", "text": "Now the next file" });
                (self.row("user", session, &text), one(&["lines", "read"]))
            }
            11 => (b"[1, 2]\n".to_vec(), one(&["lines", "foreign"])),
            12 => (b"no JSON\n".to_vec(), one(&["lines", "bad"])),
            13 => (b"\0\0 \n".to_vec(), one(&["lines", "blank"])),
            14 if self.dice.roll(200) == 0 => {
                let line = format!("{{\"type\":\"user\",\"x\":\"{}\"}}\n", "y".repeat(LONG));
                (line.into_bytes(), one(&["lines", "too_long"]))
            }
            _ => {
                // The outcome of this call never comes.
                let call = json!({ "type": "tool_use", "id": format!("open-{}", self.rows), "name": "Read", "input": file });
                (self.row("assistant", session, &call), one(&["lines", "read", "calls"]))
            }
        }
    }

    /// Extends one file of a session.
    fn extend(&mut self, session: &str, file: &mut GrowingFile) {
        let (mut bytes, mut counts) = self.lines(session);
        match file.unfinished.take() {
            // The line is completed.
            Some((rest, complete)) if self.dice.roll(2) == 0 => {
                bytes.splice(0..0, rest);
                add(&mut counts, &complete);
            }
            // Its writer died, and another one continues the file.
            Some(_) => {
                bytes.insert(0, b'\n');
                add(&mut counts, &one(&["lines", "bad"]));
                if bytes.get(1) != Some(&b'{') {
                    // Only a whole row ends the search for the rest of the object.
                    bytes.splice(
                        1..1,
                        self.row("user", session, &json!({ "type": "text", "text": "Go on" })),
                    );
                    add(&mut counts, &one(&["lines", "read"]));
                }
            }
            None => {}
        }
        if self.dice.roll(6) == 0 {
            let call = json!({ "type": "tool_use", "id": format!("half-{}", self.rows), "name": "Grep", "input": { "pattern": "é€" } });
            let line = self.row("assistant", session, &call);
            let (start, rest) = line.split_at(1 + self.dice.roll(line.len() as u64 - 2) as usize);
            bytes.extend_from_slice(start);
            file.unfinished = Some((rest.to_vec(), one(&["lines", "read", "calls"])));
        }
        file.append(&bytes, &mut self.dice);
        add(&mut file.counts, &counts);
        self.touch(&file.path);
    }

    /// Gives a file a modification time that no file had before.
    fn touch(&mut self, path: &Path) {
        self.rows += 1;
        let now = self.now + SignedDuration::from_micros(self.rows % 1_000_000);
        File::options()
            .append(true)
            .open(path)
            .unwrap()
            .set_modified(SystemTime::from(now))
            .unwrap();
    }

    /// Starts a session, replaces the transcript of one, or extends a file of one.
    fn write(&mut self, fixture: &Fixture) {
        let at = self.dice.roll(SESSIONS as u64) as usize;
        if at >= self.sessions.len() {
            let id = format!("session-{}", self.sessions.len());
            let files = vec![GrowingFile::new(transcript(fixture, &id))];
            self.sessions.push(GrowingSession { id, files });
        }
        let at = at.min(self.sessions.len() - 1);
        let mut session = self.sessions.swap_remove(at);
        let id = session.id.clone();
        let main = &mut session.files[0];
        if main.lines() > LINES || main.lines() > 0 && self.dice.roll(300) == 0 {
            *main = GrowingFile::new(main.path.clone());
            match self.dice.roll(2) {
                // Another file takes its place.
                0 => {
                    let other = main.path.with_extension("new");
                    fs::write(&other, b"").unwrap();
                    fs::rename(&other, &main.path).unwrap();
                }
                _ => drop(File::create(&main.path).unwrap()),
            }
            let path = main.path.clone();
            self.touch(&path);
        }
        match (self.dice.roll(12), session.files.len()) {
            (0, 1..4) => {
                let name = format!("agent-{id}-{}.jsonl", session.files.len());
                let folder = session.files[0].path.with_extension("");
                let new = |path| GrowingFile::new(path);
                session.files.push(match self.dice.roll(2) {
                    0 => new(folder.join("subagents").join(name)),
                    _ => new(folder.with_file_name(name)),
                });
                let file = session.files.last_mut().unwrap();
                // The first row names the session.
                let first = self.row("user", &id, &json!({ "type": "text", "text": "Look" }));
                file.append(&first, &mut self.dice);
                add(&mut file.counts, &one(&["lines", "read"]));
                self.touch(&file.path.clone());
                self.extend(&id, &mut session.files[0]);
            }
            (1..3, 2..) => {
                let which = 1 + self.dice.roll(session.files.len() as u64 - 1) as usize;
                self.extend(&id, &mut session.files[which]);
                // Only in a folder of its own is the file of a sub-agent known without being read.
                if !session.files[which].path.parent().unwrap().ends_with("subagents") {
                    self.extend(&id, &mut session.files[0]);
                }
            }
            _ => self.extend(&id, &mut session.files[0]),
        }
        self.sessions.push(session);
        self.sessions.sort_by(|a, b| a.id.cmp(&b.id));
    }

    /// Moves the clock forward.
    fn advance(&mut self, fixture: &Fixture, seconds: u64) {
        self.now += SignedDuration::from_secs(seconds.cast_signed());
        served::at(fixture, &self.now.to_string());
    }
}

/// Starts a command in a process group of its own.
fn start(fixture: &Fixture, args: &[&str]) -> std::process::Child {
    let mut command: Command = fixture.runner(args);
    command.env("RUNNER_TEST_CLOCK", fixture.root().join("clock"));
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap()
}

#[test]
fn killed_analyses_count_each_event_once() {
    let fixture = Fixture::new();
    let start_at: Timestamp = "2026-01-02T03:00:00Z".parse().unwrap();
    let dice = Random::new("session kills");
    let mut writer = Writer { dice, now: start_at, rows: 0, sessions: Vec::new() };
    writer.advance(&fixture, 0);
    served::run(&fixture, &["init"]).ends(0);
    fixture.configure(JOB);
    let limit = Duration::from_secs(scaled_from(3_600, 0.004) as u64);
    let began = Instant::now();
    let (mut kills, mut starts, mut compared) = (0, 0, Compared::default());
    while began.elapsed() < limit || kills == 0 {
        for _ in 0..20 {
            let seconds = writer.dice.roll(90);
            writer.advance(&fixture, seconds);
            let id = format!("session-{}", writer.dice.roll(SESSIONS as u64));
            // A daemon does not end by itself.
            let (mut worker, longest) = match writer.dice.roll(8) {
                0..=3 => (start(&fixture, &["tick"]), 150),
                4 | 5 => (start(&fixture, &["daemon"]), 400),
                6 => (start(&fixture, &["sessions", "analyze"]), 150),
                _ => (start(&fixture, &["sessions", "end", &id]), 150),
            };
            starts += 1;
            let end = Instant::now() + Duration::from_millis(writer.dice.roll(longest));
            // Transcripts grow while the process works.
            while Instant::now() < end
                && !ended_within(worker.id(), Duration::from_millis(writer.dice.roll(20)))
            {
                writer.write(&fixture);
            }
            if !ended_within(worker.id(), Duration::ZERO) {
                kills += 1;
                kill_some(worker.id(), &mut writer.dice);
                // A daemon outlives its children.
                let _ended = worker.kill();
            }
            worker.wait().unwrap();
        }
        rest(&fixture, &mut writer);
        compared.add(compare(&fixture, &writer));
    }
    assert_eq!(fixture.survivors(), Vec::<String>::new());
    let ended = |how: &str| {
        fixture.count(&format!("SELECT count(*) FROM runs WHERE outcome LIKE '%\"{how}\"%'"))
    };
    let Compared { times, lines, calls } = compared;
    print_line(&format!(
        "session kills: {kills} of {starts} processes killed in {:.0} s; {times} comparisons, \
         {lines} lines and {calls} calls counted once; runs: {} succeeded, {} lost",
        began.elapsed().as_secs_f64(),
        ended("succeeded"),
        ended("lost"),
    ));
}

/// Ticks until the analysis of every session is complete.
fn rest(fixture: &Fixture, writer: &mut Writer) {
    let mut left: Vec<Value> = Vec::new();
    for _ in 0..20 {
        // Three deaths in a row stop a job until a person continues it.
        served::run(fixture, &["jobs", "reset", "sessions"]).ends(0);
        for owner in served::owners(fixture) {
            let raw = owner.as_raw_nonzero().get().cast_unsigned();
            assert!(ended_within(raw, Duration::from_secs(60)), "run of PID {raw} does not end");
        }
        writer.advance(fixture, 1_200);
        served::run(fixture, &["tick"]).ends(0);
        let listed = served::run(fixture, &["sessions", "list", "--json"]).ends(0).json();
        let known = |it: &Value| it["state"] == "analyzed";
        left = listed.as_array().unwrap().iter().filter(|it| !known(it)).cloned().collect();
        if left.is_empty() && served::owners(fixture).is_empty() {
            return;
        }
    }
    let runs = served::runs(fixture, "sessions");
    panic!("{left:?} are not analyzed: {:?}", &runs[runs.len().saturating_sub(20)..]);
}

/// The counts of what was compared.
#[derive(Default)]
struct Compared {
    times: u64,
    lines: u64,
    calls: u64,
}

impl Compared {
    fn add(&mut self, other: Self) {
        self.times += other.times;
        self.lines += other.lines;
        self.calls += other.calls;
    }
}

/// Compares the findings with the writer's counts, and with those of a project without kills.
fn compare(fixture: &Fixture, writer: &Writer) -> Compared {
    let calm = Fixture::new();
    served::at(&calm, &writer.now.to_string());
    served::run(&calm, &["init"]).ends(0);
    calm.configure(JOB);
    copy(transcript(fixture, "x").parent().unwrap(), transcript(&calm, "x").parent().unwrap());
    served::run(&calm, &["sessions", "analyze"]).ends(0);
    let mut compared = Compared { times: 1, ..Compared::default() };
    for session in &writer.sessions {
        let mut expected = Counts::new();
        session.files.iter().for_each(|file| add(&mut expected, &file.seen()));
        let record = |of: &Fixture| -> Value {
            let text = of.read(&format!("{FOLDER}/sessions/{}.json", session.id));
            let mut record: Value = serde_json::from_str(&text).unwrap();
            record["path"].take();
            record
        };
        let found = record(fixture);
        for name in [
            "lines", "read", "foreign", "blank", "bad", "too_long", "torn", "calls", "failed",
            "denied",
        ] {
            let count = if ["calls", "failed", "denied"].contains(&name) {
                &found[name]
            } else {
                &found["tally"][name]
            };
            let wanted = expected.get(name).copied().unwrap_or(0);
            assert_eq!(count.as_u64(), Some(wanted), "{name} of {}", session.id);
        }
        assert_eq!(found, record(&calm), "{}", session.id);
        compared.lines += expected["lines"];
        compared.calls += expected.get("calls").copied().unwrap_or(0);
    }
    let counts = |of: &Fixture| -> BTreeMap<String, Value> {
        let all = served::run(of, &["sessions", "artifacts", "--json"]).ends(0).json();
        let count = |it: &Value| {
            json!([it["successes"], it["failures"], it["evidence"], it["source_sessions"]])
        };
        all.as_array()
            .unwrap()
            .iter()
            .map(|it| (it["id"].as_str().unwrap().to_owned(), count(it)))
            .collect()
    };
    // An artifact that is known stays, even if it would be too uncertain to be a new one.
    let found = counts(fixture);
    for (id, count) in counts(&calm) {
        assert_eq!(found.get(&id), Some(&count), "artifact {id}");
    }
    compared
}

/// Copies the files of a folder with their modification times.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let new = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &new);
            continue;
        }
        fs::copy(entry.path(), &new).unwrap();
        let modified = entry.metadata().unwrap().modified().unwrap();
        File::options().write(true).open(&new).unwrap().set_modified(modified).unwrap();
    }
}
