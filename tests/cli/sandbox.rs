//! Tests the guard commands, the paths and hosts that a job can reach, and the cleanup of process
//! trees whose supervisors are killed.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{CommandOutput, Fixture, ended_within, print_line, skip};

/// Maximum time that a process tree may outlive its supervisor.
const LIMIT: Duration = Duration::from_secs(2);

/// A run whose program starts processes in other sessions, some of them with an empty environment.
struct Live {
    fixture: Fixture,
    command: Child,
    perform: u32,
    launcher: u32,
    tree: Vec<u32>,
}

impl Live {
    fn new(sandbox: &str) -> Self {
        let script = "setsid sleep 1001 & env -i setsid sh -c 'sleep 1002 & exec sleep 1003' & trap '' TERM HUP INT; echo up > up.fifo; while :; do sleep 1004; done";
        let fixture = Fixture::with(&format!(
            "[jobs.tidy]\nkind = \"command\"\ntrigger = \"manual\"\nsandbox = {sandbox:?}\nprogram = \"sh\"\nargs = [\"-c\", {script:?}]\n"
        ));
        fixture.command("mkfifo", &["up.fifo"]).status().unwrap();
        let command = fixture
            .runner(&["run", "tidy"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert_eq!(fs::read_to_string(fixture.path("up.fifo")).unwrap(), "up\n");
        let perform = only_child(command.id());
        let launcher = only_child(perform);
        let mut tree = Vec::new();
        below(launcher, &mut tree);
        assert!(tree.len() >= 3, "{tree:?}");
        Self { fixture, command, perform, launcher, tree }
    }

    #[track_caller]
    fn is_gone(&self) {
        for pid in &self.tree {
            assert!(ended_within(*pid, LIMIT), "{pid} lives: {}", line(*pid));
        }
        assert!(ended_within(self.launcher, LIMIT));
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        for pid in [self.command.id(), self.perform, self.launcher] {
            kill(pid, Signal::KILL);
        }
        let _ = self.command.wait();
    }
}

fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = kill_process(pid, signal);
}

fn line(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text.replace('\0', " ")
}

fn children(pid: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|child: &u32| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        rest.split_whitespace().nth(1) == Some(&pid.to_string())
    })
    .collect()
}

fn only_child(pid: u32) -> u32 {
    let children = children(pid);
    assert_eq!(children.len(), 1, "{children:?}");
    children[0]
}

fn below(pid: u32, all: &mut Vec<u32>) {
    for child in children(pid) {
        all.push(child);
        below(child, all);
    }
}

/// Returns whether the run's launcher created a control group.
fn has_group(live: &Live) -> bool {
    let group = fs::read_to_string(format!("/proc/{}/cgroup", live.tree[0])).unwrap();
    group.lines().any(|line| line.starts_with("0::") && line.contains("runner-"))
}

/// Returns whether this process may create a control group beneath its own.
fn groups_are_permitted() -> bool {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let Some(own) = own.lines().find_map(|line| line.strip_prefix("0::/")) else { return false };
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().any(|mount| {
        let group = Path::new(mount).join(own).join(format!("test-{}", std::process::id()));
        let permitted = fs::create_dir(&group).is_ok() && group.join("cgroup.kill").exists();
        let _ = fs::remove_dir(&group);
        permitted
    })
}

#[test]
fn control_group_contains_tree_but_not_launcher() {
    if !groups_are_permitted() {
        print_line("skipped 1: control groups are not permitted here");
        return;
    }
    for sandbox in ["on", "off"] {
        let live = Live::new(sandbox);
        let group = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert!(has_group(&live), "{sandbox}: {}", group(live.tree[0]));
        for pid in &live.tree {
            assert_eq!(group(*pid), group(live.tree[0]), "{sandbox}: {}", line(*pid));
        }
        assert_eq!(group(live.launcher), group(std::process::id()), "{sandbox}");
    }
}

#[test]
fn launcher_cleans_up_after_killed_runner() {
    for sandbox in ["on", "off"] {
        let live = Live::new(sandbox);
        kill(live.command.id(), Signal::KILL);
        kill(live.perform, Signal::KILL);
        live.is_gone();
    }
}

