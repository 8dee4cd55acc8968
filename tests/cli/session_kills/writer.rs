//! Writes transcripts of sessions as agents do, with the damage that crashes leave, and counts the
//! written lines and calls.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Random};
use crate::sessions::transcript;

/// The number of sessions that grow at the same time.
pub const SESSIONS: usize = 8;
/// The number of lines after which a session's transcript is replaced.
const LINES: u64 = 1_500;
/// A length that exceeds the maximum length of a line.
const LONG: usize = (8 << 20) + 1;

/// The counts of a file by name: the categories of its lines, and its calls.
pub type Counts = BTreeMap<&'static str, u64>;

/// A file that the writer extends: the transcript of a session or of a sub-agent.
pub struct GrowingFile {
    path: PathBuf,
    counts: Counts,
    /// The rest of an unfinished line, and the counts that are added when the line is complete.
    unfinished: Option<(Vec<u8>, Counts)>,
}

/// A session with its files: its transcript, followed by the transcripts of its sub-agents.
pub struct GrowingSession {
    pub id: String,
    pub files: Vec<GrowingFile>,
}

/// Extends and replaces the transcripts of several sessions at random.
pub struct Writer {
    pub dice: Random,
    pub now: Timestamp,
    /// A counter that makes ids and modification times unique.
    rows: i64,
    pub sessions: Vec<GrowingSession>,
}

fn one(names: &[&'static str]) -> Counts {
    names.iter().map(|name| (*name, 1)).collect()
}

pub fn add(to: &mut Counts, from: &Counts) {
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

    /// Returns the file's counts, including an unfinished line at its end.
    pub fn seen(&self) -> Counts {
        let mut counts = self.counts.clone();
        if self.unfinished.is_some() {
            add(&mut counts, &one(&["lines", "torn"]));
        }
        counts
    }
}

impl Writer {
    pub fn new(dice: Random) -> Self {
        let now = "2026-01-02T03:00:00Z".parse().unwrap();
        Self { dice, now, rows: 0, sessions: Vec::new() }
    }

    fn row(&mut self, kind: &str, session: &str, content: &Value) -> Vec<u8> {
        self.rows += 1;
        let row = json!({ "type": kind, "sessionId": session, "timestamp": self.now.to_string(),
            "gitBranch": "main", "cwd": "/home/me/project", "message": { "content": [content] } });
        format!("{row}\n").into_bytes()
    }

    /// Returns a call and its outcome as two lines, with their counts.
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

    /// Returns the next lines of a session, with their counts.
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
                // The outcome of this call never arrives.
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
            // The writer of the line died, and another writer continues the file.
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

    /// Extends a session, which may be new, and sometimes replaces its transcript first.
    pub fn write(&mut self, fixture: &Fixture) {
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
                // Another file replaces the transcript.
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
                // A sub-agent's file is recognized without being read only in the folder
                // `subagents`.
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
    pub fn advance(&mut self, fixture: &Fixture, seconds: u64) {
        self.now += SignedDuration::from_secs(seconds.cast_signed());
        fixture.set_clock(self.now);
    }
}
