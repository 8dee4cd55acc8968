//! Tests which hidden paths a child can read, which sockets and hosts it can reach, and that it
//! cannot set setuid bits.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use runner_engine::process::{Cancel, Ended, ExitStatus, OutputVerdict, SpawnError, run};
use runner_engine::sandbox::{Sandbox, SandboxMechanism, bwrap};

use super::{means, shell, skip};

fn start(script: &str, cwd: &Path, sandbox: Sandbox) -> Result<Ended, SpawnError> {
    let spec = shell(script, cwd, sandbox);
    run(&spec, &Cancel::new().unwrap(), &mut |_, _| OutputVerdict::Continue)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Returns the kinds of sandbox with a mount view.
fn views() -> Vec<SandboxMechanism> {
    means().into_iter().filter(|it| *it != SandboxMechanism::Landlock).collect()
}

#[test]
fn only_listed_hidden_paths_are_shown() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let home = fs::canonicalize(folder.path()).unwrap();
    for path in ["work", ".aws/sso", ".ssh", ".config/runner", ".config/other"] {
        fs::create_dir_all(home.join(path)).unwrap();
    }
    for path in [
        ".aws/config",
        ".aws/credentials",
        ".aws/sso/token",
        ".ssh/id",
        ".netrc",
        ".config/runner/credentials.env",
        ".config/other/free",
        "work/in-a-project",
    ] {
        fs::write(home.join(path), format!("content of {path}\n")).unwrap();
    }
    let at = |path: &str| home.join(path);
    for means in means() {
        let sandbox = Sandbox {
            means,
            write: vec![at("work"), at(".config/other")],
            hide: [".aws", ".ssh", ".netrc", ".config/runner", "work/in-a-project"].map(at).into(),
            show: vec![at(".aws/config")],
            ..Sandbox::default()
        };
        let script = format!(
            "cd {0}; cat .aws/config .aws/credentials .aws/sso/token .ssh/id .netrc \
             .config/runner/credentials.env .config/other/free work/in-a-project; \
             cat /proc/self/root{0}/.ssh/id; ln .netrc work/x; cat work/x; mv .aws work/y; cat work/y/sso/token; \
             echo evil > .aws/config; echo evil > .ssh/new; echo evil > .netrc",
            home.display()
        );
        let ended = start(&script, &home, sandbox).unwrap();
        let seen = text(&ended.stdout);
        assert_eq!(seen, "content of .aws/config\ncontent of .config/other/free", "{means:?}");
        assert_eq!(fs::read_to_string(at(".aws/config")).unwrap(), "content of .aws/config\n");
        assert!(!at(".ssh/new").exists(), "{means:?}");
        assert_eq!(fs::read_to_string(at(".netrc")).unwrap(), "content of .netrc\n");
    }
}

