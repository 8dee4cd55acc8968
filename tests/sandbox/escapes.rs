//! Runs every covered attempt in every kind of sandbox that this host has, as the current user and,
//! if that is root, as `nobody`. No attempt may succeed.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use runner_engine::process::{Cancel, OutputVerdict, run};
use runner_engine::sandbox::{ResourceLimits, Sandbox, SandboxMechanism};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::attempts::{About, Attempt, all};
use super::{RUNNER, means, shell, ulid};

/// Protected paths in the writable tree.
const KEPT: [&str; 8] = [
    ".git/config",
    ".git/hooks",
    ".git/commondir",
    ".claude",
    ".ctxrc",
    "prompts/wake.md",
    "prompts/plan.md",
    "runner.toml",
];

struct Fixture {
    _folder: tempfile::TempDir,
    root: PathBuf,
    token: String,
    victim: Child,
    open: fs::File,
    sockets: (UnixListener, UnixDatagram, UnixListener, UnixListener),
    agent: PathBuf,
    tcp: std::net::TcpListener,
}

/// Held while a child that inherits a descriptor is running.
static ALONE: Mutex<()> = Mutex::new(());

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let token = ulid();
        for path in ["work/.git/hooks", "work/prompts", "out", "secret", "run", "tmp", "home"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        for (path, text) in [
            ("work/.git/config", "[core]\n"),
            ("work/.git/HEAD", "ref: refs/heads/main\n"),
            ("work/runner.toml", "# safe\n"),
            ("work/prompts/wake.md", "safe\n"),
            ("work/file", "free\n"),
            ("out/victim", "safe\n"),
            ("secret/token", "correct-horse\n"),
            ("secret/tool", "#!/bin/sh\necho correct-horse\n"),
        ] {
            fs::write(root.join(path), text).unwrap();
        }
        fs::set_permissions(root.join("secret/tool"), fs::Permissions::from_mode(0o755)).unwrap();
        let listener = UnixListener::bind(root.join("run/sock")).unwrap();
        let datagram = UnixDatagram::bind(root.join("run/datagram")).unwrap();
        let name = SocketAddr::from_abstract_name(format!("escape-{token}")).unwrap();
        let hidden = UnixListener::bind_addr(&name).unwrap();
        let agent = PathBuf::from(format!("/tmp/ssh-escape-{}", token.replace('-', "")));
        fs::create_dir(&agent).unwrap();
        let keys = UnixListener::bind(agent.join("agent.1")).unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for socket in [&listener, &hidden, &keys] {
            socket.set_nonblocking(true).unwrap();
        }
        datagram.set_nonblocking(true).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let open = fs::OpenOptions::new().append(true).open(root.join("out/victim")).unwrap();
        let victim = Command::new("sleep")
            .arg("1000")
            .env_clear()
            .env("SECRET", "correct-horse")
            .stdin(Stdio::null())
            .stdout(open.try_clone().unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The process is stopped, so a signal that continues it has a visible effect.
        let pid = Pid::from_child(&victim);
        kill_process(pid, Signal::STOP).unwrap();
        waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        Self {
            _folder: folder,
            root,
            token,
            victim,
            open,
            sockets: (listener, datagram, hidden, keys),
            agent,
            tcp,
        }
    }

    fn sandbox(&self, means: Option<SandboxMechanism>, about: About) -> Sandbox {
        let at = |path: &str| self.root.join(path);
        Sandbox {
            off: means.is_none(),
            means: means.unwrap_or_default(),
            write: vec![at("work")],
            keep: KEPT.map(|path| at("work").join(path)).into(),
            hide: vec![at("secret"), at("run")],
            network: about == About::Abstract,
            temp: Some(at("tmp")),
            blockers: Some(at("blockers")),
            caps: ResourceLimits { file_bytes: 1 << 25, ..ResourceLimits::default() },
            ..Sandbox::default()
        }
    }

    /// Runs the attempt. Returns its effect, or the reason why the child did not start. Returns
    /// `None` if the attempt had no effect.
    fn attempt(&mut self, attempt: &Attempt, means: Option<SandboxMechanism>) -> Option<String> {
        let before = self.picture();
        let mut spec =
            shell(&attempt.script, &self.root.join("work"), self.sandbox(means, attempt.about));
        let values = [
            ("R", self.root.display().to_string()),
            ("W", self.root.join("work").display().to_string()),
            ("O", self.root.join("out").display().to_string()),
            ("S", self.root.join("secret").display().to_string()),
            ("HOME", self.root.join("home").display().to_string()),
            ("V", self.victim.id().to_string()),
            ("FD", self.open.as_raw_fd().to_string()),
            ("T", self.token.replace('-', "")),
            ("ABSTRACT", format!("escape-{}", self.token)),
            ("PORT", self.tcp.local_addr().unwrap().port().to_string()),
            ("RUNNER", RUNNER.to_owned()),
        ];
        spec.env.extend(values.map(|(name, value)| (name.to_owned(), value)));
        spec.limits.total = Some(std::time::Duration::from_secs(20));
        // The next child inherits the descriptor. Children of other tests must not inherit it,
        // because an unsandboxed script could use it to change this fixture's file.
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        fcntl_setfd(&self.open, FdFlags::empty()).unwrap();
        let ended = run(&spec, &Cancel::new().unwrap(), &mut |_, _| OutputVerdict::Continue);
        fcntl_setfd(&self.open, FdFlags::CLOEXEC).unwrap();
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => return Some(format!("the child did not even start: {error}")),
        };
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        if ended.containment.is_none() {
            // Even if the script killed its launcher, no process of the script may be left.
            let left = self.left();
            if !left.is_empty() {
                return Some(format!("processes are left behind: {left:?}"));
            }
        }
        let after = self.picture();
        if before != after {
            let new = after.iter().find(|line| !before.contains(line));
            let gone = before.iter().find(|line| !after.contains(line));
            return Some(format!("changed: {new:?}, was {gone:?}"));
        }
        if said.contains("THROUGH") || said.contains("correct-horse") {
            return Some(format!("the script printed {:?}", said.trim()));
        }
        let (listener, datagram, hidden, keys) = &self.sockets;
        for (name, came) in [
            ("socket", listener.accept().map(drop)),
            ("abstract socket", hidden.accept().map(drop)),
            ("key agent", keys.accept().map(drop)),
            ("datagram", datagram.recv(&mut [0; 16]).map(drop)),
            ("loopback", self.tcp.accept().map(drop)),
        ] {
            match came {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => return Some(format!("something arrived at the {name}")),
            }
        }
        if !matches!(self.victim.try_wait(), Ok(None)) {
            return Some("the other process is dead".to_owned());
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.victim.id())).unwrap();
        if !stat.contains(") T ") {
            return Some(format!("the other process is no longer stopped: {stat}"));
        }
        let left = self.left();
        (!left.is_empty()).then(|| format!("processes are left behind: {left:?}"))
    }

    /// Returns the command lines of the processes that were started with this fixture's token.
    fn left(&self) -> Vec<String> {
        let wanted = format!("1000.{}", self.token.replace('-', ""));
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let lines =
            entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
        lines
            .filter(|line| line.ends_with(&format!("{wanted}\0")) && !line.contains("sh\0-c"))
            .collect()
    }

    /// Returns the state of everything that must not change.
    fn picture(&self) -> Vec<String> {
        let mut all = Vec::new();
        for path in ["out", "secret", "home", "run"] {
            draw(&self.root.join(path), &mut all);
        }
        for path in KEPT {
            draw(&self.root.join("work").join(path), &mut all);
        }
        let git = fs::symlink_metadata(self.root.join("work/.git")).map(|data| data.ino());
        all.push(format!("the git folder {git:?}"));
        let work = fs::symlink_metadata(self.root.join("work")).map(|data| data.ino());
        all.push(format!("the tree {work:?}"));
        let token = self.token.replace('-', "");
        for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
            let path = Path::new(folder).join(format!("escape-{token}"));
            all.push(format!("{} {}", path.display(), path.exists()));
        }
        all
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        let _ = fs::remove_dir_all(&self.agent);
        let token = self.token.replace('-', "");
        for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
            let _ = fs::remove_file(Path::new(folder).join(format!("escape-{token}")));
        }
    }
}

