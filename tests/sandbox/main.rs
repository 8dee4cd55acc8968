//! Tests the sandbox from outside, with the attempts of a malicious program.
//!
//! Every child starts through the built program's `runner __launch`, as in a run.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test program"
)]

mod attempts;
mod escapes;
mod kernel_attempts;
mod launch;
#[path = "../cli/open.rs"]
mod open;
mod reach;
mod resources;
mod ways;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use runner_engine::process::{ChildSandbox, ChildSpec, Limits, Stdin};
use runner_engine::sandbox::{Sandbox, SandboxMechanism, SandboxedStart, bwrap};

/// The built program, which contains the launcher.
pub const RUNNER: &str = env!("CARGO_BIN_EXE_runner");

/// Reports a check that was skipped because `program` is missing, and appends it to the file that
/// `RUNNER_SKIPS` names (`tests/skips.sh` describes that file).
pub fn skip(program: &str, reason: &str) {
    println!("skipped {reason}");
    if let Some(file) = std::env::var_os("RUNNER_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        file.write_all(format!("{program}\t{reason}\n").as_bytes()).unwrap();
    }
}

pub fn means() -> Vec<SandboxMechanism> {
    let mut all = vec![SandboxMechanism::Landlock];
    if bwrap::find().is_some() {
        all.extend([SandboxMechanism::Bubblewrap, SandboxMechanism::All]);
    } else {
        skip("bwrap", "2 of 3 kinds of sandbox: bubblewrap is not installed");
    }
    all
}

/// Returns the specification of a sandboxed `sh -c`.
pub fn shell(script: &str, cwd: &Path, sandbox: Sandbox) -> ChildSpec {
    ChildSpec {
        program: PathBuf::from("/bin/sh"),
        args: vec!["-c".into(), script.into()],
        cwd: cwd.to_owned(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/sbin:/usr/bin:/bin".to_owned())]),
        stdin: Stdin::Null,
        limits: Limits { total: Some(std::time::Duration::from_secs(60)), ..Limits::default() },
        marker: format!("sandbox-{}", ulid()),
        sandbox: ChildSandbox::Launched(SandboxedStart {
            launcher: PathBuf::from(RUNNER),
            sandbox,
        }),
    }
}

/// Returns an id that is unique among the test processes of this host.
pub fn ulid() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::SeqCst);
    format!("{}-{next}", std::process::id())
}
