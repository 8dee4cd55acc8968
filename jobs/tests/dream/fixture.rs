//! A project in a temporary folder, with a real repository and a real database, and methods that
//! run passes over it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runner_backends::{Backend, Builtin, Chain, Scripted, Step};
use runner_engine::admission::AdmissionFacts;
use runner_engine::git::Git;
use runner_engine::ids::{ProjectId, RunId};
use runner_engine::policy::Policy;
use runner_engine::process::Cancel;
use runner_engine::process_id::ProcessIdentity;
use runner_engine::schedule::Schedule;
use runner_engine::store::{
    Admission, Budget, Enter, NewJob, NewOccurrence, Node, Origin, Project, Recorded, Store,
};
use runner_engine::time::Clock;
use runner_jobs::dream::DreamSpec;
use runner_jobs::dream::proposal::Proposal;
use runner_jobs::dream::review::{
    AppliedDecision, Consent, Decider, DecisionInput, DecisionRequest, IfChanged, Proposals,
    ReviewError,
};
use runner_jobs::{
    AgentFolders, Context, ContextParts, Folders, JobSpec, PaidBackend, Progress, RunBackends,
    RunMode, SettledRun, Silent, Spending, execute,
};
use runner_text::redact::Redactor;
use serde_json::Value;

/// A project, with all the state that runner keeps for it.
pub struct Fixture {
    folder: tempfile::TempDir,
    /// The project's root.
    pub root: PathBuf,
    /// The settings of the project's dream.
    pub spec: DreamSpec,
    /// The spending settings of the passes.
    pub spending: Spending,
    /// The backends to try after the first one.
    pub fallbacks: Vec<Arc<dyn Backend>>,
    /// The time budget that each pass requests, in seconds, or `None` for the default.
    pub seconds: Option<u64>,
    /// The origin of the passes.
    pub origin: Origin,
    /// The store that records the passes and decisions.
    pub store: Store,
    project: ProjectId,
    passes: i64,
    acts: i64,
}

impl Fixture {
    /// Creates a project whose repository has no commits and ignores ideas and dreams.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("project");
        for name in ["project/ideas", "cache", "home"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let mut store = Store::open(&folder.path().join("store.db")).unwrap();
        let project = ProjectId::new(start());
        let known = Project {
            id: project.clone(),
            path: root.clone(),
            node: Node::new(1, 1),
            config_stamp: String::new(),
            own: false,
        };
        store.register(&known, start()).unwrap();
        let job = NewJob {
            name: "dream".into(),
            kind: "dream".into(),
            schedule: Schedule::manual(),
            policy: Policy::default(),
            enabled: true,
        };
        store.project_jobs(&project, "", "", &[job], start()).unwrap();
        let place = Self {
            folder,
            root,
            spec: DreamSpec::default(),
            spending: Spending::default(),
            fallbacks: Vec::new(),
            seconds: None,
            origin: Origin::Manual,
            store,
            project,
            passes: 0,
            acts: 0,
        };
        place.git(&["init", "-q", "-b", "main"]);
        fs::write(place.root.join(".git/info/exclude"), "/ideas/\n/dreams/\n").unwrap();
        place
    }

    pub fn env(&self) -> BTreeMap<String, String> {
        let home = self.folder.path().join("home").display().to_string();
        let path = std::env::var("PATH").expect("PATH must be set");
        BTreeMap::from([
            ("PATH".into(), path),
            ("HOME".into(), home),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
        ])
    }

    /// Returns a handle for git queries on the repository.
    pub fn ask(&self) -> Git {
        Git::new(&self.root, &self.env(), "test")
    }

    /// Runs git with fixed names and dates, and returns its output.
    pub fn git(&self, args: &[&str]) -> String {
        let mut git = Command::new("git");
        git.current_dir(&self.root).env_clear().envs(self.env()).args(args);
        for who in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{who}_NAME"), "dev")
                .env(format!("GIT_{who}_EMAIL"), "dev@example.org")
                .env(format!("GIT_{who}_DATE"), "2026-01-02T03:04:05Z");
        }
        let out = git.output().unwrap();
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// Writes a project file.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Writes the subject into each of `paths`, commits all changes, and returns the commit's hash.
    pub fn commit(&self, subject: &str, paths: &[&str]) -> String {
        for path in paths {
            self.write(path, format!("{subject}\n"));
        }
        self.git(&["add", "--", "."]);
        self.git(&["commit", "-q", "--allow-empty", "-m", subject]);
        self.git(&["rev-parse", "HEAD"]).trim().to_owned()
    }

