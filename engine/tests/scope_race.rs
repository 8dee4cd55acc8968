//! A thread repeatedly swaps folders with links to a folder outside the root, while scopes stage
//! and read files. No file outside the root may be written or read.
//!
//! `RUNNER_TEST_SCALE` multiplies the number of swaps, which is a million at scale 1.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, missing_docs)]

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use runner_engine::scope::{Expect, Scope};
use runner_engine::time::boot_time;
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// The number of swaps at scale 1.
const SWAPS: f64 = 1_000_000.0;
/// The default scale.
const SCALE: f64 = 0.05;

#[test]
fn scope_never_follows_swapped_folders() {
    let began = boot_time();
    let scale = std::env::var("RUNNER_TEST_SCALE").map_or(SCALE, |text| text.parse().unwrap());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let wanted = (SWAPS * scale) as u64;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let outside = folder.path().join("outside");
    fs::create_dir_all(root.join("dreams/nested")).unwrap();
    fs::create_dir_all(root.join("staging")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "secret").unwrap();
    fs::write(root.join("dreams/nested/file"), "ours").unwrap();
    let link = root.join("dreams/swap");
    symlink(&outside, &link).unwrap();
    // The staging folder is also swapped, because the scope writes there.
    let stage_link = root.join("stage-swap");
    symlink(&outside, &stage_link).unwrap();
    let (done, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut staged, mut refused, mut read) = (0_u64, 0_u64, 0_u64);
    thread::scope(|threads| {
        threads.spawn(|| {
            while swaps.fetch_add(1, Ordering::Relaxed) < wanted {
                for (a, b) in
                    [(root.join("dreams/nested"), &link), (root.join("staging"), &stage_link)]
                {
                    renameat_with(CWD, &a, CWD, b, RenameFlags::EXCHANGE).unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut number = 0_u64;
        while !done.load(Ordering::Relaxed) {
            number += 1;
            let staging = format!("staging/{number}");
            let Ok(mut scope) = Scope::open(&root, &["dreams"], &staging) else {
                refused += 1;
                continue;
            };
            match scope.stage("dreams/nested/new", b"evil", Expect::Current) {
                Ok(_) => staged += 1,
                Err(_) => refused += 1,
            }
            if let Ok(bytes) = scope.read("dreams/nested/file", 100) {
                assert_eq!(bytes, b"ours", "a file outside the root was read");
                read += 1;
            }
        }
    });
    let outside: Vec<_> =
        fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(outside, ["file"], "a file was written outside the root");
    assert!(staged > 0 && refused > 0 && read > 0, "{staged} {refused} {read}");
    let took = (boot_time() - began).as_secs_f64();
    println!(
        "scope race: {} swaps of two folders, {staged} staged, {refused} refused, {read} read, 0 outside, {took:.1} s",
        swaps.load(Ordering::Relaxed) - 1
    );
}