fn draw(path: &Path, all: &mut Vec<String>) {
    let Ok(data) = fs::symlink_metadata(path) else {
        all.push(format!("{} does not exist", path.display()));
        return;
    };
    let times = if data.is_file() { data.mtime_nsec() + data.mtime() } else { 0 };
    let text = if data.is_file() { fs::read(path).unwrap_or_default() } else { Vec::new() };
    let attribute = rustix::fs::lgetxattr(path, "user.evil", &mut [0_u8; 8]).is_ok();
    all.push(format!(
        "{} {:o} {}:{} {} {times} {attribute} {:?}",
        path.display(),
        data.mode(),
        data.uid(),
        data.nlink() * u64::from(data.is_file()),
        data.ino(),
        String::from_utf8_lossy(&text)
    ));
    if data.is_dir() {
        let mut names: Vec<_> =
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        names.sort();
        names.iter().for_each(|path| draw(path, all));
    }
}

/// Returns whether a sandbox covers this class of attempts.
fn covers(means: SandboxMechanism, about: About) -> bool {
    match about {
        About::Files | About::Kernel => true,
        About::Attributes => means != SandboxMechanism::Landlock,
        About::Abstract => means != SandboxMechanism::Bubblewrap,
    }
}

#[test]
fn no_attempt_escapes() {
    if std::env::consts::ARCH != "x86_64" {
        println!("skipped all attempts: their system call numbers are for x86_64");
        return;
    }
    let user = rustix::process::getuid().as_raw();
    let attempts = all();
    assert!(attempts.len() >= 120, "{}", attempts.len());
    let mut table: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let mut through = Vec::new();
    for means in means() {
        let row = table.entry(format!("{means:?}")).or_default();
        for attempt in &attempts {
            if !covers(means, attempt.about) {
                row[1] += 1;
                continue;
            }
            // Each attempt gets a new fixture, because an attempt may damage the fixture's tree.
            match Fixture::new().attempt(attempt, Some(means)) {
                None => row[0] += 1,
                Some(how) => {
                    row[2] += 1;
                    through.push(format!("{means:?}: {}: {how}", attempt.name));
                }
            }
        }
    }
    println!("{} attempts as user {user}:", attempts.len());
    for (means, [held, skipped, through]) in table {
        println!("  {means:<11} blocked {held:>4}, not covered {skipped:>3}, escaped {through}");
    }
    assert!(through.is_empty(), "{through:#?}");
}