    /// Runs a pass with the built-in backend.
    pub fn pass(&mut self) -> SettledRun {
        self.pass_with(Arc::new(Builtin::default()), &mut Silent)
    }

    /// Runs a pass whose backend gives this answer to its first request.
    pub fn answered(&mut self, answer: Value) -> SettledRun {
        self.pass_with(Arc::new(Scripted::new("model", [Step::Answer(answer)])), &mut Silent)
    }

    /// Runs a pass with this backend, one simulated hour after the previous pass.
    pub fn pass_with(
        &mut self,
        backend: Arc<dyn Backend>,
        progress: &mut dyn Progress,
    ) -> SettledRun {
        self.passes += 1;
        let now = start().saturating_add(SignedDuration::from_hours(self.passes)).unwrap();
        let clock_file = self.folder.path().join("clock");
        fs::write(&clock_file, now.to_string()).unwrap();
        let clock = Clock::File(clock_file);
        let run = self.enter(now);
        let staging = format!("dreams/.staging/{run}");
        let total = Duration::from_secs(1800);
        let enter = Enter {
            run: &run,
            owner: &ProcessIdentity::me(),
            facts: &AdmissionFacts {
                manual: true,
                free_bytes: u64::MAX,
                ..AdmissionFacts::default()
            },
            want: Budget {
                calls: Some(3),
                ideas: Some(1000),
                seconds: self.seconds,
                ..Budget::default()
            },
            levels: &[],
            total,
            staging: &staging,
            now: clock.read().unwrap(),
        };
        let Admission::Admitted(admitted) = self.store.admit(&enter).unwrap() else {
            panic!("the run was not admitted");
        };
        let env = self.env();
        let cache = self.folder.path().join("cache");
        let run_dir = self.folder.path().join("run");
        fs::create_dir_all(&run_dir).unwrap();
        let spec = JobSpec {
            name: "dream".into(),
            kind: Box::new(self.spec.clone()),
            backend: "builtin".into(),
            budget: Budget::default(),
            total,
        };
        let writes = ["dreams".to_owned()];
        let paid = |backend| PaidBackend { backend, spending: self.spending.clone() };
        let backends = RunBackends {
            fallbacks: Chain::new(self.fallbacks.iter().cloned().map(paid)),
            first: paid(backend.clone()),
            ..RunBackends::only(backend)
        };
        let agents = AgentFolders::default();
        let ctx = Context::new(ContextParts {
            admitted: &admitted,
            folders: Folders {
                root: &self.root,
                cache: &cache,
                run_dir: &run_dir,
                state: None,
                agents: &agents,
            },
            writes: &writes,
            staging: &staging,
            env: &env,
            sandbox: None,
            clock: &clock,
            cancel: Cancel::new().unwrap(),
            progress,
            redactor: Redactor::new(Vec::new()),
            store: &mut self.store,
            backends,
            keeper: None,
            mode: RunMode::Run(None),
        })
        .unwrap();
        execute(ctx, &spec).unwrap()
    }

