//! Tests queue workers as real processes: killed workers, the hourly cap across restarts, and a
//! watching worker.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use runner_engine::time::boot_time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};

use crate::fixture::{CommandOutput, Fixture, Random, ended_within, print_line, scaled};

const WORKER: &str = ".runner/curator";
/// Shorter than the interval at which a watching worker polls.
const SOON: Duration = Duration::from_secs(25);
const LIMIT: Duration = Duration::from_secs(60);

/// An inotify watch for files that are moved into a folder.
struct MoveWatch(OwnedFd);

impl MoveWatch {
    fn of(folder: &Path) -> Self {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, folder, WatchFlags::MOVED_TO).unwrap();
        Self(watch)
    }

    /// Waits until a file is moved into the folder, `other` becomes readable, or the time limit
    /// passes. Returns whether a file was moved.
    fn wait(&self, other: Option<&dyn std::os::fd::AsFd>, limit: Duration) -> bool {
        let mut polled = vec![PollFd::new(&self.0, PollFlags::IN)];
        polled.extend(other.map(|other| PollFd::from_borrowed_fd(other.as_fd(), PollFlags::IN)));
        let limit = Timespec {
            tv_sec: limit.as_secs().try_into().unwrap(),
            tv_nsec: limit.subsec_nanos().into(),
        };
        poll(&mut polled, Some(&limit)).unwrap();
        let here = polled[0].revents().contains(PollFlags::IN);
        let mut reported = [0; 4096];
        while rustix::io::read(&self.0, &mut reported).is_ok_and(|count| count > 0) {}
        here
    }
}

fn handle(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap())?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Kills a random process that has claimed a job. Returns whether a process was killed.
fn kill_one_at_work(fixture: &Fixture, dice: &mut Random) -> bool {
    let mut owners = Vec::new();
    for entry in fs::read_dir(fixture.path(WORKER).join("processing")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "owner")
            && path.with_extension("json").exists()
            && let Ok(text) = fs::read(&path)
            && let Ok(owner) = serde_json::from_slice::<Value>(&text)
        {
            owners.extend(owner["pid"].as_u64());
        }
    }
    owners.sort_unstable();
    if owners.is_empty() {
        return false;
    }
    let at = usize::try_from(dice.roll(owners.len() as u64)).unwrap();
    let pid = u32::try_from(owners[at]).unwrap();
    let Some(handle) = handle(pid) else {
        return false;
    };
    // The signal is sent through the handle, so it cannot reach another process with a reused PID.
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).into_owned();
    words.contains("execute") && pidfd_send_signal(&handle, Signal::KILL).is_ok()
}

/// Returns the ids of the jobs in one of the worker's folders.
fn ids(fixture: &Fixture, part: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fixture.path(WORKER).join(part)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect()
}

