//! Tests setup and its removal with fake host programs. Removal restores every file byte for byte,
//! even after a killed setup.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::fixture::{CommandOutput, Fixture, Random, print_line, scaled_from};

/// Behaves like Debian's `crontab`: `-l`, `-r`, or a file. If the file `strict` exists, it rejects
/// text without a final line break.
const CRONTAB: &str = r#"#!/bin/sh
case "$1" in
-l) [ -f "$FAKE/tab" ] || { echo "no crontab for me" >&2; exit 1; }; cat "$FAKE/tab" ;;
-r) rm "$FAKE/tab" ;;
*) [ ! -f "$FAKE/strict" ] || [ ! -s "$1" ] || [ "$(tail -c1 "$1" | wc -l)" = 1 ] || { echo "missing newline before EOF" >&2; exit 1; }
   cat "$1" > "$FAKE/tab"; [ ! -x "$FAKE/rival" ] || "$FAKE/rival" ;;
esac
"#;

/// A fake `systemctl` that records its arguments and whether a unit is active.
const SYSTEMCTL: &str = r#"#!/bin/sh
[ "$FAKE_SYSTEMD" = yes ] || { echo "Failed to connect to bus" >&2; exit 1; }
echo "$*" >> "$FAKE/calls"
case "$2" in
restart) touch "$FAKE/active" ;;
stop) rm -f "$FAKE/active" ;;
is-active) [ -f "$FAKE/active" ] ;;
show) echo no ;;
esac
"#;

/// A fixture with fake host programs.
struct FakeHost {
    fixture: Fixture,
    systemd: bool,
}

impl FakeHost {
    fn new(systemd: bool) -> Self {
        let fixture = Fixture::with("");
        let host = Self { fixture, systemd };
        fs::create_dir_all(host.fake()).unwrap();
        for (name, text) in [
            ("crontab", CRONTAB),
            ("systemctl", SYSTEMCTL),
            ("loginctl", "#!/bin/sh\necho \"loginctl $*\" >> \"$FAKE/calls\"\n"),
            ("systemd-analyze", "#!/bin/sh\n"),
        ] {
            host.program(name, text);
        }
        host
    }

    fn fake(&self) -> PathBuf {
        self.fixture.root().join("fake")
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.fake().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.fixture.runner(args);
        let path = std::env::var("PATH").unwrap();
        command
            .env("PATH", format!("{}:{path}", self.fake().display()))
            .env("FAKE", self.fake())
            .env("USER", "me")
            .env("FAKE_SYSTEMD", if self.systemd { "yes" } else { "no" });
        command
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(args).output().unwrap())
    }

    fn tab(&self) -> Option<Vec<u8>> {
        fs::read(self.fake().join("tab")).ok()
    }

    fn set_tab(&self, text: Option<&[u8]>) {
        match text {
            Some(text) => fs::write(self.fake().join("tab"), text).unwrap(),
            None => {
                let _absent = fs::remove_file(self.fake().join("tab"));
            }
        }
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.fake().join("calls")).unwrap_or_default()
    }

    /// Returns the content of all files that a setup may change.
    fn all(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        below(&self.fixture.root().join("config"), &mut found);
        let toml = self.fixture.path("runner.toml");
        found.insert(toml.clone(), fs::read(toml).unwrap());
        if let Some(tab) = self.tab() {
            found.insert("crontab".into(), tab);
        }
        for name in ["environment", "setup.json", "timer.log", "crontab.new"] {
            let path = self.fixture.state().join(name);
            if let Ok(text) = fs::read(&path) {
                found.insert(path, text);
            }
        }
        if self.fake().join("active").exists() {
            found.insert("active".into(), Vec::new());
        }
        found
    }
}