    /// Calls `act` with the user's decider, at a later time than all earlier passes and calls.
    pub fn with_decider<T>(&mut self, act: impl FnOnce(&mut Decider<'_>) -> T) -> T {
        self.acts += 1;
        let now = start()
            .saturating_add(SignedDuration::from_secs(self.passes * 3600 + self.acts))
            .unwrap();
        let clock_file = self.folder.path().join("clock");
        fs::write(&clock_file, now.to_string()).unwrap();
        let (git, cache) = (self.ask(), self.folder.path().join("cache"));
        act(&mut Decider {
            root: &self.root,
            spec: &self.spec,
            project: &self.project,
            state: self.folder.path(),
            cache: &cache,
            git: &git,
            clock: &Clock::File(clock_file),
            me: &ProcessIdentity::me(),
            store: &mut self.store,
            redactor: &Redactor::new(vec!["hunter2".into()]),
            free_bytes: u64::MAX,
        })
    }

    /// Decides on the newest proposal about an idea.
    pub fn decide(
        &mut self,
        target: &str,
        verdict: DecisionInput,
    ) -> Result<AppliedDecision, ReviewError> {
        let id = self.id_of(target);
        self.with_decider(|decider| {
            decider.decide(&DecisionRequest {
                id: &id,
                verdict,
                note: None,
                consent: Consent { if_changed: IfChanged::Refuse, ..Consent::default() },
            })
        })
    }

    /// Undoes the decision on the newest proposal about an idea.
    pub fn undo(&mut self, target: &str) -> Result<AppliedDecision, ReviewError> {
        let id = self.id_of(target);
        self.with_decider(|decider| decider.undo(&id, IfChanged::Refuse))
    }

    /// Returns the id of the newest proposal about an idea.
    pub fn id_of(&self, target: &str) -> String {
        let listed = self.all_proposals();
        let found = listed.items.iter().find(|item| item.proposal.targets[0] == target);
        found.unwrap_or_else(|| panic!("no proposal about {target}")).proposal.id.clone()
    }

    /// Reads all proposals in their current state.
    pub fn all_proposals(&self) -> Proposals {
        Proposals::read(&self.root, &self.spec).unwrap()
    }

    /// Returns a second handle to the fixture, for a user who acts while a pass is running.
    pub fn other(&self) -> OtherPerson {
        OtherPerson {
            folder: self.folder.path().to_owned(),
            root: self.root.clone(),
            spec: self.spec.clone(),
            project: self.project.clone(),
            git: self.ask(),
        }
    }

    pub fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// Counts the runs that are not settled.
    pub fn unsettled(&self) -> usize {
        self.store.live().unwrap().len()
    }

    fn enter(&mut self, now: Timestamp) -> RunId {
        let job = self.store.job(&self.project, "dream").unwrap().id;
        let new = NewOccurrence {
            origin: self.origin,
            ..NewOccurrence::manual(job, format!("pass {}", self.passes), now)
        };
        match self.store.enter(&new, &ProcessIdentity::me(), now).unwrap() {
            Recorded::New(run) => run,
            Recorded::Known(_) => panic!("the occurrence was already known"),
        }
    }

    /// Returns the folder of the newest pass, and its proposals.
    pub fn proposals(&self) -> (String, Vec<Proposal>) {
        let folder = self.folders().pop().expect("no pass has published a folder");
        let bytes = fs::read(self.root.join(&folder).join("proposals.json")).unwrap();
        (folder, serde_json::from_slice(&bytes).unwrap())
    }

    /// Returns the folders of all passes, oldest first.
    pub fn folders(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join("dreams")) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut folders: Vec<String> = names
            .filter(|name| name.starts_with("20"))
            .map(|name| format!("dreams/{name}"))
            .collect();
        folders.sort();
        folders
    }

    /// Returns the entry of an idea in `dreams/state.json`, or null if there is none.
    pub fn state(&self, path: &str) -> Value {
        let all: Vec<Value> = serde_json::from_slice(&self.read("dreams/state.json")).unwrap();
        all.into_iter().find(|entry| entry["path"] == path).unwrap_or(Value::Null)
    }

    pub fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.root.join(path)).unwrap()
    }

    /// Returns the path and content of every regular file in the project, except in `.git`.
    pub fn everything(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fn below(folder: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap() {
                    kind if kind.is_dir() && entry.file_name() != ".git" => {
                        below(&entry.path(), all)
                    }
                    kind if kind.is_file() => {
                        all.insert(entry.path(), fs::read(entry.path()).unwrap());
                    }
                    _ => {}
                }
            }
        }
        let mut all = BTreeMap::new();
        below(&self.root, &mut all);
        all
    }
}

/// Another user of the same project.
pub struct OtherPerson {
    folder: PathBuf,
    root: PathBuf,
    spec: DreamSpec,
    project: ProjectId,
    git: Git,
}

impl OtherPerson {
    /// Calls `act` with this user's decider, at the time in the fixture's clock file.
    pub fn with_decider<T>(&self, act: impl FnOnce(&mut Decider<'_>) -> T) -> T {
        let mut store = Store::open(&self.folder.join("store.db")).unwrap();
        act(&mut Decider {
            root: &self.root,
            spec: &self.spec,
            project: &self.project,
            state: &self.folder,
            cache: &self.folder.join("cache"),
            git: &self.git,
            clock: &Clock::File(self.folder.join("clock")),
            me: &ProcessIdentity::me(),
            store: &mut store,
            redactor: &Redactor::new(Vec::new()),
            free_bytes: u64::MAX,
        })
    }
}

/// Returns the start time of every test.
pub fn start() -> Timestamp {
    "2026-11-21T22:00:00Z".parse().unwrap()
}