fn drop_job(fixture: &Fixture, number: usize, priority: i32, second: u64) -> String {
    let id = format!("20260102T030405Z-lint-wiki-{number:08x}");
    let at = format!("2026-01-02T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
    let job = json!({ "id": id, "kind": "lint-wiki", "created_at": at, "max_retries": 1, "priority": priority });
    let draft = fixture.path(WORKER).join(format!("queue/.{id}"));
    fs::write(&draft, job.to_string()).unwrap();
    fs::rename(draft, queue(fixture, &id)).unwrap();
    id
}

fn queue(fixture: &Fixture, id: &str) -> PathBuf {
    fixture.path(WORKER).join(format!("queue/{id}.json"))
}

/// Creates a curator project with a note, and creates the worker's folders.
fn fixture(toml: &str) -> Fixture {
    let fixture = Fixture::with(&format!("[jobs.dream]\nenabled = false\n{toml}"));
    fixture.write("docs/index.md", "# Index\n\n[gone](gone.md)\n");
    fixture.run(&["curator", "compact", "--apply"]).ends(0);
    fixture
}

const CROWD: usize = 10;

#[test]
fn concurrent_workers_settle_each_job_once() {
    let count = scaled(300);
    let mut dice = Random::new("crowd");
    let jobs: String = (0..CROWD)
        .map(|n| {
            format!(
                "[jobs.c{n}]\nkind = \"curator\"\ntrigger = \"manual\"\nbatch = {}\n",
                5 + 3 * n
            )
        })
        .collect();
    let fixture = fixture(&format!("[curator]\nhourly_cap = 1000000\n{jobs}"));
    let mut wanted = Vec::new();
    for number in 0..count {
        let priority = i32::try_from(dice.roll(5)).unwrap() - 2;
        let second = dice.roll(80_000);
        let id = drop_job(&fixture, number, priority, second);
        wanted.push((-priority, second, id));
    }
    wanted.sort();
    let wanted: Vec<String> = wanted.into_iter().map(|(.., id)| id).collect();

    let starters: Mutex<Vec<OwnedFd>> = Mutex::default();
    let (begun, started) = (boot_time(), AtomicUsize::new(0));
    let (ends, over) = UnixStream::pair().unwrap();
    let work = |number: usize| {
        let name = format!("c{number}");
        while !ids(&fixture, "queue").is_empty() {
            assert!(
                started.fetch_add(1, Ordering::SeqCst) < 1_000 + 10 * count,
                "the queue never becomes empty: {:.4000}",
                fixture.run(&["runs"]).out
            );
            let mut child = fixture
                .runner(&["--quiet", "curator", "work", "--job", &name])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            starters.lock().unwrap().extend(handle(child.id()));
            child.wait().unwrap();
        }
    };
    let (killed, orphaned) = thread::scope(|scope| {
        let reported = MoveWatch::of(&fixture.path(WORKER).join("processing"));
        let (starters, fixture) = (&starters, &fixture);
        let killer = scope.spawn(move || {
            let (mut killed, mut orphaned) = (0, 0);
            while reported.wait(Some(&over), LIMIT) {
                match dice.roll(40) {
                    0..3 => killed += usize::from(kill_one_at_work(fixture, &mut dice)),
                    // The command is killed, but its run continues.
                    3 => {
                        let mut starters = starters.lock().unwrap();
                        if let Some(last) = starters.pop() {
                            orphaned += usize::from(pidfd_send_signal(&last, Signal::KILL).is_ok());
                        }
                        starters.clear();
                    }
                    _ => {}
                }
            }
            (killed, orphaned)
        });
        let work = &work;
        let workers: Vec<_> = (0..CROWD).map(|number| scope.spawn(move || work(number))).collect();
        for worker in workers {
            worker.join().unwrap();
        }
        drop(ends);
        killer.join().unwrap()
    });
    let took = boot_time() - begun;
    // The next worker settles the jobs that killed workers left behind. A run whose command was
    // killed may still be active.
    let open = || fixture.count("SELECT count(*) FROM runs WHERE state <> 'settled'");
    for _ in 0..count {
        let waiting = ["queue", "processing"].map(|folder| ids(&fixture, folder).len());
        if waiting == [0, 0] && open() == 0 {
            break;
        }
        fixture.run(&["--quiet", "curator", "work", "--job", "c0"]);
    }
    fixture.run(&["--quiet", "tick"]);

    let (done, failed) = (ids(&fixture, "done"), ids(&fixture, "failed"));
    assert!(ids(&fixture, "queue").is_empty() && ids(&fixture, "processing").is_empty());
    assert!(done.is_disjoint(&failed));
    let all: BTreeSet<String> = done.union(&failed).cloned().collect();
    assert_eq!(all, wanted.iter().cloned().collect());
    // Only completed jobs have artifacts.
    assert_eq!(ids(&fixture, "findings"), done);
    for id in &failed {
        let reason = fixture.read(&format!("{WORKER}/failed/{id}.reason.txt"));
        assert!(reason.contains("died, for the second time"), "{reason}");
    }
    // Jobs are first started in the order of the queue.
    let hour = fixture.read(&format!("{WORKER}/logs/hour.jsonl"));
    let mut order = Vec::new();
    // A job is listed more than once if it returned to the queue, or if its worker died before the
    // claim.
    for line in hour.lines() {
        let start: Value = serde_json::from_str(line).unwrap();
        let id = start["id"].as_str().unwrap().to_owned();
        if !order.contains(&id) {
            order.push(id);
        }
    }
    assert_eq!(order, wanted, "the order is not by priority, then by age");
    assert_eq!(open(), 0);
    assert!(fixture.survivors().is_empty(), "{:?}", fixture.survivors());
    #[allow(clippy::cast_precision_loss)]
    let rate = count as f64 / took.as_secs_f64();
    print_line(&format!(
        "crowd: {count} jobs by {CROWD} workers in {:.1} s, {rate:.0} jobs a second; {} processes, {killed} runs and \
         {orphaned} commands killed, {} done, {} failed",
        took.as_secs_f64(),
        started.load(Ordering::SeqCst),
        done.len(),
        failed.len()
    ));
}

#[test]
fn hourly_cap_survives_restarts() {
    const CAP: usize = 7;
    let fixture = fixture(&format!(
        "[curator]\nhourly_cap = {CAP}\n[jobs.curator]\nkind = \"curator\"\ntrigger = \"manual\"\nbatch = 3\n"
    ));
    // The cap can be reached only if there are more jobs than it allows.
    let count = scaled(24).max(2 * CAP);
    for number in 0..count {
        drop_job(&fixture, number, 0, 0);
    }
    let mut dice = Random::new("cap");
    let mut minute = 0;
    let mut seen: BTreeMap<(i64, String), usize> = BTreeMap::new();
    let (mut restarts, mut killed) = (0, 0);
    let first: jiff::Timestamp = "2027-03-01T12:00:00Z".parse().unwrap();
    while !ids(&fixture, "queue").is_empty() || !ids(&fixture, "processing").is_empty() {
        assert!(minute < 60 * i64::try_from(count).unwrap(), "the queue does not advance");
        let now = first + jiff::SignedDuration::from_mins(minute);
        fixture.set_clock(now);
        let reported = MoveWatch::of(&fixture.path(WORKER).join("processing"));
        let mut child = fixture
            .runner_with_clock(&["--quiet", "curator", "work"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        restarts += 1;
        if dice.roll(4) == 0 {
            let over = handle(child.id()).unwrap();
            if reported.wait(Some(&over), LIMIT) {
                killed += usize::from(kill_one_at_work(&fixture, &mut dice));
            }
        }
        child.wait().unwrap();
        let mut here: BTreeMap<(i64, String), usize> = BTreeMap::new();
        for line in fixture.read(&format!("{WORKER}/logs/hour.jsonl")).lines() {
            let start: Value = serde_json::from_str(line).unwrap();
            let at: jiff::Timestamp = start["at"].as_str().unwrap().parse().unwrap();
            let at = at.duration_since(first).as_mins();
            *here.entry((at, start["id"].as_str().unwrap().to_owned())).or_default() += 1;
        }
        for (start, times) in here {
            let known = seen.entry(start).or_default();
            *known = times.max(*known);
        }
        minute += i64::try_from(dice.roll(20)).unwrap() + 1;
    }
    let starts: Vec<i64> =
        seen.iter().flat_map(|((at, _), times)| std::iter::repeat_n(*at, *times)).collect();
    assert!(starts.len() >= count);
    let mut fullest = 0;
    for from in &starts {
        let within = starts.iter().filter(|at| (*from..from + 60).contains(*at));
        let within = within.count();
        assert!(within <= CAP, "{within} jobs began in the hour from minute {from}");
        fullest = fullest.max(within);
    }
    assert_eq!(fullest, CAP, "no hour reaches the cap");
    assert_eq!(ids(&fixture, "done").len() + ids(&fixture, "failed").len(), count);
    print_line(&format!(
        "cap: {count} jobs, {} begun over {minute} minutes, {restarts} restarts, {killed} killed",
        starts.len()
    ));
}

fn watcher(fixture: &Fixture) -> Child {
    fixture
        .runner(&["curator", "work", "--watch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[track_caller]
fn done_soon(fixture: &Fixture, reported: &MoveWatch, id: &str) {
    let path = fixture.path(WORKER).join(format!("done/{id}.json"));
    let until = boot_time() + SOON;
    while !path.exists() {
        let left = until.saturating_sub(boot_time());
        assert!(!left.is_zero(), "{id} is not done after {SOON:?}");
        reported.wait(None, left);
    }
}

fn switches(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
    line.unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn watch_runs_dropped_jobs_until_stopped() {
    let fixture = fixture("[jobs.curator]\nkind = \"curator\"\ntrigger = \"manual\"\n");
    let reported = MoveWatch::of(&fixture.path(WORKER).join("done"));
    let mut watch = watcher(&fixture);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let first = drop_job(&fixture, 1, 0, 0);
    done_soon(&fixture, &reported, &first);
    // The watcher has reported that run, so only the next job can wake it.
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains("curator: degraded"), "{line}");
    let second = drop_job(&fixture, 2, 0, 0);
    done_soon(&fixture, &reported, &second);
    // Like a shell redirection, this writes the file in place.
    let third = "20260102T030405Z-lint-wiki-0000abcd";
    let job = json!({ "id": third, "kind": "lint-wiki", "created_at": "2026-01-02T03:04:05Z" });
    fs::write(queue(&fixture, third), job.to_string()).unwrap();
    done_soon(&fixture, &reported, third);
    while !lines.next().unwrap().unwrap().contains(third) {}
    // The watcher may first finish its current work, but must then be idle.
    let mut quiet = false;
    for _ in 0..20 {
        let before = switches(watch.id());
        assert!(!ended_within(watch.id(), Duration::from_secs(1)));
        quiet = switches(watch.id()) - before <= 1;
        if quiet {
            break;
        }
    }
    assert!(quiet, "the watcher is busy although it has nothing to do");
    kill_process(Pid::from_child(&watch), Signal::TERM).unwrap();
    assert!(ended_within(watch.id(), LIMIT));
    assert_eq!(watch.wait().unwrap().code(), Some(0));
    let runs = fixture.run(&["runs", "--json"]).json();
    assert_eq!(runs.as_array().unwrap().len(), 3, "a run was started without work: {runs}");
}

#[test]
fn stopped_watch_requeues_its_current_job() {
    let fixture = Fixture::with("");
    let script = "cat > /dev/null; cd \"$0\"; echo up > up.fifo; read word < go.fifo";
    let root = fixture.project().display().to_string();
    fixture.configure(&format!(
        "[jobs.dream]\nenabled = false\n[jobs.curator]\nkind = \"curator\"\ntrigger = \"manual\"\nbackend = \"model\"\nsandbox = \"off\"\n\
         [backends.model]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", {script:?}, {root:?}]\n"
    ));
    fixture.write("docs/index.md", "# Index\n\n[gone](gone.md)\n");
    let fifos = fixture.command("mkfifo", &["up.fifo", "go.fifo"]).status();
    assert!(fifos.unwrap().success());
    fixture.run(&["curator", "compact", "--apply"]).ends(0);
    let id = drop_job(&fixture, 1, 0, 0);
    let mut watch = watcher(&fixture);
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    kill_process(Pid::from_child(&watch), Signal::TERM).unwrap();
    assert!(ended_within(watch.id(), LIMIT));
    assert_eq!(watch.wait().unwrap().code(), Some(0));
    assert!(queue(&fixture, &id).exists(), "the job was not put back into the queue");
    assert!(ids(&fixture, "processing").is_empty() && ids(&fixture, "done").is_empty());
    let job: Value =
        serde_json::from_str(&fs::read_to_string(queue(&fixture, &id)).unwrap()).unwrap();
    assert_eq!((&job["returned"], &job["attempts"]), (&Value::Null, &Value::Null));
    assert!(fixture.survivors().is_empty(), "{:?}", fixture.survivors());
    let reported =
        CommandOutput::of(fixture.runner(&["curator", "status", "--json"]).output().unwrap())
            .json();
    assert_eq!(reported["status"]["state"], "idle", "{reported}");
}

#[test]
fn worker_skips_a_locked_job() {
    let fixture = Fixture::with("");
    let script = "cat > /dev/null; cd \"$0\"; echo up > up.fifo; read word < go.fifo; echo '{\"suggestions\":[]}'";
    let root = fixture.project().display().to_string();
    fixture.configure(&format!(
        "[jobs.dream]\nenabled = false\n[jobs.curator]\nkind = \"curator\"\ntrigger = \"manual\"\nbatch = 1\nbackend = \"model\"\n\
         sandbox = \"off\"\n[jobs.other]\nkind = \"curator\"\ntrigger = \"manual\"\n[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n\
         [backends.model]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", {script:?}, {root:?}]\n"
    ));
    fixture.write("docs/index.md", "# Index\n\n[gone](gone.md)\n");
    let fifos = fixture.command("mkfifo", &["up.fifo", "go.fifo"]).status();
    assert!(fifos.unwrap().success());
    fixture.run(&["curator", "compact", "--apply"]).ends(0);
    fixture.run(&["curator", "work", "--job", "tidy"]).ends(2).expect_text("of kind command");
    fixture.run(&["curator", "work", "--job", "no"]).ends(78);
    drop_job(&fixture, 1, 0, 0);
    let first =
        fixture.runner(&["curator", "work"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
    drop_job(&fixture, 2, 0, 0);
    fixture.run(&["curator", "work"]).ends(0).expect_text("skipped");
    // Another job of the same kind works in parallel.
    let other = fixture.run(&["curator", "work", "--job", "other"]).ends(0);
    assert!(other.out.contains("1 done"), "{other:?}");
    let folder = fixture.path(WORKER).join("processing");
    assert_eq!(ids(&fixture, "done").len(), 1, "{folder:?}");
    fs::write(fixture.path("go.fifo"), "go\n").unwrap();
    assert!(first.unwrap().wait().unwrap().success());
    assert_eq!(ids(&fixture, "done").len(), 2);
    let runs = fixture.run(&["runs", "--json"]).json();
    assert_eq!(runs.as_array().unwrap().len(), 3, "{runs}");
    let idle = fixture.run(&["curator", "work"]).ends(0);
    assert_eq!(idle.out, "", "a job was run although none was queued");
}
