//! Tests that a scope refuses paths that escape it, limits the size of reads, checks expectations
//! and keeps file modes.

use std::fs;
use std::hint;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use tempfile::TempDir;

use super::*;
use crate::publish::MemoryLog;

const STAGING: &str = "dreams/.staging/RUN";
const ALLOWED: [&str; 2] = ["dreams", "rem/report.md"];

struct Yard {
    folder: TempDir,
}

impl Yard {
    /// Creates a project with a secret next to it.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let yard = Self { folder };
        let root = yard.root();
        for dir in ["dreams/nested", "dreams-evil", "other", "rem"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        fs::write(yard.secret(), "secret").unwrap();
        fs::write(root.join("other/file"), "other").unwrap();
        fs::write(root.join("dreams/old.md"), "old").unwrap();
        yard
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn secret(&self) -> PathBuf {
        self.folder.path().join("secret")
    }

    fn scope(&self) -> Scope {
        Scope::open(&self.root(), &ALLOWED, STAGING).unwrap()
    }

    /// Lists all entries beneath the folder with their types and contents.
    fn all(&self) -> Vec<String> {
        let mut all = Vec::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let kind = fs::symlink_metadata(&path).unwrap().file_type();
                let content = if kind.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
                all.push(format!("{} {kind:?} {content:?}", path.display()));
                if kind.is_dir() {
                    folders.push(path);
                }
            }
        }
        all.sort();
        all
    }
}

fn run() -> RunId {
    "00000000000000000000000001".parse().unwrap()
}