#[test]
fn runner_cleans_up_after_killed_launcher() {
    for sandbox in ["on", "off"] {
        let mut live = Live::new(sandbox);
        kill(live.launcher, Signal::KILL);
        live.is_gone();
        assert_eq!(live.command.wait().unwrap().code(), Some(1), "the run did not fail");
        assert_eq!(live.fixture.survivors(), Vec::<String>::new());
    }
}

#[test]
fn recovery_cleans_up_after_both_are_killed() {
    for sandbox in ["on", "off"] {
        let live = Live::new(sandbox);
        let held = sandbox == "on" || has_group(&live);
        for pid in [live.command.id(), live.perform, live.launcher] {
            kill(pid, Signal::STOP);
        }
        for pid in [live.command.id(), live.perform, live.launcher] {
            kill(pid, Signal::KILL);
        }
        assert!(ended_within(live.perform, LIMIT) && ended_within(live.launcher, LIMIT));
        live.fixture.run(&["tick"]);
        if held {
            live.is_gone();
        } else {
            print_line(
                "skipped 1: without a control group, a process that cleared its environment is not found",
            );
        }
        for name in [".claude", ".codex", "rem", ".git/commondir"] {
            assert!(!live.fixture.path(name).exists(), "{name}");
        }
        let groups =
            live.fixture.command("sh", &["-c", "find /sys/fs/cgroup -name 'runner-*' 2>/dev/null"]);
        let run =
            live.fixture.run(&["runs", "--json"]).json()[0]["id"].as_str().unwrap().to_owned();
        let groups = String::from_utf8({
            let mut groups = groups;
            groups.output().unwrap().stdout
        })
        .unwrap();
        assert!(!groups.contains(&run), "{groups}");
    }
}

#[test]
fn disabled_sandbox_is_reported() {
    let fixture =
        Fixture::with("[jobs.tidy]\nkind = \"command\"\nsandbox = \"off\"\nprogram = \"true\"\n");
    fixture.run(&["run", "tidy"]).ends(0);
    let id = fixture.run(&["runs", "--json"]).json()[0]["id"].as_str().unwrap().to_owned();
    fixture
        .run(&["runs", "show", &id])
        .expect_text("off, network ")
        .expect_text("limitation of its sandbox");
}

#[test]
fn command_cannot_write_protected_paths() {
    let script = "echo x > made; mkdir -p .claude; echo evil > .claude/settings.json; echo evil >> runner.toml; echo evil >> .git/config; echo evil > .git/hooks/post-commit; echo evil > dreams/x; echo evil > \"$HOME/evil\"; git add made && git -c user.name=a -c user.email=b commit --quiet -m Made; true";
    let fixture = Fixture::with(&format!(
        "[jobs.tidy]\nkind = \"command\"\nprogram = \"sh\"\nargs = [\"-c\", {script:?}]\n"
    ));
    let before = (fixture.read("runner.toml"), fixture.read(".git/config"));
    fixture.run(&["run", "tidy"]).ends(0);
    assert_eq!((fixture.read("runner.toml"), fixture.read(".git/config")), before);
    for path in
        [".claude", ".codex", ".git/hooks/post-commit", "dreams/x", "../evil", ".git/commondir"]
    {
        assert!(!fixture.path(path).exists(), "{path}");
    }
    if fs::exists("/usr/bin/bwrap").unwrap() {
        assert_eq!(fixture.read("made"), "x\n");
        assert_eq!(fixture.git(&["log", "-1", "--format=%s"]).trim(), "Made");
    } else {
        skip("bwrap", "without bubblewrap, nothing can be created beside a protected path");
    }
}

#[test]
fn runner_works_in_a_pid_namespace() {
    let fixture = Fixture::with(
        "[jobs.tidy]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"true\"\n",
    );
    let apart = ["--pid", "--fork", "--mount-proc"];
    let can = fixture.command("unshare", &[&apart[..], &["true"]].concat()).status();
    if !can.is_ok_and(|status| status.success()) {
        print_line("skipped 1: no process namespace can be created here");
        return;
    }
    for args in [&["run", "tidy"][..], &["status"], &["tick"]] {
        let line = [&apart[..], &[env!("CARGO_BIN_EXE_runner")], args].concat();
        let said = CommandOutput::of(fixture.command("unshare", &line).output().unwrap());
        assert!(!said.err.contains("panicked"), "{args:?}: {said:?}");
        said.ends(0);
    }
    let run = &fixture.run(&["runs", "--json"]).json()[0];
    assert_eq!(run["outcome"], "succeeded", "{run}");
}

