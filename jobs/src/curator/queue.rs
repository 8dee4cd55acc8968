//! The worker's folder: `queue/ processing/ done/ failed/ logs/ events/`.
//!
//! Many consumers may work on one folder. A claim is a rename, made under a lock that is held for
//! that moment only, after the start was noted (`logs/hour.jsonl`) and the owner written beside
//! (`processing/ID.owner`). So the hourly cap holds over restarts and consumers: a start that was
//! noted and not used costs one place, never one too many. Must never follow a link out of the folder.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use runner_engine::digest::Digest;
use runner_engine::files::{beneath, write_atomic};
use runner_engine::owner::Owner;
use runner_engine::placement::RelPath;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::job::{JobFile, Kind, LARGEST, Source};
use super::{CuratorSpec, Product};

/// Its folders.
pub const FOLDERS: [&str; 8] = [
    "queue",
    "processing",
    "done",
    "failed",
    "logs",
    "logs/pending-log-entries",
    "events",
    "findings",
];
/// A file that is no JSON may still be written; so young it is left alone.
const YOUNG: SignedDuration = SignedDuration::from_secs(10);
/// An owner on another host is believed for so long.
const ELSEWHERE: SignedDuration = SignedDuration::from_hours(1);
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// A list of the queue is made again after so many claims.
const LIST: usize = 64;

/// A worker's folder.
#[derive(Clone, Debug)]
pub struct Worker {
    folder: PathBuf,
    below: String,
}

/// How many files are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Depths {
    /// Waiting.
    pub queue: u64,
    /// At work.
    pub processing: u64,
    /// Over.
    pub done: u64,
    /// Over, with a reason.
    pub failed: u64,
}

/// A file that was moved without being worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Its name.
    pub name: String,
    /// `queue`, `failed`, `done`.
    pub to: &'static str,
    /// Why.
    pub why: String,
}

/// What a look for work came to.
#[derive(Debug)]
pub struct Claim {
    /// What was moved on the way.
    pub moved: Vec<Moved>,
    /// What there is to do.
    pub found: Found,
}

/// What there is to do.
#[derive(Debug)]
pub enum Found {
    /// This one, which is ours now.
    Claimed(Box<Claimed>),
    /// Nothing.
    Empty,
    /// Something, and not before this moment.
    Capped {
        /// The moment.
        until: Timestamp,
    },
}

/// A job that is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The job.
    pub job: JobFile,
    /// What its file in `processing/` holds.
    pub digest: Digest,
}

impl Claimed {
    /// What `done/ID.json` holds: the job and what came of it.
    pub fn record(&self, product: &Product, now: Timestamp) -> Vec<u8> {
        let mut value = serde_json::to_value(&self.job).expect("a job has string keys only");
        let artifacts: Vec<&str> = product
            .artifacts
            .iter()
            .map(|(path, _)| path.as_str())
            .collect();
        value["result"] = json!({
            "at": now,
            "headline": product.headline,
            "artifacts": artifacts,
            "without": product.without,
        });
        let mut text = serde_json::to_vec_pretty(&value).expect("string keys only");
        text.push(b'\n');
        text
    }
}

/// Who has claimed a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Holder {
    #[serde(flatten)]
    owner: Owner,
    host: String,
    since: Timestamp,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Start {
    at: Timestamp,
    id: String,
}

/// What was begun lately.
#[derive(Debug, Default)]
struct Starts {
    list: Vec<Start>,
    /// Lines that count no more.
    over: usize,
    /// Some count from now: that must be kept, or they would count from now for ever.
    odd: bool,
}