fn below(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let data = path.symlink_metadata().unwrap();
        if data.is_symlink() {
            let to = fs::read_link(&path).unwrap();
            found.insert(path, to.into_os_string().into_encoded_bytes());
        } else if data.is_dir() {
            found.insert(path.clone(), b"folder".to_vec());
            below(&path, found);
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
}

#[test]
fn preview_changes_nothing_and_detects_scheduler() {
    let host = FakeHost::new(true);
    let before = host.all();
    host.run(&["setup"]).ends(0).expect_text("systemd: ").expect_text("OnCalendar=*:0,15,30,45");
    assert_eq!(host.all(), before);
    let host = FakeHost::new(false);
    let plan = host.run(&["setup", "--json"]).ends(0).json();
    assert_eq!(plan["scheduler"], "cron");
    let before = host.all();
    host.run(&["setup", "--scheduler", "systemd"])
        .ends(0)
        .expect_text("--apply would change nothing");
    host.run(&["setup", "--scheduler", "systemd", "--apply"])
        .ends(78)
        .expect_text("nothing was changed");
    host.run(&["setup", "--remove"]).ends(0).expect_text("manual: nothing is set up");
    assert_eq!(host.all(), before);
    host.program("crontab", "#!/bin/sh\nexit 127\n");
    host.run(&["setup"]).ends(0).expect_text("manual: ");
    host.run(&["setup", "--apply"]).ends(0).expect_text("runner daemon");
    for kind in ["launchd", "task-scheduler"] {
        host.run(&["setup", "--scheduler", kind])
            .ends(0)
            .expect_text("not available on this system");
        host.run(&["setup", "--scheduler", kind, "--apply"]).ends(69);
    }
}

#[test]
fn one_timer_serves_all_projects() {
    let host = FakeHost::new(false);
    host.set_tab(Some(b"MAILTO=me\n5 4 * * * mine\n"));
    let before = host.all();
    host.run(&["setup", "--at", "23:37", "--apply"]).ends(0).expect_text("+at = \"23:37\"");
    let tab = String::from_utf8(host.tab().unwrap()).unwrap();
    assert!(tab.starts_with("MAILTO=me\n5 4 * * * mine\n# >>>"), "{tab}");
    assert!(tab.contains("\n0,15,30,37,45 * * * * /"), "{tab}");
    assert_eq!(host.run(&["config", "get", "night.at"]).ends(0).out, "23:37\n");
    // Setup registers the job, so the first tick can already start it.
    let known = "SELECT count(*) FROM jobs WHERE name = 'dream' AND schedule LIKE '%23:37%'";
    assert_eq!(host.fixture.count(known), 1);
    let mode = fs::metadata(host.fixture.state().join("environment")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let once = host.all();
    host.run(&["setup", "--apply"]).ends(0).expect_text("nothing to change");
    assert_eq!(host.all(), once, "the second setup changed something");

    let other = host.fixture.root().join("other");
    fs::create_dir(&other).unwrap();
    let there = other.to_str().unwrap();
    let git = host.fixture.command("git", &["init", "--quiet", there]).status().unwrap();
    assert!(git.success());
    host.run(&["-C", there, "init"]).ends(0);
    host.run(&["-C", there, "setup", "--at", "03:05", "--apply"])
        .ends(0)
        .expect_text("1 other project");
    assert!(String::from_utf8(host.tab().unwrap()).unwrap().contains("0,5,15,30,37,45 * * * *"));
    host.run(&["setup", "--status", "--json"]).ends(0).expect_text("\"cron\"");
    host.run(&["-C", there, "setup", "--remove"]).ends(0).expect_text("the timer is kept for");
    assert_eq!(host.all(), once, "the first project's setup changed");
    host.run(&["setup", "--remove"]).ends(0).expect_text("no longer be served by a timer");
    assert_eq!(host.all(), before);
    host.run(&["setup", "--remove"]).ends(0).expect_text("nothing to change");
}

#[test]
fn removal_restores_changed_settings() {
    let host = FakeHost::new(false);
    host.fixture.configure("[backends.other]\ntype = \"builtin\"\n");
    let before = host.all();
    host.run(&["setup", "--runner", "nobody", "--apply"])
        .ends(78)
        .expect_text("the backends are: builtin, other");
    host.run(&["setup", "--runner", "other", "--runner", "builtin"])
        .ends(2)
        .expect_text("one backend");
    host.run(&["setup", "--at", "2:30"]).ends(2);
    assert_eq!(host.all(), before);
    host.run(&["setup", "--runner", "other", "--job", "dream", "--apply"]).ends(0);
    assert_eq!(host.run(&["config", "get", "jobs.dream.backend"]).out, "other\n");
    host.run(&["setup", "--at", "01:00", "--apply"]).ends(0);
    host.run(&["setup", "--remove"]).ends(0);
    assert_eq!(host.all(), before);

    // Removal keeps and reports a file that was changed after the setup.
    host.run(&["setup", "--at", "01:00", "--apply"]).ends(0);
    host.fixture.configure("# mine\n");
    host.run(&["setup", "--remove"]).ends(1).expect_text("was changed after the setup");
    assert!(host.fixture.read("runner.toml").ends_with("# mine\n"));
    assert_eq!(host.tab(), None);
}

/// Runs a command as a user who trusts no folder in advance.
fn run_untrusted(host: &FakeHost, args: &[&str]) -> CommandOutput {
    let config = host.fixture.root().join("config/runner/config.toml");
    fs::write(config, "[defaults]\nstagger = \"0s\"\n").unwrap();
    let mut command = host.command(args);
    CommandOutput::of(command.env_remove("RUNNER_CONFIG__TRUST__PATHS").output().unwrap())
}

#[test]
fn failed_setup_can_be_repeated() {
    let host = FakeHost::new(true);
    let run = |args: &[&str]| run_untrusted(&host, args);
    run(&["trust", "--yes"]).ends(0);
    let failing = SYSTEMCTL.replace("restart)", "restart) exit 1 ;; never)");
    host.program("systemctl", &failing);
    run(&["setup", "--at", "01:07", "--apply"]).ends(78).expect_text("restart runner-tick.timer");
    run(&["trust"]).ends(0).expect_text("all settings are accepted");
    run(&["setup", "--verify"]).ends(1).expect_text("a setup was started but not finished");
    host.program("systemctl", SYSTEMCTL);
    run(&["setup", "--apply"]).ends(0);
    assert_eq!(run(&["config", "get", "night.at"]).ends(0).out, "01:07\n");
}

#[test]
fn removal_accepts_settings_of_all_projects() {
    let host = FakeHost::new(false);
    let run = |args: &[&str]| run_untrusted(&host, args);
    let other = host.fixture.root().join("other");
    let there = other.to_str().unwrap();
    let git = host.fixture.command("git", &["init", "--quiet", there]).status().unwrap();
    assert!(git.success());
    run(&["-C", there, "init"]).ends(0);
    run(&["trust", "--yes"]).ends(0);
    run(&["setup", "--at", "01:07", "--apply"]).ends(0);
    run(&["-C", there, "setup", "--at", "01:08", "--apply"]).ends(0);
    let outside = host.fixture.root().to_str().unwrap();
    run(&["-C", outside, "setup", "--remove", "--all"]).ends(0);
    for project in [host.fixture.project().to_str().unwrap(), there] {
        run(&["-C", project, "trust"]).ends(0).expect_text("all settings are accepted");
        assert_eq!(run(&["-C", project, "config", "get", "night.at"]).ends(0).out, "02:30\n");
    }
}

#[test]
fn new_host_scheduler_replaces_the_old() {
    let mut host = FakeHost::new(false);
    let before = host.all();
    host.run(&["setup", "--apply"]).ends(0);
    host.systemd = true;
    host.run(&["setup", "--apply"]).ends(0).expect_text("nothing to change");
    host.run(&["setup", "--scheduler", "systemd", "--apply"]).ends(0);
    assert_eq!(host.tab(), None, "a crontab remains although there was none before");
    assert!(host.calls().contains("--user restart runner-tick.timer"), "{}", host.calls());
    host.run(&["setup", "--verify", "--json"]).expect_text("systemd");
    host.run(&["setup", "--remove"]).ends(0);
    assert_eq!(host.all(), before);
}

#[test]
fn foreign_host_entries_are_left_unchanged() {
    let host = FakeHost::new(true);
    let units = host.fixture.root().join("config/systemd/user");
    fs::create_dir_all(&units).unwrap();
    fs::write(units.join("runner-tick.timer"), "[Timer]\nOnCalendar=daily\n").unwrap();
    let before = host.all();
    host.run(&["setup", "--apply"]).ends(65).expect_text("was not created by this setup");
    assert_eq!(host.all(), before);

    let host = FakeHost::new(false);
    host.set_tab(Some(b"x\n"));
    host.run(&["setup", "--apply"]).ends(0);
    let whole = host.tab().unwrap();
    let cut = whole.iter().rposition(|byte| *byte == b'#').unwrap();
    host.set_tab(Some(&whole[..cut]));
    host.run(&["setup", "--remove"])
        .ends(65)
        .expect_text("without its end")
        .expect_text("crontab -e");
    host.set_tab(Some(&whole));
    host.run(&["setup", "--remove"]).ends(0);
    assert_eq!(host.tab().unwrap(), b"x\n");
}

#[test]
fn concurrent_crontab_write_is_detected() {
    let host = FakeHost::new(false);
    host.set_tab(Some(b"x\n"));
    // Another program writes between setup's write and its check.
    host.program("rival", "#!/bin/sh\necho rival > \"$FAKE/tab\"\n");
    host.run(&["setup", "--apply"]).ends(75).expect_text("another process changed");
    assert_eq!(host.tab().unwrap(), b"rival\n", "the rival's crontab was overwritten");
    fs::remove_file(host.fake().join("rival")).unwrap();
    host.run(&["setup", "--apply"]).ends(0);
    host.run(&["setup", "--remove"]).ends(0);
    assert_eq!(host.tab().unwrap(), b"rival\n");
}

#[test]
fn missing_crontab_newline_is_added() {
    let host = FakeHost::new(false);
    fs::write(host.fake().join("strict"), "").unwrap();
    host.set_tab(Some(b"x"));
    host.run(&["setup", "--apply"]).ends(0);
    host.run(&["setup", "--remove"]).ends(0).expect_text("a line break was added");
    assert_eq!(host.tab().unwrap(), b"x\n");
}

/// Kills setup and removal before each of their steps, and checks that the next setup or removal
/// succeeds.
#[test]
fn setup_recovers_from_kills_between_steps() {
    let mut deaths = 0;
    for systemd in [false, true] {
        let host = FakeHost::new(systemd);
        host.set_tab(Some(b"5 4 * * * mine"));
        let before = host.all();
        let apply: &[&str] = &["setup", "--at", "01:07", "--apply"];
        let remove: &[&str] = &["setup", "--remove"];
        host.run(apply).ends(0);
        let set_up = host.all();
        host.run(remove).ends(0);
        assert_eq!(host.all(), before);
        for (first, from, then, end) in [
            (apply, None, apply, &set_up),
            (apply, None, remove, &before),
            (remove, Some(apply), remove, &before),
            (remove, Some(apply), apply, &set_up),
        ] {
            for at in 0.. {
                if let Some(from) = from {
                    host.run(from).ends(0);
                }
                let _forgotten = fs::remove_file(host.fake().join("calls"));
                let done =
                    host.command(first).env("RUNNER_TEST_DIE_AT", at.to_string()).output().unwrap();
                if done.status.code() == Some(0) {
                    assert!(at > 3, "setup has too few steps");
                    break;
                }
                deaths += 1;
                host.run(then).ends(0);
                assert_eq!(&host.all(), end, "{first:?} died before step {at}, then {then:?}");
                if systemd && std::ptr::eq(end, &raw const set_up) {
                    let calls = host.calls();
                    assert!(
                        calls.contains("daemon-reload") && calls.contains("restart")
                            || from.is_some(),
                        "{first:?} died before step {at}: {calls}"
                    );
                }
                host.run(remove).ends(0);
                assert_eq!(host.all(), before);
            }
            host.run(remove).ends(0);
        }
    }
    print_line(&format!("setup was killed {deaths} times, before each of its steps"));
}

#[test]
fn setup_and_removal_restore_every_file() {
    let began = Instant::now();
    let dice = Random::new("setup_and_removal_restore_every_file");
    let count = scaled_from(200, 0.2);
    let seed = dice.0;
    std::thread::scope(|scope| {
        for systemd in [false, true] {
            scope.spawn(move || {
                let mut dice = Random(seed ^ u64::from(systemd));
                let host = FakeHost::new(systemd);
                for _ in 0..count {
                    set_up_and_remove(&host, &mut dice);
                }
            });
        }
    });
    print_line(&format!(
        "{count} crontabs and {count} unit folders were restored in {:.1} s",
        began.elapsed().as_secs_f64()
    ));
}

/// Applies and removes a setup over random existing files.
fn set_up_and_remove(host: &FakeHost, dice: &mut Random) {
    host.set_tab(random_crontab(dice).as_deref());
    let units = host.fixture.root().join("config/systemd");
    let _absent = fs::remove_dir_all(&units);
    if dice.roll(3) > 0 {
        fs::create_dir_all(units.join("user")).unwrap();
        for n in 0..dice.roll(3) {
            fs::write(units.join(format!("user/a{n}.service")), format!("{n}")).unwrap();
        }
        if dice.roll(2) > 0 {
            fs::create_dir(units.join("user/timers.target.wants")).unwrap();
        }
    }
    let before = host.all();
    let at = format!("0{}:{:02}", dice.roll(10), dice.roll(60));
    let set_up = |at: &str| host.run(&["setup", "--at", at, "--apply", "--quiet"]);
    set_up(&at).ends(0);
    if dice.roll(4) == 0 {
        set_up("12:34").ends(0);
    }
    let during = host.all();
    assert_ne!(during, before);
    for (path, text) in &before {
        let ours = path.ends_with("crontab") || path.ends_with("runner.toml");
        assert!(ours || during.get(path) == Some(text), "{path:?} was changed");
    }
    host.run(&["setup", "--remove", "--quiet"]).ends(0);
    assert_eq!(host.all(), before);
}

fn random_crontab(dice: &mut Random) -> Option<Vec<u8>> {
    if dice.roll(8) == 0 {
        return None;
    }
    let mut text = Vec::new();
    for _ in 0..dice.roll(8) {
        let line: &[u8] = match dice.roll(9) {
            0 => b"",
            1 => b"# a comment \xc3\xa9 \xff",
            2 => b"MAILTO=\"\"",
            3 => b"SHELL=/usr/bin/fish",
            4 => b"*/5 * * * * echo 100\\% > /tmp/x",
            5 => b"# >>> runner setup /another/state >>>\n1 * * * * runner tick\n# <<< runner setup /another/state <<<",
            6 => b"@reboot  x\ty  ",
            7 => b"0 0 * * * echo \r",
            _ => b"PATH=/a:/b",
        };
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    if dice.roll(4) == 0 {
        text.pop();
    }
    Some(text)
}

/// Adds a job with this trigger to the host's project.
fn due(host: &FakeHost, name: &str, trigger: &str) {
    host.fixture.configure(&format!(
        "[jobs.{name}]\nkind = \"command\"\nprogram = \"true\"\ntrigger = \"{trigger}\"\n"
    ));
}

#[test]
fn timer_ticks_as_often_as_jobs_are_due() {
    let host = FakeHost::new(false);
    host.run(&["setup", "--apply"]).ends(0);
    host.run(&["config", "check"]).ends(0).expect_text("ok");
    due(&host, "notes", "every 5m");
    let warned =
        host.run(&["config", "check"]).ends(0).expect_text("scheduled times would be missed");
    assert!(warned.err.contains("fix: runner setup --apply"), "{warned:?}");
    host.run(&["doctor"]).expect_text("when the timer does not tick");
    let shown = host.run(&["setup", "--json"]).ends(0).json();
    let minutes: Vec<i64> =
        shown["minutes"].as_array().unwrap().iter().map(|it| it.as_i64().unwrap()).collect();
    assert!((0..60).step_by(4).all(|minute| minutes.contains(&minute)), "{minutes:?}");
    host.run(&["setup", "--apply"]).ends(0);
    let warned = host.run(&["config", "check"]).ends(0);
    assert!(warned.err.is_empty(), "{warned:?}");
    // A timer cannot serve a job that is due each minute.
    due(&host, "fast", "every 1m");
    host.run(&["setup"]).ends(0).expect_text("runner setup --service --apply");
    host.run(&["config", "check"]).ends(0).expect_text("fix: runner setup --service --apply");
    host.run(&["setup", "--service", "--apply"])
        .ends(69)
        .expect_text("cron cannot keep the daemon");
}

#[test]
fn daemon_replaces_the_timer_and_is_replaced() {
    let host = FakeHost::new(true);
    let before = host.all();
    let units = host.fixture.root().join("config/systemd/user");
    let there = || {
        let names = fs::read_dir(&units).unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<String> = names.map(|it| it.to_string_lossy().into_owned()).collect();
        names.retain(|name| name.ends_with(".service") || name.ends_with(".timer"));
        names.sort();
        names
    };
    due(&host, "fast", "every 1m");
    let changed = host.all();
    host.run(&["setup", "--apply"]).ends(0);
    assert_eq!(there(), ["runner-tick.service", "runner-tick.timer"]);
    host.run(&["setup", "--service", "--apply"]).ends(0);
    assert_eq!(there(), ["runner-daemon.service"]);
    let unit = fs::read_to_string(units.join("runner-daemon.service")).unwrap();
    assert!(unit.contains(" daemon --environment "), "{unit}");
    assert!(host.calls().contains("--user restart runner-daemon.service"), "{}", host.calls());
    assert!(host.calls().contains("--user stop runner-tick.timer"), "{}", host.calls());
    let checked = host.run(&["config", "check"]).ends(0);
    assert!(checked.err.is_empty(), "{checked:?}");
    // A later setup keeps the service unless a timer is requested.
    host.run(&["setup", "--apply"]).ends(0);
    assert_eq!(there(), ["runner-daemon.service"]);
    host.run(&["setup", "--timer", "--apply"]).ends(0);
    assert_eq!(there(), ["runner-tick.service", "runner-tick.timer"]);
    host.run(&["setup", "--service", "--apply"]).ends(0);
    host.run(&["setup", "--remove"]).ends(0);
    assert!(!host.fixture.state().join("setup.json").exists());
    assert_eq!(host.all(), changed);
    assert_ne!(before, changed);
}