#[test]
fn escapes_are_refused_and_change_nothing() {
    let yard = Yard::new();
    let root = yard.root();
    let inside = |name: &str| root.join("dreams").join(name);
    symlink(yard.folder.path(), inside("up")).unwrap();
    symlink("..", inside("near")).unwrap();
    symlink(yard.secret(), inside("link.md")).unwrap();
    symlink("nowhere", inside("dangling.md")).unwrap();
    symlink("old.md", inside("sibling.md")).unwrap();
    symlink("/proc/self/root", inside("magic")).unwrap();
    symlink("loop-b", inside("loop-a")).unwrap();
    symlink("loop-a", inside("loop-b")).unwrap();
    symlink("nested", inside("alias")).unwrap();
    fs::hard_link(root.join("other/file"), inside("hard.md")).unwrap();
    mknodat(CWD, inside("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let null = rustix::fs::makedev(1, 3);
    let device = mknodat(CWD, inside("null"), FileType::CharacterDevice, Mode::RUSR, null);
    let _socket = UnixListener::bind(inside("socket")).unwrap();
    let before = yard.all();

    let mut escapes: Vec<String> = [
        // Invalid spellings.
        "",
        "/",
        ".",
        "..",
        "/etc/passwd",
        "../secret",
        "dreams/../../secret",
        "dreams/../other/x",
        "dreams/./x",
        "dreams//x",
        "dreams/",
        "dreams/x/",
        "dreams/x\0",
        "dreams/\0../x",
        "dreams/x\n",
        "dreams/\u{1b}[2J",
        "./dreams/x",
        "dreams/..",
        "dreams/nested/..",
        // Paths outside the prefix.
        "other/file",
        "dreams-evil/x",
        "dreamsx",
        "Dreams/x",
        "DREAMS/old.md",
        "dream",
        "rem/x",
        "rem/report.md.bak",
        "rem",
        "d\u{200d}reams/x",
        "ｄreams/x",
        "~/x",
        "~root/x",
        "$HOME/x",
        // Links in the path or as the target.
        "dreams/up/secret",
        "dreams/near/other/x",
        "dreams/near/../secret",
        "dreams/link.md",
        "dreams/dangling.md",
        "dreams/sibling.md",
        "dreams/magic/etc/passwd",
        "dreams/loop-a",
        "dreams/loop-a/x",
        "dreams/alias/x",
        "dreams/link.md/x",
        "/proc/self/root/etc/passwd",
        "proc/self/root/etc/passwd",
        "dreams/magic",
        // Entries that are not regular files with a single name.
        "dreams/hard.md",
        "dreams/fifo",
        "dreams/socket",
        "dreams/nested",
        "dreams",
        "dreams/old.md/x",
        "dreams/fifo/x",
        // Staging folders of this run and of other runs.
        STAGING,
        "dreams/.staging/RUN/0",
        "dreams/.staging/OTHER/0",
        "dreams/.staging",
    ]
    .map(String::from)
    .to_vec();
    escapes.push(format!("dreams/{}", "x".repeat(256)));
    escapes.push(format!("dreams/{}", "x/".repeat(3_000)));
    if device.is_ok() {
        escapes.push("dreams/null".to_owned());
    }
    let mut scope = yard.scope();
    for escape in &escapes {
        for expect in [Expect::Absent, Expect::Current, Expect::Digest(Digest::of(b"other"))] {
            let refused = scope.stage(escape, b"evil", expect).unwrap_err();
            assert!(!matches!(refused, ScopeError::Fs(_)), "{escape:?}: a disk error: {refused}");
        }
        scope.remove(escape, Digest::of(b"secret")).unwrap_err();
    }
    assert!(escapes.len() >= 25, "{}", escapes.len());
    assert_eq!(yard.all(), before);
}

#[test]
fn reads_are_bounded_and_follow_no_links() {
    let yard = Yard::new();
    symlink(yard.secret(), yard.root().join("dreams/link.md")).unwrap();
    symlink("..", yard.root().join("dreams/up")).unwrap();
    let scope = yard.scope();
    assert_eq!(scope.read("other/file", 5).unwrap(), b"other");
    assert!(matches!(scope.read("other/file", 4), Err(ScopeError::TooLong { limit: 4, .. })));
    for path in ["../secret", "/etc/passwd", "dreams/link.md", "dreams/up/other/file", "dreams"] {
        assert!(scope.read(path, 100).is_err(), "{path}");
    }
    assert!(scope.read("dreams/none", 9).unwrap_err().to_string().contains("dreams/none"));
}

#[test]
fn published_files_keep_their_mode() {
    let yard = Yard::new();
    let root = yard.root();
    let (old, script) = (root.join("dreams/old.md"), root.join("dreams/run.sh"));
    fs::write(&script, "v1").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).unwrap();
    let mut scope = yard.scope();
    let v2 = scope.stage("dreams/run.sh", b"v2", Expect::Digest(Digest::of(b"v1"))).unwrap();
    assert_eq!(v2, Digest::of(b"v2"));
    scope.stage("dreams/new/deep/a.md", b"a", Expect::Absent).unwrap();
    scope.stage("rem/report.md", b"r", Expect::Current).unwrap();
    scope.remove("dreams/old.md", Digest::of(b"old")).unwrap();
    assert_eq!(fs::read(&script).unwrap(), b"v1");

    let mut log = MemoryLog::new(Fence(1));
    let ready = scope.finish(run(), Fence(1), Outcome::Succeeded).unwrap();
    let published = ready.place(&mut log).unwrap();
    assert_eq!(published.entries, 4);
    assert!(published.leftover.is_none());
    assert_eq!(fs::read(&script).unwrap(), b"v2");
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(fs::read(root.join("dreams/new/deep/a.md")).unwrap(), b"a");
    assert_eq!(fs::read(root.join("rem/report.md")).unwrap(), b"r");
    assert!(!old.exists());
    assert!(!root.join(STAGING).exists());
}

#[test]
fn expectations_are_checked() {
    let yard = Yard::new();
    let mut scope = yard.scope();
    let wrong = scope.stage("dreams/old.md", b"x", Expect::Absent).unwrap_err();
    assert!(matches!(wrong, ScopeError::Unexpected { .. }), "{wrong}");
    assert!(wrong.to_string().contains("dreams/old.md contains content"), "{wrong}");
    scope.stage("dreams/none.md", b"x", Expect::Digest(Digest::of(b"x"))).unwrap_err();
    scope.remove("dreams/old.md", Digest::of(b"else")).unwrap_err();
    scope.stage("dreams/old.md", b"old", Expect::Current).unwrap();
    assert!(!yard.root().join(STAGING).exists(), "unchanged content is not staged");

    scope.stage("dreams/a", b"x", Expect::Absent).unwrap();
    for twice in ["dreams/a", "dreams/a/b"] {
        let error = scope.stage(twice, b"y", Expect::Current).unwrap_err();
        assert!(matches!(error, ScopeError::Twice { .. }), "{error}");
    }
    drop(scope);
    assert!(!yard.root().join("dreams/a").exists());
}

#[test]
fn a_target_changed_after_staging_is_kept() {
    let yard = Yard::new();
    let old = yard.root().join("dreams/old.md");
    let mut scope = yard.scope();
    scope.stage("dreams/first.md", b"1", Expect::Absent).unwrap();
    scope.stage("dreams/old.md", b"new", Expect::Current).unwrap();
    fs::write(&old, "edited").unwrap();
    let mut log = MemoryLog::new(Fence(1));
    let ready = scope.finish(run(), Fence(1), Outcome::Succeeded).unwrap();
    let error = ready.place(&mut log).unwrap_err();
    assert!(matches!(error, PublishError::Changed(_)), "{error}");
    assert_eq!(fs::read(&old).unwrap(), b"edited");
    assert!(!yard.root().join("dreams/first.md").exists());
    assert!(!yard.root().join(STAGING).exists());
    assert_eq!(log.manifest(&run()).unwrap(), None);
}

#[test]
fn swapped_folder_cannot_redirect_writes() {
    let yard = Yard::new();
    let root = yard.root();
    let outside = yard.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let (nested, link) = (root.join("dreams/nested"), root.join("dreams/swap"));
    symlink(&outside, &link).unwrap();
    let done = AtomicBool::new(false);
    let (mut published, mut refused) = (0, 0);
    thread::scope(|threads| {
        threads.spawn(|| {
            for turn in 0_u32.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                // The name is usually a folder and sometimes a link, for a different length of time
                // in each iteration.
                for _ in 0..2 {
                    renameat_with(CWD, &nested, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
                for _ in 0..turn.wrapping_mul(7919) % 40_000 {
                    hint::spin_loop();
                }
            }
        });
        // The test should produce both results several times, but a busy machine may produce only
        // one of them.
        let mut attempts = 0..2_000;
        while (published < 20 || refused < 20)
            && let Some(number) = attempts.next()
        {
            let staging = format!("dreams/.staging/{number}");
            let target = format!("dreams/nested/{number}");
            let mut scope = Scope::open(&root, &ALLOWED, &staging).unwrap();
            let result = scope
                .stage(&target, b"evil", Expect::Current)
                .map_err(|error| error.to_string())
                .and_then(|_| {
                    scope
                        .finish(run(), Fence(1), Outcome::Succeeded)
                        .map_err(|error| error.to_string())
                })
                .and_then(|ready| {
                    let mut log = MemoryLog::new(Fence(1));
                    ready.place(&mut log).map_err(|error| error.to_string())
                });
            match result {
                Ok(_) => published += 1,
                Err(_) => refused += 1,
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        fs::read_dir(&outside).unwrap().count(),
        0,
        "{published} published, {refused} refused"
    );
}
