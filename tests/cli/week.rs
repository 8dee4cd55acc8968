//! A week of ticks every quarter of an hour, with triggers from a minute to a week, three channels
//! and faults: every message that each channel gets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use jiff::{SignedDuration, Timestamp};

use crate::fixture::{CommandOutput, Fixture, print_line, scaled_from};

/// Fakes of the programs through which three channels deliver. Each appends the message to a file.
const PROGRAMS: [(&str, &str); 3] = [
    ("notify-send", "shift 3; printf '%s\\n%s\\n' \"$1\" \"$2\""),
    ("pager", "[ ! -e \"$HOME/pager-is-down\" ] || exit 4; cat; echo"),
    ("sendmail", "cat"),
];

const SETTINGS: &str = r#"
[jobs.dream]
enabled = false
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

struct Week {
    fixture: Fixture,
    now: Timestamp,
}

impl Week {
    fn new() -> Self {
        let fixture = Fixture::new();
        let bin = fixture.root().join("bin");
        fs::create_dir_all(&bin).unwrap();
        for (name, script) in PROGRAMS {
            let out = fixture.root().join(format!("{name}.out"));
            let path = bin.join(name);
            let text = format!("#!/bin/sh\n{{ {script}; echo ----; }} >> '{}'\n", out.display());
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        // A script in braces cannot fail early, so the pager checks first.
        let pager =
            "#!/bin/sh\n[ ! -e \"$HOME/pager-is-down\" ] || exit 4\n{ cat; echo; echo ----; } >> ";
        fs::write(
            bin.join("pager"),
            format!("{pager}'{}'\n", fixture.root().join("pager.out").display()),
        )
        .unwrap();
        // The user's own settings would disable the window.
        fs::write(
            fixture.root().join("config/runner/config.toml"),
            "[defaults]\nstagger = \"0s\"\nretries = 0\n",
        )
        .unwrap();
        // 2026-11-15 is a Sunday.
        let week = Self { fixture, now: "2026-11-15T23:50:00Z".parse().unwrap() };
        week.run(&["init"]).ends(0);
        let mut toml = SETTINGS.to_owned();
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

    fn run(&self, args: &[&str]) -> CommandOutput {
        let clock = self.fixture.root().join("clock");
        fs::write(&clock, self.now.to_string()).unwrap();
        let path = format!(
            "{}:{}",
            self.fixture.root().join("bin").display(),
            std::env::var("PATH").unwrap()
        );
        let mut command = self.fixture.runner(args);
        CommandOutput::of(
            command.env("RUNNER_TEST_CLOCK", clock).env("PATH", path).output().unwrap(),
        )
    }

    /// Ticks, and delivers what is due then.
    fn tick(&self) {
        self.run(&["tick", "--quiet"]);
        let due = format!(
            "SELECT count(*) FROM messages WHERE state = 'waiting' AND next <= {}",
            self.now.as_millisecond()
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

    fn fails(&self, job: &str, fails: bool) {
        let path = self.fixture.path(&format!("{job}.fails"));
        if fails {
            fs::write(path, "").unwrap();
        } else {
            let _absent = fs::remove_file(path);
        }
    }

    /// Returns the subjects of the messages that the screen got.
    fn subjects(&self) -> Vec<String> {
        let text =
            fs::read_to_string(self.fixture.root().join("notify-send.out")).unwrap_or_default();
        let all = text.split("----\n").filter(|one| !one.is_empty());
        all.map(|one| one.lines().next().unwrap_or_default().to_owned()).collect()
    }

    fn count(&self, program: &str) -> usize {
        let path = self.fixture.root().join(format!("{program}.out"));
        fs::read_to_string(path).unwrap_or_default().matches("----\n").count()
    }
}

/// Applies the faults of a time of the week.
fn fault(week: &Week, day: usize, hour: usize, minute: usize) {
    match (day, hour, minute) {
        // Monday: a job fails for two hours, and another one at the same time for one hour.
        (0, 13, 0) => {
            week.fails("hourly", true);
            week.fails("ten", true);
        }
        (0, 14, 0) => week.fails("ten", false),
        (0, 14, 45) => week.fails("hourly", false),
        // Monday night: a failure that is over in the morning, and one that is not.
        (0, 23, 0) => {
            week.fails("hourly", true);
            week.fails("five", true);
        }
        (1, 1, 30) => week.fails("five", false),
        // Tuesday: the job is fixed, and the pager is down.
        (1, 8, 30) => {
            week.fails("hourly", false);
            week.run(&["jobs", "reset", "--all"]).ends(0);
        }
        (1, 12, 0) => {
            fs::write(week.fixture.root().join("pager-is-down"), "").unwrap();
            week.fails("ten", true);
        }
        (1, 12, 30) => week.fails("ten", false),
        (1, 14, 0) => fs::remove_file(week.fixture.root().join("pager-is-down")).unwrap(),
        _ => {}
    }
}

#[test]
fn channels_get_one_message_for_each_problem() {
    // At the ordinary scale, the week ends on Tuesday at 14:30.
    let quarters = scaled_from(7 * 96, 0.23);
    let mut week = Week::new();
    week.tick();
    week.now = "2026-11-16T00:00:00Z".parse().unwrap();
    let mut ticks = 0;
    for quarter in 0..quarters {
        let (day, hour, minute) = (quarter / 96, quarter % 96 / 4, quarter % 4 * 15);
        fault(&week, day, hour, minute);
        // On Wednesday, the host is off from 08:00 to 16:00.
        if day != 2 || !(8..16).contains(&hour) {
            week.tick();
            ticks += 1;
        }
        week.now = week.now.saturating_add(SignedDuration::from_mins(15)).unwrap();
    }
    let subjects = week.subjects();
    print_line(&format!(
        "{ticks} ticks, {} runs, {} alerts, {} messages to each channel:",
        week.fixture.count("SELECT count(*) FROM runs"),
        week.fixture.count("SELECT count(*) FROM alerts"),
        subjects.len()
    ));
    for subject in &subjects {
        print_line(&format!("  {subject}"));
    }
    if let Some(folder) = std::env::var_os("RUNNER_TEST_KEEP") {
        for (name, _) in PROGRAMS {
            let from = week.fixture.root().join(format!("{name}.out"));
            let _copied = fs::copy(from, std::path::Path::new(&folder).join(name));
        }
    }
    // The first two days. Later days add only the missed time of the job that catches up nothing.
    let expected = [
        "project: hourly failed, and 2 other items",
        "project: ten is no longer started",
        "project: hourly is well again",
        "project: five failed, and 4 other items",
        "project: ten failed, and 1 other item",
        "project: ten is well again",
    ];
    assert_eq!(subjects[..expected.len().min(subjects.len())], expected);
    assert_eq!(week.count("sendmail"), subjects.len());
    // The pager was down for the last problem, and learns nothing of a problem that is over.
    assert_eq!(week.count("pager"), subjects.len() - 2);
    let lost = "SELECT count(*) FROM messages WHERE state IN ('waiting', 'given-up') AND tries > 0";
    assert_eq!(week.fixture.count(lost), 0);
}
