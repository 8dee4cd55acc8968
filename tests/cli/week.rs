//! Simulates a week with a tick every quarter of an hour, jobs with intervals from a minute to a
//! week, three channels, and faults. Checks every message that each channel gets.
//!
//! `RUNNER_TEST_SCALE=1` simulates the whole week, and `RUNNER_TEST_KEEP=FOLDER` keeps the
//! messages.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use jiff::{SignedDuration, Timestamp};

use crate::fixture::{CommandOutput, Fixture, print_line, scaled_from};

/// The channels, with fakes of the programs through which they deliver. Each appends the time and
/// the message to a file.
const CHANNELS: [(&str, &str); 3] = [
    ("notify-send", "shift 3; printf '%s\\n%s\\n' \"$1\" \"$2\""),
    ("pager", "cat; echo"),
    (
        "sendmail",
        "mail=$(cat); echo \"$mail\" | sed -n 's/^Subject: //p'; \
         echo \"$mail\" | sed '1,/^$/d' | base64 -d | tr -d '\\r'",
    ),
];

const SETTINGS: &str = r#"
[defaults]
stagger = "0s"
retries = 0
[trust]
paths = ["/"]
[notify]
window = "30m"
quiet = "22:00-07:00"
[channels.screen]
type = "desktop"
[channels.pager]
type = "command"
program = "pager"
sandbox = "off"
[channels.mail]
type = "email"
recipient = "me@example.org"
program = "sendmail"
sandbox = "off"
"#;

/// The jobs with their triggers. Each fails while a file with its name and `.fails` exists.
const JOBS: [(&str, &str); 7] = [
    ("minute", "every 1m"),
    ("five", "every 5m"),
    ("ten", "cron */10 * * * *"),
    ("hourly", "cron 0 * * * *"),
    ("daily", "daily 09:00"),
    ("strict", "daily 11:00"),
    ("weekly", "cron 0 6 * * 1"),
];

/// A time of the week: the day (0 is Monday), the hour and the minute, which is a multiple of 15.
type Time = (usize, usize, usize);

fn quarter_of((day, hour, minute): Time) -> usize {
    day * 96 + hour * 4 + minute / 15
}

