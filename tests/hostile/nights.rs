//! Simulates nights of a hostile agent in one project, next to healthy projects, under one daemon
//! whose clock the test sets.
//!
//! An ordinary test run simulates 3 nights, and `RUNNER_TEST_SCALE=1` simulates 24.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::fixture::{Fixture, print_line, scaled_from};
use crate::served::{Daemon, NO_DREAM, over};
use crate::table::{DIALECTS, Ends, ROWS};
use crate::testbed::{CANARY, differs, holding, link, picture};

const NIGHTS: usize = 24;
/// The daily limit of the pool that all projects share, in calls.
const CALLS: i64 = 30;
/// Retention settings with periods so short that the later nights show whether the state grows.
const RETENTION: &str =
    "[retention]\nrows = \"8d\"\nlogs = \"8d\"\nreports = \"8d\"\nrecordings = \"8d\"\n";
/// The number of nights after which the state must not grow.
const SETTLED: usize = 16;
const HEALTHY: [&str; 2] = ["well-1", "well-2"];

/// The script of a hostile job that writes, floods, forks and detaches processes. The file
/// `targets` lists the paths that it must not change.
const ATTACK: &str = r#"
while read -r path; do
    echo evil >> "$path"; rm -f "$path"; mv notes/mine "$path"; ln -sf /etc/passwd "$path"; chmod 777 "$path"
done < targets 2> /dev/null
echo evil > "../evil"; echo evil > "$HOME/evil"
for i in 1 2 3 4 5 6 7 8; do (setsid env -i sleep 1000 &); done
git -c user.name=a -c user.email=a@b commit --quiet --allow-empty -m evil
head -c 3000000 /dev/zero > "$RUNNER_OUT/waste"
echo mine > notes/mine
"#;

/// Returns the settings of the hostile project's jobs in one night.
fn hostile_jobs(fixture: &Fixture, night: usize, nights: usize) -> String {
    let mut toml = format!(
        "{NO_DREAM}[jobs.attack]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"attack.sh\"]\nretries = 0\n\
         timeout = \"20s\"\nmax_processes = 200\nmax_memory = \"500MB\"\nmax_cpu_time = \"15s\"\n"
    );
    for (at, (behaviour, _, ends)) in ROWS.iter().enumerate() {
        if at % nights.max(NIGHTS) != night {
            continue;
        }
        let dialect = DIALECTS[(at + night) % DIALECTS.len()];
        let deadlines = match ends {
            Ends::Itself | Ends::Total => "",
            Ends::FirstByte | Ends::Idle => "first_byte = \"1s\"\nidle = \"1s\"\n",
        };
        let total = if *ends == Ends::Total { "2s" } else { "60s" };
        let program = link(fixture, dialect, behaviour);
        write!(
            toml,
            "[backends.{behaviour}]\ntype = \"{dialect}\"\nprogram = \"{program}\"\nenv = [\"CANARY_KEY\"]\n\
             output_cap = \"1MB\"\ngrace = \"200ms\"\npool = \"shared\"\n{deadlines}\
             [jobs.{behaviour}]\nkind = \"prompt\"\nbackend = \"{behaviour}\"\nprompt = \"How are we doing?\"\n\
             to = \"notes/{behaviour}.md\"\ntimeout = \"{total}\"\nretries = 0\nmax_file = \"16MB\"\n\
             max_folder = \"24MB\"\nbudget = {{ calls = 2, tokens = 100000, money = 1.00 }}\n",
        )
        .unwrap();
    }
    toml
}

/// Creates a healthy project, which asks a question and runs a program each night.
fn healthy(fixture: &Fixture, name: &str) -> PathBuf {
    let folder = fixture.root().join(name);
    let path = folder.to_str().unwrap().to_owned();
    fs::create_dir_all(&folder).unwrap();
    fixture.git(&["init", "--quiet", "--initial-branch=main", &path]);
    fixture.git(&["-C", &path, "commit", "--quiet", "--allow-empty", "-m", "Begin"]);
    fixture.run_with_clock(&["-C", &path, "init"]).ends(0);
    let file = folder.join("runner.toml");
    let text = fs::read_to_string(&file).unwrap();
    let jobs = format!(
        "{NO_DREAM}[backends.well]\ntype = \"command\"\nprogram = \"echo\"\nargs = [\"all is well\"]\n\
         pool = \"shared\"\n[jobs.ask]\nkind = \"prompt\"\nbackend = \"well\"\nprompt = \"How are we doing?\"\n\
         to = \"notes/{{date}}.md\"\nbudget = {{ calls = 1, tokens = 100000, money = 1.00 }}\n\
         [jobs.work]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"echo worked >> notes/log\"]\n\
         writes = [\"notes\"]\n"
    );
    fs::create_dir(folder.join("notes")).unwrap();
    fs::write(file, format!("{text}\n{jobs}")).unwrap();
    folder
}