impl Worker {
    /// The folder `dir` of the project at `root`; it need not be there.
    ///
    /// # Errors
    /// Why it cannot be one, in words.
    pub fn of(root: &Path, dir: &str) -> Result<Self, String> {
        if is_windows(dir) {
            return Err(format!(
                "[curator] worker_dir {dir:?} is a path of Windows, which this system does not have"
            ));
        }
        let path = RelPath::new(dir).map_err(|error| format!("[curator] worker_dir: {error}"))?;
        let folder = beneath(root, Path::new(path.as_str())).map_err(|error| error.to_string())?;
        Ok(Self {
            folder,
            below: dir.to_owned(),
        })
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a job's file below the project's root.
    pub fn below(&self, part: &str, id: &str) -> String {
        format!("{}/{part}/{id}.json", self.below)
    }

    /// A path in it.
    pub fn path(&self, part: &str) -> PathBuf {
        self.folder.join(part)
    }

    fn file(&self, part: &str, name: &str) -> PathBuf {
        self.folder.join(part).join(name)
    }

    /// Makes what is not there.
    ///
    /// # Errors
    /// The disk refused, or a part of it is a link.
    pub fn make(&self) -> io::Result<()> {
        for part in FOLDERS {
            let path = beneath(&self.folder, Path::new(part))?;
            fs::create_dir_all(path)?;
        }
        Ok(())
    }

    /// Holds the folder for a moment.
    ///
    /// # Errors
    /// The lock's file cannot be opened.
    pub fn lock(&self) -> io::Result<File> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0))
            .open(self.path(".lock"))?;
        file.lock()?;
        Ok(file)
    }

    /// How many files are where.
    pub fn depths(&self) -> Depths {
        let count = |part: &str| names(&self.path(part)).map_or(0, |names| names.len() as u64);
        Depths {
            queue: count("queue"),
            processing: count("processing"),
            done: count("done"),
            failed: count("failed"),
        }
    }

    /// Puts a job into the queue.
    ///
    /// # Errors
    /// The disk refused.
    pub fn enqueue(
        &self,
        kind: Kind,
        source: Option<Source>,
        priority: i32,
        now: Timestamp,
    ) -> io::Result<JobFile> {
        self.make()?;
        let hex = Digest::of(ulid::Ulid::new().to_string().as_bytes()).short();
        let mut job = JobFile::new(kind, source, &hex[..8], now);
        job.priority = priority;
        let path = self.file("queue", &format!("{}.json", job.id));
        write_atomic(&path, &job.text(), 0o644).map_err(|error| error.source)?;
        Ok(job)
    }

    /// How many jobs were begun in the last 60 minutes.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn started_within_hour(&self, now: Timestamp) -> io::Result<u32> {
        Ok(u32::try_from(self.starts(now)?.list.len()).unwrap_or(u32::MAX))
    }

    /// The starts of the last hour. One that lies ahead, since the clock was set back, counts from now.
    fn starts(&self, now: Timestamp) -> io::Result<Starts> {
        let mut starts = Starts::default();
        let text = match fs::read(self.path("logs/hour.jsonl")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(starts),
            Err(error) => return Err(error),
        };
        for line in text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            // A line that cannot be read was a start.
            let read = serde_json::from_slice::<Start>(line).ok();
            let mut start = read.unwrap_or_else(|| {
                starts.odd = true;
                Start {
                    at: now,
                    id: String::new(),
                }
            });
            starts.odd |= start.at > now;
            start.at = start.at.min(now);
            if now.duration_since(start.at) < HOUR {
                starts.list.push(start);
            } else {
                starts.over += 1;
            }
        }
        Ok(starts)
    }

    /// Gives a claimed file back: `why` when that was an attempt.
    ///
    /// # Errors
    /// The disk refused.
    pub fn put_back(&self, claimed: &Claimed, why: Option<&str>) -> io::Result<()> {
        let mut job = claimed.job.clone();
        job.attempts += u32::from(why.is_some());
        job.last_error = why.map(str::to_owned).or(job.last_error);
        let _held = self.lock()?;
        self.return_as(&job)
    }

    /// First there, then gone here: whoever dies in between leaves two files of one id, of which
    /// [`Worker::recover`] removes the one that nobody works on.
    fn return_as(&self, job: &JobFile) -> io::Result<()> {
        let name = format!("{}.json", job.id);
        write_atomic(&self.file("queue", &name), &job.text(), 0o644).map_err(|it| it.source)?;
        remove(&self.file("processing", &name))?;
        remove(&self.file("processing", &format!("{}.owner", job.id)))
    }

    /// Puts a claimed file where the failed ones are.
    ///
    /// # Errors
    /// The disk refused.
    pub fn fail(&self, claimed: &Claimed, why: &str, now: Timestamp) -> io::Result<()> {
        let _held = self.lock()?;
        self.reject("processing", &format!("{}.json", claimed.job.id), why, now)?;
        remove(&self.file("processing", &format!("{}.owner", claimed.job.id)))
    }

    /// Moves a file to the failed ones; the reason is there first.
    fn reject(&self, from: &str, name: &str, why: &str, now: Timestamp) -> io::Result<()> {
        let stem = name.strip_suffix(".json").unwrap_or(name);
        let reason = self.file("failed", &format!("{stem}.reason.txt"));
        write_atomic(&reason, format!("{now} {why}\n").as_bytes(), 0o644)
            .map_err(|it| it.source)?;
        let to = self.file("failed", name);
        if to.is_dir() {
            return Err(io::Error::other(format!("{} is a folder", to.display())));
        }
        match fs::rename(self.file(from, name), to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Settles what dead consumers left; to be called under the lock.
    fn recover(&self, now: Timestamp) -> io::Result<Vec<Moved>> {
        let mut moved = Vec::new();
        for name in names(&self.path("processing"))? {
            let id = name.strip_suffix(".json").unwrap_or(&name);
            let owner = self.file("processing", &format!("{id}.owner"));
            if self.is_held(&owner, now) {
                continue;
            }
            let here = self.file("processing", &name);
            let mut tell = |to, why: &str| {
                moved.push(Moved {
                    name: id.to_owned(),
                    to,
                    why: why.to_owned(),
                });
            };
            if self.file("done", &name).exists() || self.file("queue", &name).exists() {
                // It was done, or put back, when its owner died.
                remove(&here)?;
            } else {
                let bytes = read(&here)?.unwrap_or_default();
                match JobFile::read(&name, &bytes, &Kind::ALL) {
                    Ok(mut job) if job.returned == 0 => {
                        job.returned = 1;
                        self.return_as(&job)?;
                        tell("queue", "the process that worked on it died");
                    }
                    Ok(_) => {
                        let why = "the process that worked on it died, for the second time";
                        self.reject("processing", &name, why, now)?;
                        tell("failed", why);
                    }
                    Err(why) => {
                        self.reject("processing", &name, &why, now)?;
                        tell("failed", &why);
                    }
                }
            }
            remove(&owner)?;
        }
        for entry in fs::read_dir(self.path("processing"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "owner")
                && !path.with_extension("json").exists()
            {
                remove(&path)?;
            }
        }
        Ok(moved)
    }

    /// Whether somebody works on it.
    fn is_held(&self, owner: &Path, now: Timestamp) -> bool {
        let Ok(Some(text)) = read(owner) else {
            return false;
        };
        let Ok(holder) = serde_json::from_slice::<Holder>(&text) else {
            return false;
        };
        if holder.host == host() {
            return holder.owner.is_alive();
        }
        now.duration_since(holder.since).abs() < ELSEWHERE
    }
}

/// Takes one job after the other.
#[derive(Debug)]
pub struct Consumer<'a> {
    worker: &'a Worker,
    kinds: &'a [Kind],
    cap: u32,
    list: VecDeque<JobFile>,
    since_list: usize,
    /// What was put back is not taken again by the same consumer.
    seen: BTreeSet<String>,
}