/// A fault in the simulated week.
#[derive(Clone, Copy)]
enum Fault {
    /// The job fails.
    Fails(&'static str),
    /// The pager's program refuses every message.
    PagerDown,
    /// The host is off, so nothing ticks.
    HostOff,
    /// `runner.toml` cannot be read.
    BrokenSettings,
}

/// The faults, with their start and end.
const FAULTS: [(Fault, Time, Time); 15] = [
    // A weekly job fails before the quiet hours end, and succeeds a week later.
    (Fault::Fails("weekly"), (0, 5, 0), (0, 7, 0)),
    // Two jobs fail at the same time. The second one fails so often that it is stopped.
    (Fault::Fails("hourly"), (0, 13, 0), (0, 14, 45)),
    (Fault::Fails("ten"), (0, 13, 0), (0, 14, 0)),
    // At night, one job is stopped, and another one fails only once.
    (Fault::Fails("hourly"), (0, 23, 0), (1, 8, 0)),
    (Fault::Fails("five"), (1, 1, 0), (1, 1, 15)),
    // A problem begins and ends while the pager is down.
    (Fault::PagerDown, (1, 12, 0), (1, 14, 0)),
    (Fault::Fails("ten"), (1, 12, 0), (1, 12, 30)),
    (Fault::HostOff, (2, 8, 0), (2, 16, 0)),
    // The pager is down for longer than the problem takes to stop the job.
    (Fault::PagerDown, (3, 13, 0), (3, 18, 0)),
    (Fault::Fails("hourly"), (3, 13, 0), (3, 17, 0)),
    (Fault::BrokenSettings, (4, 10, 0), (4, 12, 0)),
    // Somebody edits the settings.
    (Fault::BrokenSettings, (4, 15, 0), (4, 15, 15)),
    // A job fails day after day. At first, the pager is down.
    (Fault::PagerDown, (4, 8, 45), (4, 9, 30)),
    (Fault::Fails("daily"), (4, 8, 0), (7, 0, 0)),
    (Fault::Fails("minute"), (5, 20, 0), (5, 20, 15)),
];

/// The jobs that a person resets after fixing them.
const RESETS: [(&str, Time); 3] =
    [("hourly", (1, 8, 30)), ("ten", (1, 8, 30)), ("hourly", (3, 17, 15))];

/// Every event that the channels must report, with its time, and whether the pager reports it as
/// well. The pager gets no news of a problem that is over or acknowledged by the time the pager is
/// up again.
const NEWS: [(Time, &str, bool); 20] = [
    ((0, 7, 0), "weekly failed", true),
    ((0, 13, 0), "hourly, ten failed", true),
    ((0, 13, 30), "ten is no longer started", true),
    ((0, 15, 0), "hourly has recovered", true),
    ((1, 7, 0), "hourly failed and is no longer started", true),
    ((1, 12, 0), "ten failed", false),
    ((1, 12, 30), "ten has recovered", false),
    ((2, 16, 0), "strict was missed", true),
    ((3, 11, 0), "strict has recovered", true),
    ((3, 13, 0), "hourly failed", false),
    ((3, 15, 0), "hourly is no longer started", false),
    ((4, 9, 0), "daily failed", true),
    ((4, 10, 30), "five, hourly, minute, ten were missed", true),
    ((4, 11, 30), "strict was missed", true),
    ((4, 12, 0), "five, hourly, minute, strict, ten have recovered", true),
    ((5, 9, 0), "daily failed (still: 2 times)", true),
    ((5, 20, 0), "minute failed", true),
    ((5, 20, 30), "minute has recovered", true),
    ((6, 9, 0), "daily failed (still: 3 times) and is no longer started", true),
    ((7, 7, 0), "weekly has recovered", true),
];

struct Week {
    fixture: Fixture,
    quarter: usize,
}

impl Week {
    fn new() -> Self {
        let fixture = Fixture::new();
        let bin = fixture.root().join("bin");
        fs::create_dir_all(&bin).unwrap();
        let (down, clock) = (fixture.root().join("pager-is-down"), fixture.root().join("clock"));
        for (name, script) in CHANNELS {
            let out = fixture.root().join(format!("{name}.out"));
            let refuse = match name {
                "pager" => format!("[ ! -e '{}' ] || exit 4\n", down.display()),
                _ => String::new(),
            };
            let text = format!(
                "#!/bin/sh\n{refuse}{{ cat '{}'; echo; {script}; echo ----; }} >> '{}'\n",
                clock.display(),
                out.display()
            );
            fs::write(bin.join(name), text).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(fixture.root().join("config/runner/config.toml"), SETTINGS).unwrap();
        let week = Self { fixture, quarter: 0 };
        week.run(&["init"]).ends(0);
        let mut toml = "[jobs.dream]\nenabled = false\n".to_owned();
        for (name, trigger) in JOBS {
            let catch_up = if name == "strict" { "catch_up = \"none\"\n" } else { "" };
            toml.push_str(&format!(
                "[jobs.{name}]\nkind = \"command\"\ntrigger = \"{trigger}\"\nprogram = \"sh\"\n\
                 args = [\"-c\", \"[ ! -e {name}.fails ] || {{ echo broken >&2; exit 3; }}\"]\n{catch_up}"
            ));
        }
        week.fixture.configure(&toml);
        week
    }

    /// Returns the time of a quarter of an hour. 2026-11-16 is a Monday.
    fn time(quarter: usize) -> Timestamp {
        let monday: Timestamp = "2026-11-16T00:00:00Z".parse().unwrap();
        let since = SignedDuration::from_mins(15 * i64::try_from(quarter).unwrap());
        monday.saturating_add(since).unwrap()
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        self.fixture.set_clock(Self::time(self.quarter));
        let path = format!(
            "{}:{}",
            self.fixture.root().join("bin").display(),
            std::env::var("PATH").unwrap()
        );
        let mut command = self.fixture.runner_with_clock(args);
        CommandOutput::of(command.env("PATH", path).output().unwrap())
    }

    /// Runs a tick, and delivers the messages that are due.
    fn tick(&self) {
        self.run(&["tick", "--quiet"]);
        let due = format!(
            "SELECT count(*) FROM messages WHERE state = 'waiting' AND next <= {}",
            Self::time(self.quarter).as_millisecond()
        );
        if self.fixture.count(&due) > 0 {
            self.delivered();
            self.run(&["__deliver"]).ends(0);
            self.delivered();
        }
    }

    /// Waits until the process that delivers has ended.
    fn delivered(&self) {
        let lock = fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.fixture.state().join("deliver.lock"))
            .unwrap();
        lock.lock().unwrap();
    }