#[test]
fn hook_refuses_with_exit_code_2() {
    let fixture = Fixture::with(
        "[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n\
         [jobs.cycle]\nkind = \"lifecycle\"\ntrigger = \"manual\"\ncycle = \"cycle.md\"\n\
         [jobs.up]\nkind = \"wake\"\nagent = \"a\"\nprompt = \"prompts/wake.md\"\n",
    );
    let ask = |args: &[&str], payload: &[u8], from: &Path| {
        let mut hook = fixture
            .runner(&[&["guard", "hook"], args].concat())
            .current_dir(from)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The hook may refuse before it has read everything.
        let _ = hook.stdin.take().unwrap().write_all(payload);
        hook.wait_with_output().unwrap().status.code()
    };
    let project = fixture.project();
    let write = |path: &str| {
        serde_json::json!({
            "hook_event_name": "PreToolUse", "tool_name": "Write", "cwd": project,
            "tool_input": { "file_path": path, "content": "x" },
        })
        .to_string()
        .into_bytes()
    };
    let job = ["--job", "tidy"];
    assert_eq!(ask(&job, &write("notes.md"), &project), Some(0));
    for path in [
        "/etc/passwd",
        "../x",
        "runner.toml",
        ".ctxrc",
        ".claude/settings.json",
        ".git/config",
        "cycle.md",
        "prompts/wake.md",
    ] {
        assert_eq!(ask(&job, &write(path), &project), Some(2), "{path}");
    }
    assert_eq!(ask(&["--write", "."], &write("a"), &project), Some(0));
    assert_eq!(ask(&["--write", ".", "--keep", "a"], &write("a"), &project), Some(2));
    // Every error results in a refusal.
    for payload in [&b""[..], b"{", b"\xff\xfe", &vec![b' '; 9 << 20]] {
        assert_eq!(ask(&job, payload, &project), Some(2));
    }
    assert_eq!(ask(&[], &write("a"), &project), Some(2), "without a job");
    assert_eq!(ask(&["--job", "nobody"], &write("a"), &project), Some(2));
    assert_eq!(ask(&["--no-such-flag"], &write("a"), &project), Some(2));
    assert_eq!(ask(&job, &write("a"), fixture.root()), Some(2), "outside a project");
    fixture.write("runner.toml", "broken = ");
    assert_eq!(ask(&job, &write("a"), &project), Some(2), "a broken configuration");
}

#[test]
fn guard_commands_report_scopes_and_leaks() {
    let fixture = Fixture::with("");
    fixture
        .run(&["guard", "write-scope", "--job", "dream", "dreams/state.json"])
        .ends(0)
        .expect_text("dreams/state.json: may be written");
    fixture
        .run(&["guard", "write-scope", "--job", "dream", "dreams/x", "README.md"])
        .ends(1)
        .expect_text("README.md: must not be written");
    let json =
        fixture.run(&["guard", "leak", "--json", "dreams/state.json", "README.md"]).ends(1).json();
    assert_eq!((&json[0]["allowed"], &json[1]["allowed"]), (&true.into(), &false.into()));
    // Without `--job`, the scope is that of the dream job.
    fixture.run(&["guard", "write-scope", "dreams/x"]).ends(0).expect_text("may be written");
    fixture.run(&["guard", "write-scope", "README.md"]).ends(1);
}

