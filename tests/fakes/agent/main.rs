//! A scripted agent program that misbehaves.
//!
//! Tests start it through a symbolic link named `DIALECT--BEHAVIOUR`. The dialect selects the
//! format of its streams (`claude`, `codex`, or `command` for the executor contract), and the
//! behaviour selects its actions. `--list` prints all behaviours. `$HOME/targets` lists the paths
//! that the agent tries to reach, one per line. `CANARY_KEY` contains its secret. Processes that it
//! leaves behind are named `leaf--WHAT`.
//!
//! Each process ends after at most a minute, even if a test does not kill it.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::exit,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    missing_docs
)]

mod behaviours;
mod dialect;
mod leaf;
mod obey;

use std::path::Path;

use dialect::Conversation;

fn main() {
    let mut args = std::env::args();
    let name = args.next().unwrap_or_default();
    let args: Vec<String> = args.collect();
    let name = Path::new(&name)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    if args.first().is_some_and(|first| first == "--list") {
        for (name, what, _) in behaviours::ALL {
            println!("{name}\t{what}");
        }
        return;
    }
    let Some((kind, behaviour)) = name.split_once("--") else {
        eprintln!("start this program as DIALECT--BEHAVIOUR; --list prints the behaviours");
        std::process::exit(2);
    };
    if kind == "leaf" {
        leaf::live(behaviour, &args);
        return;
    }
    if args.iter().any(|arg| arg == "--version") {
        println!("{}", dialect::version(kind, behaviour));
        return;
    }
    let Some((.., act)) = behaviours::ALL.iter().find(|(name, ..)| *name == behaviour) else {
        eprintln!("no behaviour {behaviour:?}");
        std::process::exit(2);
    };
    leaf::end_after_a_minute();
    act(&mut Conversation::new(kind, &args));
}