    /// Begins and ends faults. Returns whether the host is on.
    fn apply_faults(&self) -> bool {
        for (fault, from, to) in FAULTS {
            let present = match self.quarter {
                at if at == quarter_of(from) => true,
                at if at == quarter_of(to) => false,
                _ => continue,
            };
            let path = match fault {
                Fault::Fails(job) => self.fixture.path(&format!("{job}.fails")),
                Fault::PagerDown => self.fixture.root().join("pager-is-down"),
                Fault::BrokenSettings => {
                    let text = self.fixture.read("runner.toml");
                    let text = match present {
                        true => format!("{text}[broken\n"),
                        false => text.replace("[broken\n", ""),
                    };
                    self.fixture.write("runner.toml", text);
                    continue;
                }
                Fault::HostOff => continue,
            };
            match present {
                true => fs::write(path, "").unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        }
        for (job, _) in RESETS.iter().filter(|(_, at)| quarter_of(*at) == self.quarter) {
            self.run(&["jobs", "reset", job]).ends(0);
        }
        !FAULTS.iter().any(|(fault, from, to)| {
            let during = quarter_of(*from)..quarter_of(*to);
            matches!(fault, Fault::HostOff) && during.contains(&self.quarter)
        })
    }

    /// Checks that no job failed outside its faults.
    fn only_planned_failures(&self) {
        let sql = "SELECT jobs.name, runs.finished, runs.outcome FROM runs \
                   JOIN jobs ON jobs.id = runs.job \
                   WHERE outcome ->> 'outcome' IN ('failed', 'timed-out', 'lost', 'deferred')";
        let store = self.fixture.store();
        let mut failures = store.prepare(sql).unwrap();
        let mut rows = failures.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let (job, outcome): (String, String) = (row.get(0).unwrap(), row.get(2).unwrap());
            let finished = Timestamp::from_millisecond(row.get(1).unwrap()).unwrap();
            let planned = FAULTS.iter().any(|(fault, from, to)| {
                let during = Self::time(quarter_of(*from))..Self::time(quarter_of(*to));
                matches!(fault, Fault::Fails(name) if *name == job) && during.contains(&finished)
            });
            assert!(planned, "{job} failed at {finished}: {outcome}");
        }
    }

