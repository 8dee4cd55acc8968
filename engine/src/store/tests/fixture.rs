//! Provides helpers that change and inspect a test's database.

use super::*;

impl Fixture {
    /// Replaces the project's jobs.
    pub(super) fn jobs(&mut self, jobs: &[NewJob]) {
        self.store.project_jobs(&self.project, "again", "", jobs, now()).unwrap();
    }

    pub(super) fn id(&self, job: &str) -> JobId {
        self.store.job(&self.project, job).unwrap().id
    }

    /// Returns an occurrence with a unique key, without recording it.
    pub(super) fn wish(&self, job: &str, origin: Origin) -> NewOccurrence {
        NewOccurrence {
            origin,
            ..NewOccurrence::manual(self.id(job), OccurrenceId::new(now()).to_string(), now())
        }
    }

    /// Queues a run of a job. The run may start immediately.
    pub(super) fn enqueue(&mut self, job: &str) -> RunId {
        self.enqueue_after(job, None)
    }

    pub(super) fn enqueue_after(&mut self, job: &str, after: Option<&RunId>) -> RunId {
        let after = after.map(|run| self.row(run).occurrence);
        let wish = self.wish(job, Origin::Queue);
        match self.store.enqueue(&wish, now(), after.as_ref(), now()).unwrap() {
            Recorded::New(run) => run,
            Recorded::Known(_) => panic!("the key was already recorded"),
        }
    }

    pub(super) fn start(&mut self, at: Timestamp) -> Vec<RunId> {
        let me = self.me.clone();
        self.store.start_ready(None, &me, at).unwrap()
    }

    pub(super) fn end(&mut self, run: &RunId, outcome: &Outcome, at: Timestamp) {
        self.store.settle(run, None, outcome, &RunSummary::default(), at).unwrap();
    }

    pub(super) fn row(&self, run: &RunId) -> RunRow {
        self.store.run(run).unwrap()
    }

    pub(super) fn deadline(&self, run: &RunId) -> u64 {
        match self.row(run).state {
            RunState::Running { deadline, .. } => deadline,
            state => panic!("{state:?} has no deadline"),
        }
    }

    pub(super) fn outcome(&self, run: &RunId) -> Option<Outcome> {
        self.row(run).outcome().cloned()
    }

    /// Returns the outcome of a run's occurrence, or `None` if the occurrence is open.
    pub(super) fn stands(&self, run: &RunId) -> Option<Outcome> {
        let occurrence = self.row(run).occurrence;
        self.store.occurrence(&occurrence).unwrap().outcome
    }

    /// Returns the runs of a job, oldest first.
    pub(super) fn runs_of(&self, job: &str) -> Vec<RunRow> {
        let filter = RunFilter { job: Some(self.id(job)), ..RunFilter::default() };
        let mut runs = self.store.runs(&filter).unwrap();
        runs.reverse();
        runs
    }

    /// Records a job's scheduled times that are due at `at`, and returns their runs.
    pub(super) fn due(&mut self, job: &str, at: Timestamp) -> Vec<RunId> {
        let due_jobs = self.store.due_jobs(at).unwrap();
        let due_job = due_jobs.iter().find(|due| due.job.name == job).unwrap();
        let due =
            due_job.job.schedule.due(due_job.watermark, at, &due_job.job.policy.catch_up).unwrap();
        self.store.enter_due(due_job, &due, MissedReasons::default(), None, at).unwrap()
    }

    /// Checks that each occurrence is open if and only if one of its runs is unsettled.
    pub(super) fn check(&self) {
        let odd: i64 = self
            .store
            .db
            .query_row(
                "SELECT count(*) FROM occurrences o WHERE (outcome IS NULL) <>
                   EXISTS (SELECT 1 FROM runs WHERE occurrence = o.id AND state <> 'settled')",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(odd, 0);
    }
}
