//! Functions that start the hostile agent in a fixture, and that compare the fixture before and
//! after.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use runner_engine::sandbox::bwrap;

use crate::fixture::Fixture;

/// The agent's secret, which must not appear in any file or message.
pub const CANARY: &str = "canary-7f3kQ9zLw2-mX8vB4nT6";

pub fn agent() -> PathBuf {
    let runner = Path::new(env!("CARGO_BIN_EXE_runner"));
    let agent = runner.with_file_name("examples").join("hostile-agent");
    assert!(
        agent.exists(),
        "{} is not built: cargo build --example hostile-agent",
        agent.display()
    );
    agent
}

/// Creates a link to the agent whose name selects its dialect and its behaviour.
pub fn link(fixture: &Fixture, dialect: &str, behaviour: &str) -> String {
    let folder = fixture.root().join("bin");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{dialect}--{behaviour}"));
    if !path.exists() {
        symlink(agent(), &path).unwrap();
    }
    path.display().to_string()
}

/// Returns the path, mode, owner and a hash of the content of everything in the fixture except the
/// paths `but`. The mode is 0 if bubblewrap, which protects it, is not installed.
pub fn picture(fixture: &Fixture, but: &[&str]) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let modes = bwrap::find().is_some();
    let mut folders = vec![fixture.root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(fixture.root()).unwrap().display().to_string();
            if but.iter().any(|but| name == *but || name.starts_with(&format!("{but}/"))) {
                continue;
            }
            let Ok(meta) = path.symlink_metadata() else {
                continue;
            };
            let what = if meta.is_dir() {
                folders.push(path);
                "folder".to_owned()
            } else if meta.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else {
                let bytes = fs::read(&path).unwrap_or_default();
                format!("{} {:?}", bytes.len(), digest(&bytes))
            };
            // Landlock does not restrict mode changes.
            let mode = if modes { meta.mode() } else { 0 };
            seen.insert(name, format!("{mode:o} {} {what}", meta.uid()));
        }
    }
    seen
}

fn digest(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

pub fn differs(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, what) in before {
        match after.get(name) {
            None => found.push(format!("{name} is gone")),
            Some(now) if now != what => found.push(format!("{name}: {what} -> {now}")),
            Some(_) => {}
        }
    }
    found.extend(
        after
            .keys()
            .filter(|name| !before.contains_key(*name))
            .map(|name| format!("{name} is new")),
    );
    found
}

/// Returns the files smaller than 256 MiB that contain `needle`.
pub fn holding(fixture: &Fixture, needle: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![fixture.root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let meta = path.symlink_metadata().unwrap();
            if meta.is_dir() {
                folders.push(path);
            } else if meta.is_file() && meta.len() < 256 << 20 {
                let bytes = fs::read(&path).unwrap_or_default();
                if bytes.windows(needle.len()).any(|window| window == needle.as_bytes()) {
                    found.push(path.display().to_string());
                }
            }
        }
    }
    found
}
