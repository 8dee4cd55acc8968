//! Tests command and prompt jobs, and the conditions for their success.

use std::fs::File;
use std::mem::MaybeUninit;
use std::process::{Child, Command, Stdio};

use rustix::fs::inotify;

use crate::fixture::Fixture;

fn job(script: &str, more: &str) -> Fixture {
    Fixture::with(&format!(
        "[jobs.tidy]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nargs = [\"-c\", {script:?}]\n{more}"
    ))
}

const ARTIFACT: &str = "artifacts = [{ from = \"a.json\", to = \"out/a.json\" }]\n";

#[test]
fn declared_artifact_is_published_and_reported() {
    let fixture = job("echo '{\"n\": 1}' > \"$RUNNER_OUT/a.json\"", ARTIFACT);
    fixture.run(&["run", "tidy"]).ends(0).expect_text("tidy: succeeded").expect_text("out/a.json");
    assert_eq!(fixture.read("out/a.json"), "{\"n\": 1}\n");
    let runs = fixture.run(&["runs", "--json"]).ends(0).json();
    assert_eq!(runs[0]["outcome"], "succeeded");
    assert_sandboxed(&runs[0]);
    assert!(!fixture.path(".runner/staging").join(runs[0]["id"].as_str().unwrap()).exists());
    assert!(fixture.survivors().is_empty());
}

/// Processes unrelated to runner, and a watch that reports when their state files are opened.
struct Strangers {
    all: Vec<Child>,
    /// Open files that are never read. The kernel drops the watch on a `/proc` file that is not
    /// open.
    _states: Vec<File>,
    watch: std::os::fd::OwnedFd,
}

