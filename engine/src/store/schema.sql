-- The ledger: what was due, what ran, what it spent, what it is placing. Times are milliseconds
-- since the Unix epoch, UTC. Outcomes are the JSON of `runner_engine::outcome::Outcome`.

CREATE TABLE projects (
    id            TEXT PRIMARY KEY,
    path          TEXT NOT NULL UNIQUE,   -- canonical
    device        INTEGER NOT NULL,
    inode         INTEGER NOT NULL,
    created       INTEGER NOT NULL,
    config_stamp  TEXT NOT NULL DEFAULT '' -- stat of the files that the jobs were read from
) STRICT;

-- A projection of the config files; `watermark`, `fence` and the pause are the ledger's own.
CREATE TABLE jobs (
    id           INTEGER PRIMARY KEY,
    project      TEXT NOT NULL REFERENCES projects (id),
    name         TEXT NOT NULL,
    kind         TEXT NOT NULL,
    schedule     TEXT NOT NULL,           -- JSON of `runner_engine::schedule::Schedule`
    policy       TEXT NOT NULL,           -- JSON of `runner_engine::policy::Policy`
    pool         TEXT NOT NULL,           -- the policy's group, of all projects
    after_job    TEXT,                    -- due when this job of the project ends
    enabled      INTEGER NOT NULL,
    next_due     INTEGER,                 -- null: no clock makes it due
    watermark    INTEGER NOT NULL,        -- moments up to here are recorded
    paused_until INTEGER,                 -- kept when it is over, until its moments are recorded
    fence        INTEGER NOT NULL DEFAULT 0,
    UNIQUE (project, name)
) STRICT;
CREATE INDEX jobs_ahead ON jobs (watermark);
CREATE INDEX jobs_due ON jobs (next_due) WHERE enabled AND next_due IS NOT NULL;
CREATE INDEX jobs_paused ON jobs (paused_until) WHERE paused_until IS NOT NULL;
CREATE INDEX jobs_after ON jobs (project, after_job) WHERE after_job IS NOT NULL;

-- The pause of everything, if there is or was one.
CREATE TABLE pause (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    until INTEGER NOT NULL
) STRICT;

CREATE TABLE nights (
    id      INTEGER PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects (id),
    name    TEXT NOT NULL,                -- the civil date, with a number when there are several
    opens   INTEGER NOT NULL,
    closes  INTEGER NOT NULL,
    closed  INTEGER,                      -- set when its report is due
    UNIQUE (project, name)
) STRICT;
CREATE INDEX nights_open ON nights (closes) WHERE closed IS NULL;

-- Open (no outcome) exactly as long as one of its runs is not settled.
CREATE TABLE occurrences (
    id       TEXT PRIMARY KEY,
    job      INTEGER NOT NULL REFERENCES jobs (id),
    key      TEXT NOT NULL,
    due      INTEGER NOT NULL,
    recorded INTEGER NOT NULL,
    night    INTEGER REFERENCES nights (id),
    origin   TEXT NOT NULL CHECK (origin IN ('clock', 'event', 'queue', 'hand')),
    priority INTEGER NOT NULL DEFAULT 0,
    settings TEXT,                        -- JSON: settings of the job that hold for this one only
    outcome  TEXT,                        -- null: open
    settled  INTEGER,
    missed   INTEGER GENERATED ALWAYS AS (outcome ->> 'outcome' = 'missed') VIRTUAL,
    UNIQUE (job, key)
) STRICT;
CREATE INDEX occurrences_missed ON occurrences (recorded) WHERE missed;
CREATE INDEX occurrences_night ON occurrences (night) WHERE night IS NOT NULL;

