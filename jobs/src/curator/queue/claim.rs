//! Claims the queue's jobs, ordered by priority and then age.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io;

use jiff::{SignedDuration, Timestamp};
use runner_engine::digest::Digest;
use runner_engine::process_id::ProcessIdentity;
use serde_json::json;

use super::files::{names, read, remove};
use super::owners::{ClaimHolder, IsOver};
use super::rate_limit::{HOUR, StartRecord};
use super::{MovedFile, Worker, host};
use crate::curator::job::{CuratorJobKind, JobFile, LARGEST};
use crate::curator::{CuratorSpec, JobProduct};
use crate::json::pretty;

/// Minimum age at which a file that is not JSON is rejected. A younger file may still be
/// incomplete.
const YOUNG: SignedDuration = SignedDuration::from_secs(10);
/// Number of claims after which the queue is listed again.
const LIST: usize = 64;

/// The result of a search for work.
#[derive(Debug)]
pub struct Claim {
    /// The files moved by the search.
    pub moved: Vec<MovedFile>,
    pub found: NextFile,
}

/// The outcome of a search for the next job file.
#[derive(Debug)]
pub enum NextFile {
    /// A job was claimed for the caller.
    Claimed(Box<Claimed>),
    /// No job is waiting, or this claim may take none of the waiting jobs.
    Empty,
    /// Jobs are waiting, but the hourly cap allows none before `until`.
    Capped {
        /// The earliest possible time of the next start.
        until: Timestamp,
    },
}

/// A job that this process has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub job: JobFile,
    /// Digest of the job's file in `processing/`.
    pub digest: Digest,
}

impl Claimed {
    /// Returns the content of `done/ID.json`: the job and its result.
    pub fn record(&self, product: &JobProduct, now: Timestamp) -> Vec<u8> {
        let mut value = serde_json::to_value(&self.job).expect("a job has string keys only");
        let artifacts: Vec<&str> =
            product.artifacts.iter().map(|(path, _)| path.as_str()).collect();
        value["result"] = json!({
            "at": now,
            "headline": product.headline,
            "artifacts": artifacts,
            "without": product.without,
        });
        pretty(&value).into_bytes()
    }
}

/// Claims one job at a time.
#[derive(Debug)]
pub struct Consumer<'a> {
    worker: &'a Worker,
    kinds: &'a [CuratorJobKind],
    cap: u32,
    run: Option<String>,
    list: VecDeque<JobFile>,
    since_list: usize,
    /// The jobs that this consumer has already claimed and must not claim again.
    seen: BTreeSet<String>,
}

impl<'a> Consumer<'a> {
    pub fn new(worker: &'a Worker, spec: &'a CuratorSpec) -> Self {
        Self {
            worker,
            kinds: &spec.kinds,
            cap: spec.hourly_cap,
            run: None,
            list: VecDeque::new(),
            since_list: LIST,
            seen: BTreeSet::new(),
        }
    }

    /// Sets the run that the consumer works for.
    #[must_use]
    pub fn of_run(mut self, run: &str) -> Self {
        self.run = Some(run.to_owned());
        self
    }

    /// Claims the next job, by priority and then age.
    ///
    /// A run's first claim, for which `first` is set, also recovers the files left by dead
    /// consumers. Only a first claim takes a job that was returned from a dead consumer. If such a
    /// job kills the process again, no other job is affected.
    ///
    /// # Errors
    /// Returns an error if a file operation fails.
    pub fn claim(&mut self, now: Timestamp, first: Option<IsOver<'_>>) -> io::Result<Claim> {
        let _held = self.worker.lock()?;
        let mut moved = Vec::new();
        if let Some(is_over) = first {
            moved = self.worker.recover(now, is_over)?;
        }
        let first = first.is_some();
        loop {
            if self.since_list >= LIST || self.list.is_empty() {
                self.list = self.inspect(now, &mut moved)?;
                self.since_list = 0;
            }
            let Some(job) = self.list.front() else {
                return Ok(Claim { moved, found: NextFile::Empty });
            };
            if job.returned > 0 && !first {
                return Ok(Claim { moved, found: NextFile::Empty });
            }
            let name = format!("{}.json", job.id);
            let waiting = self.worker.file("queue", &name);
            // The file may have changed since the queue was listed.
            let Some(bytes) = read(&waiting)? else {
                self.list.pop_front();
                continue;
            };
            // The job may have been returned from a dead process since the queue was listed.
            let job = match JobFile::read(&name, &bytes, self.kinds) {
                Ok(job) if job.returned > 0 && !first => {
                    return Ok(Claim { moved, found: NextFile::Empty });
                }
                Ok(job) => job,
                Err(why) => {
                    self.list.pop_front();
                    let why = self.worker.reject("queue", &name, &why, now)?;
                    moved.push(MovedFile { name, to: "failed", why });
                    continue;
                }
            };
            let mut starts = self.worker.starts(now)?;
            if starts.odd {
                self.worker.rewrite(&starts.list)?;
            }
            if starts.list.len() >= self.cap as usize {
                let oldest = starts.list.iter().map(|start| start.at).min().unwrap_or(now);
                let until = oldest.saturating_add(HOUR).unwrap_or(now);
                return Ok(Claim { moved, found: NextFile::Capped { until } });
            }
            self.list.pop_front();
            self.since_list += 1;
            self.seen.insert(job.id.clone());
            starts.list.push(StartRecord { at: now, id: job.id.clone() });
            self.worker.note(&starts)?;
            let holder = ClaimHolder {
                owner: ProcessIdentity::me(),
                host: host(),
                since: now,
                run: self.run.clone(),
            };
            let text = serde_json::to_vec(&holder).expect("a claim holder has string keys only");
            let owner = self.worker.file("processing", &format!("{}.owner", job.id));
            remove(&owner)?;
            fs::write(owner, text)?;
            fs::rename(&waiting, self.worker.file("processing", &name))?;
            return Ok(Claim {
                moved,
                found: NextFile::Claimed(Box::new(Claimed { digest: Digest::of(&bytes), job })),
            });
        }
    }

    /// Returns the waiting jobs that this consumer has not claimed, in order, and moves files that
    /// are not valid new jobs to `failed/`. Leaves young files that may still be incomplete.
    fn inspect(&self, now: Timestamp, moved: &mut Vec<MovedFile>) -> io::Result<VecDeque<JobFile>> {
        let mut jobs = Vec::new();
        for name in names(&self.worker.path("queue"))? {
            let path = self.worker.file("queue", &name);
            let judged = match fs::symlink_metadata(&path) {
                Err(_) => continue,
                Ok(data) if !data.is_file() => Err("it is not a plain file".to_owned()),
                Ok(data) if data.len() > LARGEST => {
                    Err(format!("it has {} bytes; a job may have at most {LARGEST}", data.len()))
                }
                Ok(data) => {
                    let Some(bytes) = read(&path)? else { continue };
                    let judged = JobFile::read(&name, &bytes, self.kinds);
                    let whole = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok();
                    let changed = data.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
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
                    return Err("a job with this id was done before".to_owned());
                }
                Ok(job)
            });
            match judged {
                Ok(job) if self.seen.contains(&job.id) => {}
                Ok(job) => jobs.push(job),
                Err(why) => {
                    let why = self.worker.reject("queue", &name, &why, now)?;
                    moved.push(MovedFile { name, to: "failed", why });
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