#[test]
fn dream_hook_refuses_paths_that_leak() {
    let fixture = Fixture::with("");
    fixture.write("dreams/tracked.md", "x\n");
    fixture.git(&["add", "-f", "dreams/tracked.md"]);
    let ask = |path: &str| {
        let payload = serde_json::json!({
            "hook_event_name": "PreToolUse", "tool_name": "Write", "cwd": fixture.project(),
            "tool_input": { "file_path": path, "content": "x" },
        });
        let mut hook = fixture
            .runner(&["guard", "hook", "--job", "dream"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        hook.stdin.take().unwrap().write_all(payload.to_string().as_bytes()).unwrap();
        CommandOutput::of(hook.wait_with_output().unwrap())
    };
    ask("dreams/new.md").ends(0);
    ask("dreams/tracked.md").ends(2).expect_text("dreams/tracked.md is tracked by git");
    // The path is in scope, so the leak is the only reason for the refusal.
    fixture.run(&["guard", "write-scope", "dreams/tracked.md"]).ends(0);
}

/// Creates a fixture whose job prints configuration files of runner and of other programs.
fn curious(more: &str) -> Fixture {
    let fixture = Fixture::with(&format!(
        "[jobs.tidy]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\n\
         args = [\"-c\", \"cat $HOME/config/runner/* $HOME/.aws/config $HOME/.netrc $HOME/free; true\"]\n{more}"
    ));
    let home = fixture.root();
    fs::create_dir_all(home.join(".aws")).unwrap();
    for (path, text) in [
        ("config/runner/credentials.env", "KEY=of-runner\n"),
        (".aws/config", "of-aws\n"),
        (".netrc", "of-netrc\n"),
        ("free", "of-nobody\n"),
    ] {
        fs::write(home.join(path), text).unwrap();
    }
    fixture
}

#[test]
fn sandboxed_children_read_only_listed_private_paths() {
    for (more, seen) in [
        ("", &[false, false, false][..]),
        ("reads = [\"~/.aws/config\"]\n", &[false, true, false]),
        ("reads = [\"~/.aws\", \"~/.netrc\"]\n", &[false, true, true]),
        ("sandbox = \"off\"\n", &[true, true, true]),
    ] {
        let fixture = curious(more);
        fixture.run(&["run", "tidy"]).ends(0);
        let logs = fixture.run(&["logs", "tidy"]).ends(0).out;
        let found = ["of-runner", "of-aws", "of-netrc"].map(|text| logs.contains(text));
        assert_eq!(found, seen, "{more}: {logs}");
        assert!(logs.contains("of-nobody"), "{more}: {logs}");
    }
    for bad in ["../x", ".aws", "~/../x", "~", "/a//b"] {
        let fixture = curious(&format!("reads = [{bad:?}]\n"));
        fixture.run(&["run", "tidy"]).ends(78).expect_text("reads");
    }
}

#[test]
fn list_of_hosts_needs_the_full_sandbox() {
    let hosts = "network = [\"api.example.org\"]\n";
    let landlock = curious(hosts);
    let said = landlock.runner(&["run", "tidy"]).env("RUNNER_TEST_SANDBOX", "landlock").output();
    let said = CommandOutput::of(said.unwrap());
    said.ends(78).expect_text("lists the hosts").expect_text("bubblewrap");
    let off = curious(&format!("{hosts}sandbox = \"off\"\n"));
    off.run(&["run", "tidy"]).ends(78).expect_text("sandbox is off");
    for bad in ["https://a", "a b", "a:0", "a:70000", "", "a..b", "-".repeat(64).as_str()] {
        let fixture = curious(&format!("network = [{bad:?}]\n"));
        fixture.run(&["run", "tidy"]).ends(78).expect_text("network");
    }
}

#[test]
fn jobs_cannot_read_keys_of_backends() {
    let fixture = Fixture::with("");
    let home = fixture.root().join("elsewhere");
    fs::create_dir(&home).unwrap();
    let [login, keys, named] =
        ["auth.json", "keys", ".credentials.json"].map(|name| home.join(name));
    for path in [&login, &keys, &named] {
        fs::write(path, "secret=token").unwrap();
    }
    fs::write(home.join("other"), "harmless").unwrap();
    let script = format!(
        "cat {0}/auth.json {0}/keys {0}/.credentials.json {0}/other > out.txt; true",
        home.display()
    );
    fixture.configure(&format!(
        "[backends.night]\ntype = \"codex\"\nstate = {:?}\nenv_file = {:?}\n\
         [jobs.tidy]\nkind = \"command\"\ntrigger = \"manual\"\nwrites = [\"out.txt\"]\n\
         program = \"sh\"\nargs = [\"-c\", {script:?}]\n",
        home.display().to_string(),
        keys.display().to_string()
    ));
    fixture.write("out.txt", "");
    let mut run = fixture.runner(&["run", "tidy"]);
    CommandOutput::of(run.env("CLAUDE_CONFIG_DIR", &home).output().unwrap()).ends(0);
    assert_eq!(fixture.read("out.txt"), "harmless");
}