#[test]
fn no_socket_of_the_host_is_reached() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let home = fs::canonicalize(folder.path()).unwrap();
    let places = [
        ".gnupg/S.gpg-agent",
        ".docker/run/docker.sock",
        "op/agent.sock",
        "agent with spaces",
        ".config/app/s",
        "work/dev.sock",
        "work/deep/er/dev.sock",
    ];
    let listeners = places.map(|place| {
        let path = home.join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    });
    // Programs bind a relative name if the path would be too long.
    let mut relative = Command::new("perl")
        .args(["-MSocket", "-e", "socket(S, 1, 1, 0); bind(S, pack_sockaddr_un('rel')); listen(S, 9); $| = 1; print 'x'; alarm 600; accept(C, S) and exit 3"])
        .current_dir(home.join("op"))
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    relative.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let script = "for place in .gnupg/S.gpg-agent .docker/run/docker.sock op/agent.sock 'agent with spaces' \
        .config/app/s work/dev.sock work/deep/er/dev.sock op/rel; do for type in 1 2 5; do \
        perl -MSocket -e 'socket(S, 1, $ARGV[0], 0); connect(S, pack_sockaddr_un($ARGV[1])) and print \"THROUGH $ARGV[1]\\n\"' \
        $type \"$HOME/$place\"; done; done; \
        perl -MSocket -e 'socket(S, 1, 1, 0); bind(S, pack_sockaddr_un(shift)) and listen(S, 1) and print \"own\\n\"' $TMPDIR/own";
    for means in means() {
        let sandbox = Sandbox {
            means,
            write: vec![home.join("work")],
            network: true,
            temp: Some(home.join("tmp")),
            ..Sandbox::default()
        };
        let mut spec = shell(script, &home, sandbox);
        spec.env.insert("HOME".to_owned(), home.display().to_string());
        let ended =
            run(&spec, &Cancel::new().unwrap(), &mut |_, _| OutputVerdict::Continue).unwrap();
        // With a mount view, a program may use its own sockets.
        let expected = if means == SandboxMechanism::Landlock { "" } else { "own" };
        assert_eq!(text(&ended.stdout), expected, "{means:?}");
        for (listener, place) in listeners.iter().zip(places) {
            let came = listener.accept();
            assert!(came.is_err_and(|it| it.kind() == ErrorKind::WouldBlock), "{means:?}: {place}");
        }
        assert!(relative.try_wait().unwrap().is_none(), "{means:?}: the relative socket");
        let _ = fs::remove_file(home.join("tmp/own"));
    }
    relative.kill().unwrap();
    relative.wait().unwrap();
}

#[test]
fn sockets_that_disappear_do_not_prevent_a_start() {
    if bwrap::find().is_none() {
        return skip("bwrap", "sockets that disappear: bubblewrap is not installed");
    }
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let home = fs::canonicalize(folder.path()).unwrap();
    fs::create_dir(home.join("work")).unwrap();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let folder = tempfile::tempdir_in("/var/tmp").unwrap();
                let listener = UnixListener::bind(folder.path().join("brief")).unwrap();
                thread::yield_now();
                drop((folder, listener));
            }
        });
        let begin = || {
            let sandbox = Sandbox {
                means: SandboxMechanism::Bubblewrap,
                write: vec![home.join("work")],
                temp: Some(home.join("tmp")),
                ..Sandbox::default()
            };
            start("echo here", &home, sandbox).map(|ended| text(&ended.stdout))
        };
        let results: Vec<_> = (0..30).map(|_| begin()).collect();
        ended.store(true, Ordering::Relaxed);
        for result in results {
            assert_eq!(result.unwrap(), "here");
        }
    });
}

/// A client of the proxy, in Perl, which every Debian system has. It prints the status of a tunnel
/// and the data that it receives.
const CLIENT: &str = r#"my ($host) = @ARGV; my ($p) = $ENV{HTTPS_PROXY} =~ /:(\d+)$/;
    socket(S, 2, 1, 0); connect(S, pack_sockaddr_in($p, inet_aton("127.0.0.1"))) or die "no proxy";
    syswrite(S, "CONNECT $host HTTP/1.1\r\nHost: $host\r\n\r\n"); sysread(S, my $head, 4096);
    print substr($head, 9, 3), "\n"; exit if $head !~ / 200 /;
    syswrite(S, "ping\n"); while (sysread(S, my $more, 4096)) { print $more }"#;

