//! One process on a host of a fleet. `tests/real/fleet_soak.py` starts, stops and kills it:
//! `soak_worker ROLE URL HOST FOLDER NUMBER SEED`.
//!
//! A `work` process claims an occurrence, renews its lease for a random time instead of running a
//! job, and delivers a result. The `home` process of a host offers its share of NUMBER occurrences
//! and publishes results: it appends `OCCURRENCE FENCE` to the journal in FOLDER, unless an earlier
//! process has already done so.

#![allow(clippy::disallowed_methods, clippy::print_stderr, reason = "a program for tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use runner_engine::outcome::Outcome;
use runner_engine::store::{Amounts, Budget};
use runner_fleet::{
    Claim, ClaimRequest, Delivery, FleetError, FleetStore as _, HostInfo, Offer, Postgres,
};
use serde_json::json;

const LEASE: i64 = 5_000;

/// Maximum number of occurrences of one home host that are offered but not yet published.
const AHEAD: usize = 14;

/// How long a process waits when it finds no work.
const IDLE: Duration = Duration::from_millis(100);

struct Process {
    database: Postgres,
    info: HostInfo,
    folder: PathBuf,
    number: usize,
    random: u64,
}

fn main() -> Result<(), String> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let [role, url, host, folder, number, seed] =
        <[String; 6]>::try_from(all).map_err(|_| "six arguments are needed")?;
    let info = HostInfo {
        host: host.clone(),
        worker: format!("{host}.boot"),
        tags: Vec::new(),
        version: "soak".to_owned(),
    };
    let broken = |error: &dyn std::fmt::Display| error.to_string();
    let mut process = Process {
        database: Postgres::at(&url).map_err(|error| broken(&error))?,
        info,
        folder: folder.into(),
        number: number.parse().map_err(|error| broken(&error))?,
        random: seed.parse::<u64>().map_err(|error| broken(&error))?.wrapping_mul(2) + 1,
    };
    let mut joined = false;
    loop {
        let done = match (joined, role.as_str()) {
            (false, _) => process.database.join(&process.info).map(|()| joined = true),
            (true, "home") => process.home(),
            (true, _) => process.work(&seed),
        };
        match done {
            Ok(()) => {}
            // The claim was lost, or the database is temporarily unreachable.
            Err(FleetError::Stale(_) | FleetError::Unreachable(_)) => thread::park_timeout(IDLE),
            Err(error) => return Err(error.to_string()),
        }
    }
}

impl Process {
    /// Returns a number below `limit` (xorshift).
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    /// Works on one claim. Meanwhile, the file `SEED.claim` contains its occurrence and fence.
    fn work(&mut self, seed: &str) -> Result<(), FleetError> {
        let request = ClaimRequest {
            host: self.info.host.clone(),
            worker: self.info.worker.clone(),
            tags: Vec::new(),
            most: 1,
            home: None,
        };
        let (claims, _) = self.database.claim(&request)?;
        let Some(claim) = claims.into_iter().next() else {
            thread::park_timeout(IDLE);
            return Ok(());
        };
        let file = self.folder.join(format!("{seed}.claim"));
        note(&file, &format!("{} {}", claim.occurrence, claim.fence))?;
        let done = self.run(&claim);
        note(&file, "")?;
        done
    }

    fn run(&mut self, claim: &Claim) -> Result<(), FleetError> {
        let work = Duration::from_millis(100 + self.below(1_000));
        let began = Instant::now();
        while let Some(left) = work.checked_sub(began.elapsed()) {
            thread::park_timeout(left.min(Duration::from_millis(LEASE.unsigned_abs() / 3)));
            self.database.renew(&claim.occurrence, claim.fence, &self.info.worker)?;
        }
        let used = Amounts { calls: 1, tokens: 1 + self.below(100), ..Amounts::default() };
        let delivery = Delivery {
            occurrence: claim.occurrence.clone(),
            fence: claim.fence,
            worker: self.info.worker.clone(),
            outcome: Outcome::Succeeded,
            used,
            summary: json!({}),
            manifest: json!([]),
        };
        self.database.deliver(&delivery).map(drop)
    }

    /// Publishes the delivered results, and offers further occurrences.
    fn home(&mut self) -> Result<(), FleetError> {
        let journal = self.folder.join(format!("{}.published", self.info.host));
        let published = lines(&journal)?;
        let host = self.info.host.clone();
        for one in self.database.deliveries(&host)? {
            self.database.begin_publish(&one.occurrence, one.fence, &host)?;
            // An earlier process may have died after publishing this result.
            if !published.contains(&one.occurrence) {
                append(&journal, &format!("{} {}\n", one.occurrence, one.fence))?;
            }
            self.database.settle(&one.occurrence, one.fence, &host, &Outcome::Succeeded)?;
        }
        let offered = self.folder.join(format!("{host}.offered"));
        let known = lines(&offered)?.len();
        let published = lines(&journal)?.len();
        for number in known..self.number.min(published + AHEAD) {
            let offer = offer(&host, number);
            self.database.offer(&offer)?;
            append(&offered, &format!("{}\n", offer.id))?;
        }
        thread::park_timeout(IDLE);
        Ok(())
    }
}

fn offer(home: &str, number: usize) -> Offer {
    let limit = Budget { tokens: Some(1 << 50), calls: Some(1 << 50), ..Budget::default() };
    let level = |name: String| (name, limit);
    Offer {
        id: format!("{home}-{number:05}"),
        project: home.to_owned(),
        job: format!("job{}", number % 6),
        key: number.to_string(),
        home: home.to_owned(),
        due: 0,
        group: number.is_multiple_of(4).then(|| (format!("group{}", number % 3), 6)),
        tags: Vec::new(),
        levels: BTreeMap::from([level("day".to_owned()), level(format!("part{}", number % 7))]),
        want: Amounts { calls: 2, tokens: 200, ..Amounts::default() },
        lease: LEASE,
        most_lost: 1_000,
        source: json!({}),
    }
}

fn io(error: std::io::Error) -> FleetError {
    FleetError::Database(error.to_string())
}

fn note(path: &Path, text: &str) -> Result<(), FleetError> {
    fs::write(path, text).map_err(io)
}

/// Returns the first word of each line of a file.
fn lines(path: &Path) -> Result<BTreeSet<String>, FleetError> {
    match fs::read_to_string(path) {
        Ok(text) => {
            Ok(text.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(io(error)),
    }
}

/// Appends a line with one system call, so a killed process leaves the whole line or nothing.
fn append(path: &Path, line: &str) -> Result<(), FleetError> {
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(io)
}
