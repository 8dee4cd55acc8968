//! The processes that an agent leaves behind. Each ends within a minute.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process, setsid};

/// Maximum lifetime of each process, even if a test does not kill it.
const LIFE: Duration = Duration::from_secs(60);

/// Starts a thread that ends this process after [`LIFE`].
pub fn end_after_a_minute() {
    thread::spawn(|| {
        pass(LIFE);
        let _ = kill_process(getpid(), Signal::KILL);
    });
}

pub fn pass(time: Duration) {
    thread::park_timeout(time);
}

/// Does nothing until the process is killed.
pub fn forever() {
    loop {
        pass(LIFE);
    }
}

/// Starts another copy of this program as `leaf--WHAT`.
pub fn start(what: &str, args: &[&str], stdout: Stdio) -> Child {
    Command::new("/proc/self/exe")
        .arg0(format!("leaf--{what}"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Runs a process that an agent leaves behind.
pub fn live(what: &str, args: &[String]) {
    end_after_a_minute();
    match what {
        // Keeps all inherited descriptors open.
        "hold" => forever(),
        "apart" => {
            let _ = setsid();
            // This line lets the parent process continue.
            println!("apart");
            let _ = std::io::stdout().flush();
            forever();
        }
        "daemon" => {
            let _ = setsid();
            drop(start("hold", &[], Stdio::null()));
        }
        // Each process starts the next one and exits, so the PID keeps changing.
        "relay" => {
            let left: u32 = args[0].parse().unwrap();
            pass(Duration::from_millis(2));
            if left > 0 {
                drop(start("relay", &[&(left - 1).to_string()], Stdio::null()));
            }
        }
        // Continues to write to a file that its parent has delivered as finished.
        "write" => loop {
            let file = fs::OpenOptions::new().append(true).create(true).open(&args[0]);
            if let Ok(mut file) = file {
                let _ = file.write_all(b"later\n");
            }
            pass(Duration::from_millis(1));
        },
        _ => {
            let _ = std::io::stdin().read_to_string(&mut String::new());
        }
    }
}