#[test]
fn only_listed_hosts_are_reached() {
    let folder = tempfile::tempdir().unwrap();
    let (listed, other) = ("127.0.0.1:0", "127.0.0.1:0");
    let (listed, other) = (TcpListener::bind(listed).unwrap(), TcpListener::bind(other).unwrap());
    other.set_nonblocking(true).unwrap();
    let [port, closed] = [&listed, &other].map(|it| it.local_addr().unwrap().port());
    let kinds = views();
    let turns = kinds.len();
    let server = thread::spawn(move || {
        for _ in 0..turns {
            let (mut stream, _) = listed.accept().unwrap();
            let mut line = [0; 5];
            stream.read_exact(&mut line).unwrap();
            stream.write_all(b"pong\n").unwrap();
        }
    });
    let hosts = vec![format!("127.0.0.1:{port}")];
    for means in kinds {
        let sandbox = Sandbox { means, hosts: hosts.clone(), ..Sandbox::default() };
        let direct = "socket(S, 2, 1, 0); connect(S, pack_sockaddr_in($ARGV[0], inet_aton('127.0.0.1'))) and print 'THROUGH'";
        let script = format!(
            "perl -MSocket -e '{CLIENT}' 127.0.0.1:{port}; perl -MSocket -e '{CLIENT}' 127.0.0.1:{closed}; \
             perl -MSocket -e '{CLIENT}' evil.example:443; \
             for p in {port} {closed}; do perl -MSocket -e \"{}\" $p; done",
            direct.replace('$', "\\$")
        );
        let ended = start(&script, folder.path(), sandbox).unwrap();
        let (out, err) = (text(&ended.stdout), text(&ended.stderr));
        assert_eq!(out, "200\npong\n403\n403", "{means:?}: {err}");
        let applied = ended.containment.unwrap();
        let shown = applied.to_string();
        assert!(shown.contains(&format!("network only 127.0.0.1:{port}; ")), "{shown}");
        assert!(shown.contains(&format!("requested 127.0.0.1:{port} 1×")), "{shown}");
        assert!(shown.contains("evil.example 1×"), "{shown}");
        assert!(!applied.network && applied.requested.len() == 3, "{applied:?}");
        assert!(other.accept().is_err_and(|it| it.kind() == ErrorKind::WouldBlock));
    }
    server.join().unwrap();
    let landlock = Sandbox { means: SandboxMechanism::Landlock, hosts, ..Sandbox::default() };
    let refused = start("echo started", folder.path(), landlock).unwrap_err().to_string();
    assert!(refused.contains("needs bubblewrap"), "{refused}");
    if bwrap::find().is_none() {
        skip("bwrap", "the proxy: bubblewrap is not installed");
    }
}

#[test]
fn setuid_bits_are_refused() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = fs::canonicalize(folder.path()).unwrap();
    // The system call numbers are for x86_64.
    let script = "cp /bin/true f; chmod u+s f; chmod 6755 f; chmod 4755 .; \
        perl -e 'syscall(90, \"f\", 04755); open(F, \"<\", \"f\"); syscall(91, fileno(F), 04755); \
            syscall(268, -100, \"f\", 04755); syscall(452, -100, \"f\", 04755, 0); \
            syscall(2, \"g\", 0101, 04755); syscall(257, -100, \"h\", 0101, 04755); syscall(85, \"i\", 04755); \
            syscall(133, \"j\", 0104755, 0); syscall(259, -100, \"k\", 0104755, 0); \
            syscall(437, -100, \"l\", pack(\"QQQ\", 0101, 04755, 0), 24)'; \
        chmod 755 f && chmod g+s . && install -m 700 f m && mkdir -m 755 d && touch n && echo works";
    for means in means() {
        let work = root.join(format!("{means:?}"));
        fs::create_dir(&work).unwrap();
        let sandbox = Sandbox { means, write: vec![work.clone()], ..Sandbox::default() };
        let ended = start(script, &work, sandbox).unwrap();
        assert_eq!(text(&ended.stdout), "works", "{means:?}: {}", text(&ended.stderr));
        assert_eq!(ended.status, ExitStatus::Exit(0));
        let mut names = 0;
        for entry in fs::read_dir(&work).unwrap().flatten() {
            use std::os::unix::fs::MetadataExt as _;
            let mode = entry.metadata().unwrap().mode();
            assert_eq!(mode & 0o4000, 0, "{means:?}: {:?} {mode:o}", entry.file_name());
            names += 1;
        }
        assert!(names >= 4, "{names}");
    }
}
