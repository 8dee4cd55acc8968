//! Processes that an agent leaves behind, and the end that everything here has.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process, setsid};

/// The longest that any of these processes lives, whatever becomes of the test.
const LIFE: Duration = Duration::from_secs(60);

/// Ends this process after [`LIFE`], from a thread of its own.
pub fn end_after_a_minute() {
    thread::spawn(|| {
        pass(LIFE);
        let _ = kill_process(getpid(), Signal::KILL);
    });
}

/// Lets time pass: what is played here is a program that does nothing for so long.
pub fn pass(time: Duration) {
    thread::park_timeout(time);
}

/// Does nothing until it is ended.
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
        // Keeps whatever it inherited open.
        "hold" => forever(),
        "apart" => {
            let _ = setsid();
            // This line lets the process that started this one go on.
            println!("apart");
            let _ = std::io::stdout().flush();
            forever();
        }
        "daemon" => {
            let _ = setsid();
            drop(start("hold", &[], Stdio::null()));
        }
        // One dies, the next takes over: never two in a row with one number.
        "relay" => {
            let left: u32 = args[0].parse().unwrap();
            pass(Duration::from_millis(2));
            if left > 0 {
                drop(start("relay", &[&(left - 1).to_string()], Stdio::null()));
            }
        }
        // Goes on writing into a file that its parent has handed over as finished.
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