/// Repeats the attempts as an unprivileged user, if the test can switch to one.
#[test]
fn no_attempt_escapes_as_nobody() {
    if !rustix::process::getuid().is_root() {
        println!("skipped 1: only root can switch to the user nobody");
        return;
    }
    if !crate::open::is_open(Path::new(crate::RUNNER)) {
        println!("skipped 1: the user nobody cannot execute the program");
        return;
    }
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "escapes::no_attempt_escapes", "--nocapture"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/")
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            crate::skip("setpriv", "1: setpriv is not installed");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines()
        .filter(|line| line.contains("blocked") || line.contains("attempts as"))
        .for_each(|line| println!("{line}"));
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("attempts as user 65534"), "{said}");
}

/// Checks that at least 90 % of the attempts that are safe without a sandbox succeed there.
#[test]
fn attempts_succeed_without_a_sandbox() {
    if std::env::consts::ARCH != "x86_64" {
        println!("skipped 1: the system call numbers are for x86_64");
        return;
    }
    let attempts = all();
    let tried: Vec<_> = attempts.iter().filter(|attempt| attempt.about != About::Kernel).collect();
    let mut held = Vec::new();
    for attempt in &tried {
        if Fixture::new().attempt(attempt, None).is_none() {
            held.push(attempt.name.as_str());
        }
    }
    println!(
        "without a sandbox, {} of {} attempts succeeded; the others: {held:#?}",
        tried.len() - held.len(),
        tried.len()
    );
    assert!(held.len() * 10 <= tried.len(), "{held:#?}");
}