impl<'a> Consumer<'a> {
    /// One that works by these settings.
    pub fn new(worker: &'a Worker, spec: &'a CuratorSpec) -> Self {
        Self {
            worker,
            kinds: &spec.kinds,
            cap: spec.hourly_cap,
            list: VecDeque::new(),
            since_list: LIST,
            seen: BTreeSet::new(),
        }
    }

    /// Claims the next job, by priority and then age. One that came back from a dead process is taken
    /// only where it is the `first` of a run, so that it takes no others with it.
    ///
    /// # Errors
    /// The disk refused.
    pub fn claim(&mut self, now: Timestamp, first: bool) -> io::Result<Claim> {
        let _held = self.worker.lock()?;
        let mut moved = Vec::new();
        if first {
            moved = self.worker.recover(now)?;
        }
        loop {
            if self.since_list >= LIST || self.list.is_empty() {
                self.list = self.look(now, &mut moved)?;
                self.since_list = 0;
            }
            let Some(job) = self.list.front() else {
                return Ok(Claim {
                    moved,
                    found: Found::Empty,
                });
            };
            if job.returned > 0 && !first {
                return Ok(Claim {
                    moved,
                    found: Found::Empty,
                });
            }
            let name = format!("{}.json", job.id);
            let waiting = self.worker.file("queue", &name);
            // It is read again: this is what is worked on.
            let Some(bytes) = read(&waiting)? else {
                self.list.pop_front();
                continue;
            };
            let mut starts = self.worker.starts(now)?;
            if starts.odd {
                self.rewrite(&starts.list)?;
            }
            if starts.list.len() >= self.cap as usize {
                let oldest = starts
                    .list
                    .iter()
                    .map(|start| start.at)
                    .min()
                    .unwrap_or(now);
                let until = oldest.saturating_add(HOUR).unwrap_or(now);
                return Ok(Claim {
                    moved,
                    found: Found::Capped { until },
                });
            }
            let listed = self.list.pop_front().expect("it was looked at");
            self.since_list += 1;
            self.seen.insert(listed.id.clone());
            let job = match JobFile::read(&name, &bytes, self.kinds) {
                Ok(job) => job,
                Err(why) => {
                    self.worker.reject("queue", &name, &why, now)?;
                    moved.push(Moved {
                        name: listed.id,
                        to: "failed",
                        why,
                    });
                    continue;
                }
            };
            starts.list.push(Start {
                at: now,
                id: job.id.clone(),
            });
            self.note(&starts)?;
            let holder = Holder {
                owner: Owner::me(),
                host: host(),
                since: now,
            };
            let text = serde_json::to_vec(&holder).expect("string keys only");
            let owner = self.worker.file("processing", &format!("{}.owner", job.id));
            remove(&owner)?;
            fs::write(owner, text)?;
            fs::rename(&waiting, self.worker.file("processing", &name))?;
            return Ok(Claim {
                moved,
                found: Found::Claimed(Box::new(Claimed {
                    digest: Digest::of(&bytes),
                    job,
                })),
            });
        }
    }

