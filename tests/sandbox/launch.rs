//! Tests that the launcher passes on streams, status and environment, and restricts writes.

use std::fs;

use runner_engine::process::{
    Cancel, Ended, ExitStatus, OutputVerdict, Reason, SpawnError, Stdin, run,
};
use runner_engine::sandbox::{Sandbox, SandboxLevel, SandboxMechanism};

use super::{means, shell};

fn sandbox(means: SandboxMechanism) -> Sandbox {
    Sandbox { means, network: true, ..Sandbox::default() }
}

fn end(spec: &runner_engine::process::ChildSpec) -> Result<Ended, SpawnError> {
    run(spec, &Cancel::new().unwrap(), &mut |_, _| OutputVerdict::Continue)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

#[test]
fn launcher_passes_streams_status_and_environment() {
    let folder = tempfile::tempdir().unwrap();
    let mut off = sandbox(SandboxMechanism::All);
    off.off = true;
    for sandbox in means().into_iter().map(sandbox).chain([off]) {
        let mut spec = shell("cat; echo err >&2; env; exit 7", folder.path(), sandbox.clone());
        spec.stdin = Stdin::Bytes(vec![b'x'; 300_000]);
        let ended = end(&spec).unwrap();
        assert_eq!(ended.status, ExitStatus::Exit(7), "{sandbox:?} {}", text(&ended.stderr));
        assert_eq!(ended.reason, Reason::Exited);
        assert!(ended.stdout.starts_with(&[b'x'; 300_000]));
        assert_eq!(text(&ended.stderr), "err", "{sandbox:?}");
        let mut names: Vec<String> = text(&ended.stdout[300_000..])
            .lines()
            .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
            .filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str()))
            .collect();
        names.sort();
        assert_eq!(names, ["PATH", "RUNNER_RUN"], "{sandbox:?}");
        let containment = ended.containment.expect("the launcher reports no sandbox");
        println!("{containment}");
        assert_eq!(containment.sandbox == SandboxLevel::Off, sandbox.off);
        for (script, status) in [
            ("kill -9 $$", ExitStatus::Signal(9)),
            ("kill -15 $$", ExitStatus::Signal(15)),
            ("exit 143", ExitStatus::Exit(143)),
            ("exit 255", ExitStatus::Exit(255)),
        ] {
            let ended = end(&shell(script, folder.path(), sandbox.clone())).unwrap();
            assert_eq!(ended.status, status, "{script} {sandbox:?}");
        }
    }
}

#[test]
fn only_listed_paths_are_writable() {
    let folder = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(folder.path()).unwrap();
    for means in means() {
        let inside = root.join(format!("in-{means:?}"));
        fs::create_dir(&inside).unwrap();
        let mut sandbox = sandbox(means);
        sandbox.write = vec![inside.clone()];
        let script = format!(
            "echo a > {0}/in-{means:?}/a; echo b > {0}/b; cat /etc/passwd | head -1",
            root.display()
        );
        let ended = end(&shell(&script, &root, sandbox)).unwrap();
        assert!(inside.join("a").exists(), "{means:?}: {}", text(&ended.stderr));
        assert!(!root.join("b").exists(), "{means:?}");
        assert!(text(&ended.stdout).starts_with("root:"), "{means:?}");
    }
}
