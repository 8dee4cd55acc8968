//! One history: the database, a model of the actual usage, and the invariants after each step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use runner_engine::ids::{ProjectId, RunId};
use runner_engine::policy::Policy;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::schedule::Schedule;
use runner_engine::store::{
    Amounts, Budget, BudgetLevel, DAY, JobId, NewJob, Node, POOL_DAY, Project, RequestId, Store,
    WINDOW,
};

use super::random::Random;

/// A bug that the histories must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The remaining amount is read in one transaction and reserved in another.
    CheckThenReserve,
    /// The open requests of a dead run are not counted as usage.
    ForgetTheLost,
    /// Unknown usage is treated as zero.
    UnknownIsFree,
    /// Usage beyond the reservation is reduced to the reservation.
    OverIsCut,
    /// A grant is counted twice.
    GrantTwice,
    /// A pool's usage is counted separately for each project.
    PoolPerProject,
    /// A dead run is never settled.
    NeverRecovered,
    /// A child's reservation is added to its parent's reservation instead of being taken from it.
    ChildBeside,
    /// A request without an answer is refunded when its run ends.
    EndTakesBack,
}

impl Bug {
    pub const ALL: [Self; 9] = [
        Self::CheckThenReserve,
        Self::ForgetTheLost,
        Self::UnknownIsFree,
        Self::OverIsCut,
        Self::GrantTwice,
        Self::PoolPerProject,
        Self::NeverRecovered,
        Self::ChildBeside,
        Self::EndTakesBack,
    ];
}

/// Counts of simulated operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub histories: u64,
    pub steps: u64,
    pub runs: u64,
    pub escalations: u64,
    pub refused: u64,
    pub requests: u64,
    pub unknown: u64,
    pub over: u64,
    pub deaths: u64,
    pub blown: u64,
    pub grants: u64,
    pub reopened: u64,
}

impl Counts {
    pub fn add(&mut self, other: Self) {
        self.histories += 1;
        self.steps += other.steps;
        self.runs += other.runs;
        self.escalations += other.escalations;
        self.refused += other.refused;
        self.requests += other.requests;
        self.unknown += other.unknown;
        self.over += other.over;
        self.deaths += other.deaths;
        self.blown += other.blown;
        self.grants += other.grants;
        self.reopened += other.reopened;
    }
}

pub struct Job {
    pub project: usize,
    pub id: JobId,
}

/// A request without an answer.
pub struct Out {
    pub id: RequestId,
    pub reserved: Amounts,
    /// The request's actual usage.
    pub truly: Amounts,
}

/// An unsettled run.
pub struct Run {
    pub id: RunId,
    pub job: usize,
    pub accounts: Vec<(String, String)>,
    pub out: Option<Out>,
    pub dead: bool,
    /// Whether the run has exceeded its reservation and makes no further requests.
    pub stopped: bool,
}

/// The model of a budget level.
#[derive(Clone, Copy, Debug, Default)]
pub struct Truth {
    /// The maximum that may ever be spent: the level's limit plus all grants.
    pub most: [Option<u64>; 5],
    /// The amounts that were actually spent.
    pub spent: Amounts,
    /// The amounts that requests used beyond the reservations.
    pub beyond: Amounts,
}

pub struct History {
    pub random: Random,
    pub bug: Option<Bug>,
    pub store: Store,
    pub file: Option<(tempfile::TempDir, PathBuf)>,
    pub projects: Vec<ProjectId>,
    pub jobs: Vec<Job>,
    pub now: Timestamp,
    pub pool: Budget,
    pub window: Budget,
    pub day: Budget,
    pub runs: Vec<Run>,
    /// Jobs and the budgets that they want, which were checked but not reserved yet, for
    /// [`Bug::CheckThenReserve`].
    pub checked: Vec<(usize, Budget)>,
    pub truth: BTreeMap<(String, String), Truth>,
    /// The budget levels of all admitted runs.
    pub all_runs: BTreeMap<RunId, Vec<(String, String)>>,
    pub me: ProcessIdentity,
    pub number: u64,
    pub counts: Counts,
}

/// The number of jobs per project.
const JOBS: usize = 25;
const STEPS: i64 = 160;
const LENGTH: SignedDuration = SignedDuration::from_hours(5);