    /// Notes the last of them; and all anew once most lines of the file count no more.
    fn note(&self, starts: &Starts) -> io::Result<()> {
        if starts.over > starts.list.len() {
            return self.rewrite(&starts.list);
        }
        let last = &starts.list[starts.list.len() - 1..];
        append(&self.worker.path("logs/hour.jsonl"), &lines(last)?)
    }

    fn rewrite(&self, starts: &[Start]) -> io::Result<()> {
        let path = self.worker.path("logs/hour.jsonl");
        write_atomic(&path, &lines(starts)?, 0o644).map_err(|it| it.source)
    }

    /// All that wait, in their order; what is no job goes to the failed ones.
    fn look(&self, now: Timestamp, moved: &mut Vec<Moved>) -> io::Result<VecDeque<JobFile>> {
        let mut jobs = Vec::new();
        for name in names(&self.worker.path("queue"))? {
            let path = self.worker.file("queue", &name);
            let judged = match fs::symlink_metadata(&path) {
                Err(_) => continue,
                Ok(data) if !data.is_file() => Err("it is no plain file".to_owned()),
                Ok(data) if data.len() > LARGEST => Err(format!(
                    "it has {} bytes; a job has {LARGEST} at most",
                    data.len()
                )),
                Ok(data) => {
                    let Some(bytes) = read(&path)? else { continue };
                    let judged = JobFile::read(&name, &bytes, self.kinds);
                    let whole = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok();
                    let changed = data
                        .modified()
                        .ok()
                        .and_then(|at| Timestamp::try_from(at).ok());
                    let age = changed.map(|at| now.duration_since(at));
                    let young = age.is_some_and(|age| !age.is_negative() && age < YOUNG);
                    if !whole && young {
                        continue;
                    }
                    judged
                }
            };
            let judged = judged.and_then(|job| {
                if self.worker.file("done", &name).exists() {
                    return Err("a job of this id was done before".to_owned());
                }
                Ok(job)
            });
            match judged {
                Ok(job) if self.seen.contains(&job.id) => {}
                Ok(job) => jobs.push(job),
                Err(why) => {
                    self.worker.reject("queue", &name, &why, now)?;
                    moved.push(Moved {
                        name,
                        to: "failed",
                        why,
                    });
                }
            }
        }
        jobs.sort_by(|a, b| {
            let key = |job: &JobFile| (std::cmp::Reverse(job.priority), job.created_at);
            key(a).cmp(&key(b)).then_with(|| a.id.cmp(&b.id))
        });
        Ok(jobs.into())
    }
}

fn lines(starts: &[Start]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for start in starts {
        serde_json::to_writer(&mut text, start)?;
        text.push(b'\n');
    }
    Ok(text)
}

/// The names of job files in a folder, in order; one that is not there is empty.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let Ok(name) = entry?.file_name().into_string() else {
            continue;
        };
        if name.ends_with(".json") && !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// A small plain file; none where there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Appends whole lines to a file; a line that somebody left unfinished is ended first. To be called
/// under the lock.
pub(super) fn append(path: &Path, lines: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0))
        .open(path)?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    if length > 0 {
        let mut last = [0];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut last, length - 1)?;
        if last != *b"\n" {
            bytes.push(b'\n');
        }
    }
    bytes.extend_from_slice(lines);
    file.write_all(&bytes)?;
    file.sync_data()
}

/// The name of this host.
pub fn host() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

/// Whether a path is written as Windows has them: `D:\dream`, `\\host\share`.
pub fn is_windows(path: &str) -> bool {
    let bytes = path.as_bytes();
    let drive = bytes.len() >= 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':';
    drive || path.starts_with("\\\\")
}