/// The resources that the daemon and the database use: memory in kilobytes, descriptors, and the
/// size of the state in bytes.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    memory: u64,
    descriptors: usize,
    state: u64,
}

impl Footprint {
    fn of(daemon: &Daemon<'_>) -> Self {
        let process = PathBuf::from(format!("/proc/{}", daemon.child.id()));
        let status = fs::read_to_string(process.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        Self {
            memory: line.trim().trim_end_matches(" kB").parse().unwrap(),
            descriptors: fs::read_dir(process.join("fd")).unwrap().count(),
            state: size(&daemon.fixture.state()),
        }
    }
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => size(&entry.path()),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

/// Ticks until every run is settled or waits for a later time. Returns the waiting runs.
fn settle(fixture: &Fixture, daemon: &Daemon<'_>) -> Vec<(String, String)> {
    for _ in 0..100 {
        let started = daemon.tick()["started"].as_array().map_or(0, Vec::len);
        let left = open_runs(fixture);
        let active: Vec<_> = left.iter().filter(|(_, state)| !state.ends_with("queued")).collect();
        if active.is_empty() && started == 0 {
            return left;
        }
        for (id, _) in active {
            over(fixture, id);
        }
    }
    panic!("the runs never settle: {:?}", open_runs(fixture));
}

/// Returns the ids of all runs that are not settled, with their job and state.
fn open_runs(fixture: &Fixture) -> Vec<(String, String)> {
    let db = fixture.store();
    let sql = "SELECT r.id, j.name || ' ' || r.state FROM runs r JOIN jobs j ON j.id = r.job
               WHERE r.state <> 'settled'";
    let mut rows = db.prepare(sql).unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Checks that a day's calls are charged exactly once, within the pool's limit, and that
/// nothing is reserved. Returns the id of the last request; `before` is the last id of the previous
/// day.
fn check_budgets(fixture: &Fixture, day: usize, before: i64) -> i64 {
    assert_eq!(fixture.count("SELECT count(*) FROM reservations WHERE open"), 0, "day {day}");
    for unit in ["calls", "tokens", "micros"] {
        let sum = |table: &str, only: &str| {
            fixture.count(&format!("SELECT coalesce(sum({unit}), 0) FROM {table} WHERE {only}"))
        };
        let date = format!("level = 'pool-day' AND key LIKE '%2026-11-{day:02}%'");
        let charged = sum("budget_usage", &date);
        assert_eq!(charged, sum("requests", &format!("id > {before}")), "{unit}, day {day}");
    }
    let most =
        fixture.count("SELECT coalesce(max(calls), 0) FROM budget_usage WHERE level = 'pool-day'");
    assert!(most <= CALLS, "day {day}: {most} calls in a day");
    fixture.count("SELECT coalesce(max(id), 0) FROM requests")
}

#[test]
fn hostile_nights_leave_healthy_projects_alone() {
    let (nights, began) = (scaled_from(NIGHTS, 0.125), Instant::now());
    let fixture = Fixture::new();
    let config = fixture.root().join("config/runner/config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}\n[pools.shared.day]\ncalls = {CALLS}\n{RETENTION}"))
        .unwrap();
    fixture.set_clock("2026-11-01T20:00:00Z");
    fixture.run_with_clock(&["init"]).ends(0);
    let own = fixture.read("runner.toml");
    let folders = HEALTHY.map(|name| healthy(&fixture, name));
    fixture.write("attack.sh", ATTACK);
    fixture.write("notes/kept.md", "kept\n");
    let targets = [
        fixture.path("runner.toml"),
        fixture.path(".git/config"),
        fixture.path(".git/hooks/pre-commit"),
        fixture.state().join("database.sqlite"),
        config.clone(),
        folders[0].join("runner.toml"),
        folders[0].join("notes/log"),
        folders[1].join(".git/HEAD"),
    ];
    let list: String = targets.iter().map(|path| format!("{}\n", path.display())).collect();
    fixture.write("targets", &list);
    // The hostile agents read their targets from this file.
    fs::write(fixture.root().join("targets"), &list).unwrap();
    let mut but = vec!["state", "clock", ".claude", ".codex", "bin", "project"];
    let written: Vec<String> = HEALTHY
        .iter()
        .flat_map(|name| [format!("{name}/notes"), format!("{name}/.runner")])
        .collect();
    but.extend(written.iter().map(String::as_str));

    let mut daemon = Daemon::with(&fixture, &[], &[("CANARY_KEY", CANARY)]);
    rustix::io::ioctl_fionbio(daemon.lines.get_ref(), true).unwrap();
    let before = picture(&fixture, &but);
    let mut footprints: Vec<Footprint> = Vec::new();
    let mut succeeded = BTreeSet::new();
    let mut last_request = 0;
    for night in 0..nights {
        fixture.write("runner.toml", format!("{own}\n{}", hostile_jobs(&fixture, night, nights)));
        let day = 2 + night;
        fixture.set_clock(format!("2026-11-{day:02}T02:00:00Z"));
        settle(&fixture, &daemon);
        let protected = [fixture.read("runner.toml"), fixture.read(".git/config")];
        let mut waiting = Vec::new();
        for time in ["02:30:00", "02:45:00", "04:00:00", "06:00:00", "11:00:00", "11:15:00"] {
            fixture.set_clock(format!("2026-11-{day:02}T{time}Z"));
            waiting = settle(&fixture, &daemon);
        }
        // An agent that reports a provider's limit in each attempt always waits.
        waiting.retain(|(_, job)| job != "limited queued");
        assert!(waiting.is_empty(), "night {night}: {waiting:?}");
        // The pipe must be emptied, because nobody else reads the daemon's output.
        let mut said = Vec::new();
        let _would_block = daemon.lines.read_to_end(&mut said);
        let changed = differs(&before, &picture(&fixture, &but));
        assert!(changed.is_empty(), "night {night}: {changed:?}");
        let now = [fixture.read("runner.toml"), fixture.read(".git/config")];
        assert_eq!(now, protected, "night {night}");
        assert!(!fixture.path(".git/hooks/pre-commit").exists(), "night {night}");
        assert_eq!(fixture.survivors(), Vec::<String>::new(), "night {night}");
        last_request = check_budgets(&fixture, day, last_request);
        let date = format!("2026-11-{day:02}");
        for folder in &folders {
            let answer = fs::read_to_string(folder.join(format!("notes/{date}.md"))).unwrap();
            assert_eq!(answer, "all is well\n", "night {night}");
            let log = fs::read_to_string(folder.join("notes/log")).unwrap();
            assert_eq!(log.lines().count(), night + 1, "night {night}");
            assert!(folder.join(format!(".runner/reports/{date}/report.md")).is_file());
        }
        succeeded.extend(healthy_runs(&fixture));
        footprints.push(Footprint::of(&daemon));
    }
    fixture.run_with_clock(&["db", "check"]).ends(0);
    let leaks = holding(&fixture, CANARY);
    let leaks: Vec<_> = leaks.into_iter().filter(|path| !path.contains("/scratch/")).collect();
    assert!(leaks.is_empty(), "the secret is in {leaks:?}");
    let ends = ends(&fixture);
    let (first, last) = (footprints[0], footprints[nights - 1]);
    print_line(&format!(
        "hostile nights: {nights} nights, {} runs ({ends:?}), {} healthy runs, {} calls; memory {} → {} kB, \
         descriptors {} → {}, state {} → {} kB (by night: {:?}); {:.0?}",
        fixture.count("SELECT count(*) FROM runs"),
        succeeded.len(),
        fixture.count("SELECT sum(calls) FROM requests"),
        first.memory,
        last.memory,
        first.descriptors,
        last.descriptors,
        first.state / 1000,
        last.state / 1000,
        footprints.iter().map(|night| night.state / 1000).collect::<Vec<_>>(),
        began.elapsed()
    ));
    assert_eq!(succeeded.len(), 4 * nights, "a healthy job did not run every night: {ends:?}");
    assert!(last.descriptors <= first.descriptors + 2, "{footprints:?}");
    assert!(last.memory <= first.memory * 3 / 2 + 4_000, "{footprints:?}");
    let nightly =
        (last.state.saturating_sub(first.state)) / u64::try_from(nights.max(2) - 1).unwrap();
    assert!(nightly < 2_000_000, "{nightly} bytes each night: {footprints:?}");
    if let Some(settled) = footprints.get(SETTLED) {
        assert!(last.state <= settled.state * 5 / 4, "the state grows: {footprints:?}");
    }
}

/// Returns the ids of the healthy jobs' successful runs that the database still contains.
fn healthy_runs(fixture: &Fixture) -> BTreeSet<String> {
    let db = fixture.store();
    let mut rows = db
        .prepare(
            "SELECT r.id FROM runs r JOIN jobs j ON j.id = r.job
             WHERE j.name IN ('ask', 'work') AND r.outcome ->> 'outcome' = 'succeeded'",
        )
        .unwrap();
    let rows = rows.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Counts the runs by outcome.
fn ends(fixture: &Fixture) -> BTreeMap<String, i64> {
    let db = fixture.store();
    let mut rows = db
        .prepare("SELECT coalesce(outcome ->> 'outcome', state), count(*) FROM runs GROUP BY 1")
        .unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}