    /// Returns the messages that a channel received.
    fn messages(&self, program: &str) -> Vec<ReceivedMessage> {
        let path = self.fixture.root().join(format!("{program}.out"));
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split("----\n").filter(|one| !one.is_empty()).map(ReceivedMessage::of).collect()
    }
}

/// A message that a channel received.
struct ReceivedMessage {
    at: Timestamp,
    /// The lines of the message that state news, such as `hourly failed`.
    news: Vec<String>,
}

impl ReceivedMessage {
    fn of(text: &str) -> Self {
        let (at, message) = text.split_once('\n').unwrap();
        let news = match serde_json::from_str::<serde_json::Value>(message.trim()) {
            Ok(json) => {
                let subject = json["subject"].as_str().unwrap();
                let text = json["text"].as_str().unwrap();
                news_of(subject, text)
            }
            Err(_) => {
                let (subject, text) = message.split_once('\n').unwrap();
                news_of(subject, text)
            }
        };
        Self { at: at.parse().unwrap(), news }
    }
}

/// Returns the news of a message: the beginning of its subject, and the lines of its text that
/// begin with the name of a job.
fn news_of(subject: &str, text: &str) -> Vec<String> {
    let first = subject.strip_prefix("project: ").unwrap_or(subject);
    let first = first.split(", and ").next().unwrap_or(first).to_owned();
    let of_job = |line: &&str| {
        JOBS.iter()
            .any(|(job, _)| line.strip_prefix(job).is_some_and(|it| it.starts_with([' ', ','])))
    };
    std::iter::once(first).chain(text.lines().filter(of_job).map(str::to_owned)).collect()
}

/// Checks that a channel received all news in time, and nothing else.
fn check(channel: &str, messages: &[ReceivedMessage], quarters: usize) {
    let pager = channel == "pager";
    let news =
        NEWS.iter().filter(|(at, _, of_pager)| quarter_of(*at) < quarters && (*of_pager || !pager));
    let expected: Vec<(usize, &str)> = news.map(|(at, text, _)| (quarter_of(*at), *text)).collect();
    let mut found: Vec<(usize, &str)> = Vec::new();
    let mut last: Option<Timestamp> = None;
    for message in messages {
        let hour = message.at.to_zoned(jiff::tz::TimeZone::UTC).hour();
        assert!((7..22).contains(&hour), "{channel}: {} is in the quiet hours", message.at);
        let gap = last.map(|last| message.at.duration_since(last).as_mins());
        assert!(gap.is_none_or(|gap| gap >= 30), "{channel}: {} is too early", message.at);
        last = Some(message.at);
        let at = message.at.duration_since(Week::time(0)).as_mins() / 15;
        let at = usize::try_from(at).unwrap();
        found.extend(message.news.iter().map(|text| (at, text.as_str())));
    }
    let texts = |all: &[(usize, &str)]| all.iter().map(|one| one.1.to_owned()).collect::<Vec<_>>();
    assert_eq!(texts(&found), texts(&expected), "{channel}: {found:?}");
    for ((at, text), (due, _)) in found.iter().zip(&expected) {
        // Messages to the pager may be late, because they are retried after it was down.
        let late = if pager { 3 } else { 0 };
        assert!((*due..=due + late).contains(at), "{channel}: {text} at {at} instead of {due}");
    }
}

#[test]
fn channels_get_one_message_for_each_problem() {
    // At the ordinary scale, the week ends on Tuesday at 14:45. The whole week ends on the next
    // Monday at 08:00.
    let quarters = scaled_from(7 * 96 + 32, 0.22);
    let mut week = Week::new();
    let mut ticks = 0;
    while week.quarter < quarters {
        if week.apply_faults() {
            week.tick();
            ticks += 1;
        }
        week.quarter += 1;
    }
    if let Some(folder) = std::env::var_os("RUNNER_TEST_KEEP") {
        for (name, _) in CHANNELS {
            let from = week.fixture.root().join(format!("{name}.out"));
            let _copied = fs::copy(from, std::path::Path::new(&folder).join(name));
        }
    }
    print_line(&format!(
        "{ticks} ticks, {} runs, {} alerts",
        week.fixture.count("SELECT count(*) FROM runs"),
        week.fixture.count("SELECT count(*) FROM alerts"),
    ));
    week.only_planned_failures();
    for (channel, _) in CHANNELS {
        let messages = week.messages(channel);
        let news: usize = messages.iter().map(|message| message.news.len()).sum();
        print_line(&format!("{channel}: {} messages, {news} items", messages.len()));
        check(channel, &messages, quarters);
    }
    let lost = "SELECT count(*) FROM messages WHERE state IN ('waiting', 'given-up') AND tries > 0";
    assert_eq!(week.fixture.count(lost), 0);
}