impl History {
    pub fn new(seed: u64, bug: Option<Bug>) -> Self {
        let mut random = Random(seed);
        // Some databases are on disk, where they can be reopened.
        let file = random.permille(15).then(|| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("database.sqlite");
            (folder, path)
        });
        let mut store = match &file {
            Some((_, path)) => Store::open(path).unwrap(),
            None => Store::in_memory().unwrap(),
        };
        let now: Timestamp = "2026-11-21T20:00:00Z".parse().unwrap();
        let mut projects = Vec::new();
        let mut jobs = Vec::new();
        for project in 0..2 {
            let id = ProjectId::new(now);
            let row = Project {
                id: id.clone(),
                path: PathBuf::from(format!("/p{project}")),
                node: Node::new(1, project as u64),
                config_stamp: String::new(),
                own: false,
            };
            store.register(&row, now).unwrap();
            let rows: Vec<NewJob> = (0..JOBS)
                .map(|job| NewJob {
                    name: format!("job{job}"),
                    kind: "prompt".to_owned(),
                    schedule: Schedule::manual(),
                    policy: Policy::default(),
                    enabled: true,
                })
                .collect();
            store.project_jobs(&id, "", "", &rows, now).unwrap();
            for row in rows {
                let id = store.job(&id, &row.name).unwrap().id;
                jobs.push(Job { project, id });
            }
            projects.push(id);
        }
        let mut caps = |calls: i64| Budget {
            calls: random.permille(800).then(|| random.spread(1, calls).unsigned_abs()),
            tokens: random.permille(600).then(|| random.spread(100, calls * 1_000).unsigned_abs()),
            micros: random.permille(600).then(|| random.spread(100, calls * 2_000).unsigned_abs()),
            ..Budget::default()
        };
        let (pool, window, day) = (caps(100), caps(80), caps(150));
        Self {
            pool,
            window,
            day,
            random,
            bug,
            store,
            file,
            projects,
            jobs,
            now,
            runs: Vec::new(),
            checked: Vec::new(),
            truth: BTreeMap::new(),
            all_runs: BTreeMap::new(),
            me: ProcessIdentity::me(),
            number: 0,
            counts: Counts::default(),
        }
    }

    /// Performs all steps of the history and then settles all runs.
    pub fn live(mut self) -> Counts {
        for _ in 0..STEPS {
            self.act();
            self.counts.steps += 1;
            self.holds();
        }
        self.rest();
        self.sums();
        self.counts
    }

    /// Returns the current budget levels for a run of the project.
    pub fn levels(&self, project: usize) -> Vec<BudgetLevel> {
        let date = self.now.strftime("%F").to_string();
        let pool = match self.bug {
            Some(Bug::PoolPerProject) => format!("max{project}"),
            _ => "max".to_owned(),
        };
        let mut levels = vec![
            BudgetLevel::new(POOL_DAY, format!("{pool} {date}"), "pool".to_owned(), self.pool),
            BudgetLevel::new(
                DAY,
                format!("{} {date}", self.projects[project]),
                "day".to_owned(),
                self.day,
            ),
        ];
        levels.push(BudgetLevel {
            window: Some(LENGTH),
            ..BudgetLevel::new(WINDOW, "max".to_owned(), "window".to_owned(), self.window)
        });
        levels
    }

    /// Returns the correct name of a budget level, even if a bug uses another name.
    pub fn name(&self, level: &BudgetLevel) -> (String, String) {
        let standing = self.store.standing(level, self.now).unwrap();
        let key = standing.level.key;
        let right = match (self.bug, level.level) {
            (Some(Bug::PoolPerProject), POOL_DAY) => {
                format!("max {}", self.now.strftime("%F"))
            }
            _ => key,
        };
        (level.level.to_owned(), right)
    }

    /// Checks the invariants that hold after each step.
    fn holds(&self) {
        for ((level, key), truth) in &self.truth {
            let held = self.in_use(level, key);
            for unit in 0..3 {
                let name = ["calls", "tokens", "micros"][unit];
                let (held, spent) = (held.array()[unit], truth.spent.array()[unit]);
                assert!(
                    spent <= held,
                    "{level} {key}: {spent} {name} were spent, but only {held} are used or reserved"
                );
                if let Some(most) = truth.most[unit] {
                    let most = most + truth.beyond.array()[unit];
                    assert!(
                        held <= most,
                        "{level} {key}: {held} {name} are used or reserved, but only {most} may be"
                    );
                    assert!(
                        spent <= most,
                        "{level} {key}: {spent} {name} were spent, but only {most} may be"
                    );
                }
            }
        }
        let holders: BTreeSet<RunId> = self.store.holders().unwrap().into_iter().collect();
        let runs: BTreeSet<RunId> = self.runs.iter().map(|run| run.id.clone()).collect();
        assert_eq!(holders, runs, "the runs with reservations are not the live runs");
    }

    fn in_use(&self, level: &str, key: &str) -> Amounts {
        match self.bug {
            // The sum is the usage that the pool would have without the bug.
            Some(Bug::PoolPerProject) if level == POOL_DAY => {
                let date = key.strip_prefix("max ").unwrap();
                let one = |n: usize| self.store.account(level, &format!("max{n} {date}"));
                one(0).unwrap().plus(one(1).unwrap())
            }
            _ => self.store.account(level, key).unwrap(),
        }
    }

    /// Checks that the usage of each budget level equals the sum over its runs.
    fn sums(&self) {
        let mut sums: BTreeMap<&(String, String), Amounts> = BTreeMap::new();
        for (run, accounts) in &self.all_runs {
            let spent = self.store.spent_by(run).unwrap();
            for account in accounts {
                let sum = sums.entry(account).or_default();
                *sum = sum.plus(spent);
            }
        }
        for ((level, key), sum) in sums {
            let account = Amounts { seconds: 0, ..self.in_use(level, key) };
            assert_eq!(account, sum, "{level} {key}: the usage is not the sum over its runs");
        }
        assert!(self.store.holders().unwrap().is_empty(), "reservations remain");
    }
}