impl Strangers {
    fn start(count: usize) -> Self {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        let mut all = Vec::new();
        let mut states = Vec::new();
        for _ in 0..count {
            let mut cat = Command::new("cat");
            all.push(cat.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
            let path = format!("/proc/{}/stat", all.last().unwrap().id());
            states.push(File::open(&path).unwrap());
            inotify::add_watch(&watch, &path, inotify::WatchFlags::OPEN).unwrap();
        }
        Self { all, _states: states, watch }
    }

    /// Returns the number of the watch's events since the last call. It is 0 only if no state file
    /// was opened.
    fn reads(&self) -> usize {
        let mut buffer = [MaybeUninit::uninit(); 64 * 1024];
        let mut reader = inotify::Reader::new(&self.watch, &mut buffer);
        std::iter::from_fn(|| reader.next().ok().map(drop)).count()
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        for child in &mut self.all {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

/// Checks that a run does not read the state of unrelated processes. Concurrent tests may read the
/// states, so one attempt without a read is enough. If the run itself read them, no attempt would
/// succeed.
#[test]
fn run_ignores_unrelated_processes() {
    let fixture = job("true", "");
    fixture.run(&["run", "tidy"]).ends(0);
    let strangers = Strangers::start(200);
    std::fs::read(format!("/proc/{}/stat", strangers.all[0].id())).unwrap();
    assert!(strangers.reads() > 0, "the watch reported no read");
    let reads_none = |_| {
        strangers.reads();
        fixture.run(&["run", "tidy"]).ends(0);
        strangers.reads() == 0
    };
    assert!((0..50).any(reads_none), "every run read the state of an unrelated process");
}

#[test]
fn exit_0_without_artifact_is_a_failure() {
    let fixture = job("true", ARTIFACT);
    fixture.run(&["run", "tidy"]).ends(1).expect_text("artifact-missing").expect_text("a.json");
    let mark: serde_json::Value =
        serde_json::from_str(&fixture.read(".runner/failed/tidy.json")).unwrap();
    assert_eq!(mark["class"], "artifact-missing");
    fixture.run(&["status"]).ends(0).expect_text("FAILED").expect_text("tidy");
}

#[test]
fn next_success_removes_the_failmark() {
    let fixture = job("[ -e good ] && echo 1 > \"$RUNNER_OUT/a.json\"", ARTIFACT);
    fixture.run(&["run", "tidy"]).ends(1).expect_text("failed (exit)").expect_text("exit 1");
    assert!(fixture.path(".runner/failed/tidy.json").exists());
    fixture.write("good", "");
    fixture.run(&["run", "tidy"]).ends(0);
    assert!(!fixture.path(".runner/failed/tidy.json").exists());
}

#[test]
fn malformed_artifact_replaces_nothing() {
    let fixture = job("printf '{\"n\": ' > \"$RUNNER_OUT/a.json\"", ARTIFACT);
    fixture.write("out/a.json", "{\"old\": true}\n");
    fixture.run(&["run", "tidy"]).ends(1).expect_text("malformed").expect_text("not JSON");
    assert_eq!(fixture.read("out/a.json"), "{\"old\": true}\n");
}

#[test]
fn missing_program_is_reported_as_not_installed() {
    let fixture =
        Fixture::with("[jobs.tidy]\nkind = \"command\"\nprogram = \"no-such-program-at-all\"\n");
    fixture
        .run(&["run", "tidy"])
        .ends(69)
        .expect_text("not-installed")
        .expect_text("no-such-program-at-all");
}

#[test]
fn deadline_kills_the_process_tree() {
    let fixture = job("setsid sleep 1000 & sleep 1000", "timeout = \"300ms\"\n");
    fixture.run(&["run", "tidy"]).ends(1).expect_text("timed-out").expect_text("total deadline");
    assert_eq!(fixture.survivors(), Vec::<String>::new());
}

#[test]
fn program_gets_only_allowed_variables() {
    let fixture = job(
        "env | cut -d= -f1 | sort | tr '\\n' ' ' > \"$RUNNER_OUT/a.txt\"",
        "env = [\"WANTED\"]\nartifacts = [{ from = \"a.txt\", to = \"out/a.txt\" }]\n",
    );
    let output = fixture
        .runner(&["run", "tidy"])
        .env("WANTED", "1")
        .env("SECRET_KEY", "s3cr3t")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let names = fixture.read("out/a.txt");
    let names: Vec<&str> = names
        .split_whitespace()
        .filter(|name| !["_", "PWD", "SHLVL", "OLDPWD"].contains(name))
        .collect();
    assert_eq!(names, ["HOME", "PATH", "RUNNER_OUT", "RUNNER_RUN", "TMPDIR", "TZ", "WANTED"]);
}

#[test]
fn secrets_in_program_output_are_redacted() {
    let key = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let fixture = job(&format!("echo token {key} >&2; exit 3"), "");
    let said = fixture.run(&["run", "tidy"]).ends(1).expect_text("exit 3");
    let id = fixture.run(&["runs", "--json"]).json()[0]["id"].as_str().unwrap().to_owned();
    let logs = fixture.run(&["runs", "logs", &id]).ends(0);
    for text in [&said.err, &said.out, &logs.out] {
        assert!(!text.contains(&key), "{text}");
    }
    assert!(logs.out.contains("[redacted"), "{}", logs.out);
}

#[test]
fn secrets_from_environment_are_redacted() {
    let fixture = job("echo $MY_TOKEN >&2; exit 3", "env = [\"MY_TOKEN\"]\n");
    let output =
        fixture.runner(&["run", "tidy"]).env("MY_TOKEN", "correct-horse-battery").output().unwrap();
    let id = fixture.run(&["runs", "--json"]).json()[0]["id"].as_str().unwrap().to_owned();
    let logs = fixture.run(&["runs", "logs", &id]).ends(0);
    let sinks = [
        String::from_utf8_lossy(&output.stderr).into_owned(),
        fixture.read(".runner/failed/tidy.json"),
        fixture.run(&["runs", "--json"]).out,
        logs.out.clone(),
    ];
    assert!(logs.out.contains("[redacted"), "the script printed nothing: {}", logs.out);
    for sink in sinks {
        assert!(!sink.contains("correct-horse"), "{sink}");
    }
}

#[test]
fn killed_run_leaves_a_failmark() {
    let fixture = job(
        // Without a sandbox, the script can kill the run's process, which is the launcher's parent.
        "read _ _ _ run _ < /proc/$PPID/stat; kill -9 $run; sleep 1000",
        "sandbox = \"off\"\n",
    );
    fixture.run(&["run", "tidy"]).ends(1).expect_text("lost");
    assert!(fixture.read(".runner/failed/tidy.json").contains("lost"));
    assert!(fixture.survivors().is_empty());
}

#[test]
fn repeated_key_runs_once() {
    let fixture = job("echo x >> times", "");
    fixture.write("times", "");
    fixture.run(&["run", "tidy", "--key", "monday"]).ends(0);
    fixture
        .run(&["run", "tidy", "--key", "monday"])
        .ends(0)
        .expect_text("already requested with this key");
    assert_eq!(fixture.read("times"), "x\n");
    fixture.run(&["run", "tidy", "--key", "tuesday"]).ends(0);
    assert_eq!(fixture.read("times"), "x\nx\n");
}

#[test]
fn sigterm_cancels_and_settles_the_run() {
    let fixture = job("echo ready > ready.fifo; exec sleep 1000", "");
    fixture.command("mkfifo", &["ready.fifo"]).status().unwrap();
    let mut child = fixture.runner(&["run", "tidy", "--json"]).spawn().unwrap();
    assert_eq!(std::fs::read_to_string(fixture.path("ready.fifo")).unwrap(), "ready\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130), "{status:?}");
    assert_eq!(fixture.run(&["runs", "--json"]).json()[0]["outcome"], "cancelled");
    assert!(fixture.survivors().is_empty());
}

#[test]
fn prompt_without_model_writes_source_index() {
    let fixture = Fixture::with(
        "[jobs.digest]\nkind = \"prompt\"\nprompt = \"What is new?\"\nsources = [\"README.md\", \"gone.md\"]\nto = \"notes/digest.md\"\n",
    );
    fixture.run(&["run", "digest"]).ends(0).expect_text("degraded").expect_text("gone.md");
    let text = fixture.read("notes/digest.md");
    assert!(text.contains("No model was asked") && text.contains("README.md: a project"), "{text}");
}

#[test]
fn command_backend_answers_a_prompt() {
    let fixture = Fixture::with(
        "[backends.mine]\ntype = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", \"cat > seen.json; echo '\\\"the answer\\\"'\"]\n\
         [jobs.digest]\nkind = \"prompt\"\nprompt = \"What?\"\nsources = [\"README.md\"]\nto = \"d.md\"\nbackend = \"mine\"\n",
    );
    fixture.run(&["run", "digest"]).ends(0).expect_text("mine wrote d.md");
    assert_eq!(fixture.read("d.md"), "the answer\n");
    let row = &fixture.run(&["runs", "--json"]).json()[0];
    assert_eq!((row["backend"].as_str(), row["model_calls"].as_i64()), (Some("mine"), Some(1)));
    assert_sandboxed(row);
}

/// Checks that the guide's example backend works verbatim for a dream and for a prompt.
#[test]
fn guide_example_backend_works() {
    let guide = include_str!("../../docs/guide/command-backend.md");
    let script = guide.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let fixture = Fixture::with("");
    fixture.write("echo.py", script);
    let path = fixture.path("echo.py").display().to_string();
    fixture.configure(&format!(
        "[backends.mine]\ntype = \"command\"\nprogram = \"python3\"\nargs = [{path:?}]\nquiet = true\n\
         [jobs.dream]\nbackend = \"mine\"\n\
         [jobs.digest]\nkind = \"prompt\"\nprompt = \"What?\"\nsources = [\"README.md\"]\nto = \"d.md\"\nbackend = \"mine\"\n"
    ));
    fixture.write("ideas/note.md", "Maybe use a shorter name?\n");
    let night = fixture.run(&["night", "--json"]).ends(0).json();
    assert_eq!(night["worst"], "succeeded", "{night:#}");
    assert!(fixture.read("d.md").contains("README.md: a project"));
    assert_eq!(night["runs"][1]["unstated_calls"], 1);
}

/// Checks that the run reports an active sandbox and its mechanisms.
fn assert_sandboxed(run: &serde_json::Value) {
    let reported = run["containment"].as_str().unwrap();
    assert!(reported.starts_with("full (") || reported.starts_with("files-only ("), "{reported}");
    assert!(reported.contains("seccomp") && reported.contains(", tree "), "{reported}");
}