CREATE TABLE runs (
    id            TEXT PRIMARY KEY,
    occurrence    TEXT NOT NULL REFERENCES occurrences (id),
    job           INTEGER NOT NULL REFERENCES jobs (id),
    attempt       INTEGER NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('queued', 'requested', 'running', 'settled')),
    ready_at      INTEGER,                -- queued: not before this moment
    waits_for     TEXT REFERENCES occurrences (id), -- queued: not before this one has succeeded
    fence         INTEGER,                -- given at admission
    requested     INTEGER NOT NULL,       -- when it was queued or requested
    started       INTEGER,
    finished      INTEGER,
    starter       TEXT,                   -- the process that will spawn it; null while queued
    owner         TEXT,                   -- the process that runs it
    deadline      INTEGER,                -- boot-time milliseconds, with the owner's boot id
    cancel        TEXT,                   -- running, and asked to end: why
    seed          INTEGER NOT NULL,
    staging       TEXT,                   -- relative to the project; null once it is swept
    model_calls   INTEGER NOT NULL DEFAULT 0,
    outcome       TEXT,
    summary       TEXT,
    UNIQUE (occurrence, attempt),
    CHECK ((state = 'settled') = (outcome IS NOT NULL)),
    CHECK (state <> 'queued' OR ready_at IS NOT NULL),
    CHECK (state = 'queued' OR waits_for IS NULL)
) STRICT;
-- What recovery looks at: somebody answers for it, or did.
CREATE INDEX runs_live ON runs (id) WHERE state IN ('requested', 'running');
CREATE INDEX runs_ready ON runs (ready_at) WHERE state = 'queued' AND waits_for IS NULL;
CREATE INDEX runs_waiting ON runs (waits_for) WHERE waits_for IS NOT NULL;
CREATE INDEX runs_open_by_job ON runs (job) WHERE state <> 'settled';
-- Never two at once: an occurrence has at most one unsettled run.
CREATE UNIQUE INDEX runs_one_open ON runs (occurrence) WHERE state <> 'settled';
CREATE INDEX runs_by_job ON runs (job);
CREATE INDEX runs_tried ON runs (job)
    WHERE outcome ->> 'outcome' IN ('succeeded', 'degraded', 'failed', 'timed-out', 'lost');
CREATE INDEX runs_unswept ON runs (id) WHERE state = 'settled' AND staging IS NOT NULL;

CREATE TABLE placements (
    run       TEXT PRIMARY KEY REFERENCES runs (id),
    fence     INTEGER NOT NULL,
    manifest  TEXT NOT NULL,
    committed INTEGER NOT NULL,
    placed    INTEGER,                    -- its outcome is committed
    conflict  TEXT                        -- a target that was neither before nor after
) STRICT;

-- What has been spent, by level and key. Caps are the configuration's and are not stored.
CREATE TABLE accounts (
    level   TEXT NOT NULL,
    key     TEXT NOT NULL,
    calls   INTEGER NOT NULL DEFAULT 0,
    tokens  INTEGER NOT NULL DEFAULT 0,
    micros  INTEGER NOT NULL DEFAULT 0,   -- millionths of a dollar
    seconds INTEGER NOT NULL DEFAULT 0,
    ideas   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (level, key)
) STRICT, WITHOUT ROWID;

-- What a run may spend at most, held against each of its levels until the run is settled.
CREATE TABLE reservations (
    run     TEXT NOT NULL REFERENCES runs (id),
    level   TEXT NOT NULL,
    key     TEXT NOT NULL,
    calls   INTEGER NOT NULL,
    tokens  INTEGER NOT NULL,
    micros  INTEGER NOT NULL,
    seconds INTEGER NOT NULL,
    ideas   INTEGER NOT NULL,
    open    INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (run, level, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX reservations_open ON reservations (level, key) WHERE open;

-- One model call each: reserved out of its run's reservation, settled when its usage is known.
CREATE TABLE requests (
    id       INTEGER PRIMARY KEY,
    run      TEXT NOT NULL REFERENCES runs (id),
    made     INTEGER NOT NULL,
    backend  TEXT NOT NULL,
    calls    INTEGER NOT NULL,
    tokens   INTEGER NOT NULL,
    micros   INTEGER NOT NULL,
    ideas    INTEGER NOT NULL,
    stated   INTEGER NOT NULL DEFAULT 0,  -- the backend said what it used
    settled  INTEGER,
    note     TEXT
) STRICT;
CREATE INDEX requests_by_run ON requests (run);

CREATE TABLE events (
    id      INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    project TEXT,
    run     TEXT,
    kind    TEXT NOT NULL,
    detail  TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_run ON events (run) WHERE run IS NOT NULL;
CREATE INDEX events_by_time ON events (at);

-- What old rows are found by, in small bites.
CREATE INDEX occurrences_settled ON occurrences (settled) WHERE settled IS NOT NULL;
CREATE INDEX runs_deferred ON runs (occurrence, attempt) WHERE outcome ->> 'outcome' = 'deferred';

-- What care was taken of this file, by word: `shape` (the digest of the steps that made it), `check`,
-- `backup`, `prune`, `restore`.
CREATE TABLE care (
    task TEXT PRIMARY KEY,
    done INTEGER NOT NULL,
    said TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
