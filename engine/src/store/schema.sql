-- Format 1 of the database. All times are milliseconds since the Unix epoch in UTC. Outcomes are the
-- JSON of `runner_engine::outcome::Outcome`.

CREATE TABLE projects (
    id             TEXT PRIMARY KEY,
    path           TEXT NOT NULL UNIQUE,   -- the canonical path
    device         INTEGER NOT NULL,
    inode          INTEGER NOT NULL,
    folder_created INTEGER,                -- nanoseconds since 1970; a new folder may get an old inode; null: not known
    owns_id        INTEGER NOT NULL DEFAULT 0, -- the git folder has the id for its own, not only the seed of every clone
    created        INTEGER NOT NULL,       -- when it was registered
    config_stamp   TEXT NOT NULL DEFAULT '', -- the stat of the files that the jobs were read from
    projection     TEXT                    -- what `status` needs of the configuration; null: never read
) STRICT;

-- A projection of the config files. The database itself owns `watermark`, `fence`, `watched_since` and
-- the pause.
CREATE TABLE jobs (
    id            INTEGER PRIMARY KEY,
    project       TEXT NOT NULL REFERENCES projects (id),
    name          TEXT NOT NULL,
    kind          TEXT NOT NULL,
    schedule      TEXT NOT NULL,           -- JSON of `runner_engine::schedule::Schedule`
    policy        TEXT NOT NULL,           -- JSON of `runner_engine::policy::Policy`
    slot_group    TEXT NOT NULL,           -- the policy's group, which is shared by all projects
    after_job     TEXT,                    -- the job is due when this job of the project ends
    enabled       INTEGER NOT NULL,
    next_due      INTEGER,                 -- null: no clock makes it due
    watermark     INTEGER NOT NULL,        -- scheduled times up to here are recorded
    paused_until  INTEGER,                 -- kept after the pause until its scheduled times are recorded
    fence         INTEGER NOT NULL DEFAULT 0,
    watched_since INTEGER,                 -- since when staleness is checked; null: it is not
    UNIQUE (project, name)
) STRICT;
CREATE INDEX jobs_ahead ON jobs (watermark);
CREATE INDEX jobs_due ON jobs (next_due) WHERE enabled AND next_due IS NOT NULL;
-- The next job of each project, the first by name where several are due at once, without reading rows.
CREATE INDEX jobs_next ON jobs (project, next_due, name, paused_until)
    WHERE enabled AND next_due IS NOT NULL;
CREATE INDEX jobs_paused ON jobs (paused_until) WHERE paused_until IS NOT NULL;
CREATE INDEX jobs_after ON jobs (project, after_job) WHERE after_job IS NOT NULL;

-- The pause of all jobs, if there is or was one.
CREATE TABLE pause (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    until INTEGER NOT NULL
) STRICT;

CREATE TABLE nights (
    id       INTEGER PRIMARY KEY,
    project  TEXT NOT NULL REFERENCES projects (id),
    name     TEXT NOT NULL,                -- the civil date, with a number when there are several
    opens    INTEGER NOT NULL,
    closes   INTEGER NOT NULL,
    closed   INTEGER,                      -- when its report became due
    headline TEXT,                         -- the last report in one line; null: there is none
    worst    TEXT,                         -- the worst outcome in that report
    folder   TEXT,                         -- the folder of that report
    UNIQUE (project, name)
) STRICT;
CREATE INDEX nights_open ON nights (closes) WHERE closed IS NULL;

-- An occurrence is open (has no outcome) exactly as long as one of its runs is not settled.
CREATE TABLE occurrences (
    id       TEXT PRIMARY KEY,
    job      INTEGER NOT NULL REFERENCES jobs (id),
    key      TEXT NOT NULL,
    due      INTEGER NOT NULL,
    recorded INTEGER NOT NULL,
    night    INTEGER REFERENCES nights (id),
    origin   TEXT NOT NULL CHECK (origin IN ('clock', 'event', 'queue', 'manual')),
    priority INTEGER NOT NULL DEFAULT 0,
    settings TEXT,                         -- JSON: settings of the job that hold for this occurrence only
    outcome  TEXT,                         -- null: open
    settled  INTEGER,
    missed   INTEGER GENERATED ALWAYS AS (outcome ->> 'outcome' = 'missed') VIRTUAL,
    UNIQUE (job, key)
) STRICT;
CREATE INDEX occurrences_missed ON occurrences (recorded) WHERE missed;
CREATE INDEX occurrences_night ON occurrences (night) WHERE night IS NOT NULL;
CREATE INDEX occurrences_settled ON occurrences (settled) WHERE settled IS NOT NULL;

CREATE TABLE runs (
    id          TEXT PRIMARY KEY,
    occurrence  TEXT NOT NULL REFERENCES occurrences (id),
    job         INTEGER NOT NULL REFERENCES jobs (id),
    attempt     INTEGER NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('queued', 'requested', 'running', 'settled')),
    ready_at    INTEGER,                   -- queued: the earliest start
    waits_for   TEXT REFERENCES occurrences (id), -- queued: starts only after this one has succeeded
    fence       INTEGER,                   -- given at admission
    requested   INTEGER NOT NULL,          -- when it was queued or requested
    started     INTEGER,                   -- when it was admitted
    finished    INTEGER,                   -- when it was settled
    starter     TEXT,                      -- the process that spawns it; null while queued
    owner       TEXT,                      -- the process that runs it
    deadline    INTEGER,                   -- boot-time milliseconds, in the boot of the owner
    cancel      TEXT,                      -- running: why it was asked to end
    seed        INTEGER NOT NULL,
    staging     TEXT,                      -- relative to the project; null once it is swept
    model_calls INTEGER NOT NULL DEFAULT 0,
    outcome     TEXT,
    summary     TEXT,
    UNIQUE (occurrence, attempt),
    CHECK ((state = 'settled') = (outcome IS NOT NULL)),
    CHECK (state <> 'queued' OR ready_at IS NOT NULL),
    CHECK (state = 'queued' OR waits_for IS NULL)
) STRICT;
-- Recovery examines these: a process answers for them, or did.
CREATE INDEX runs_live ON runs (id) WHERE state IN ('requested', 'running');
CREATE INDEX runs_ready ON runs (ready_at) WHERE state = 'queued' AND waits_for IS NULL;
CREATE INDEX runs_waiting ON runs (waits_for) WHERE waits_for IS NOT NULL;
CREATE INDEX runs_open_by_job ON runs (job) WHERE state <> 'settled';
-- An occurrence has at most one unsettled run.
CREATE UNIQUE INDEX runs_one_open ON runs (occurrence) WHERE state <> 'settled';
CREATE INDEX runs_by_job ON runs (job);
CREATE INDEX runs_tried ON runs (job)
    WHERE outcome ->> 'outcome' IN ('succeeded', 'degraded', 'failed', 'timed-out', 'lost');
CREATE INDEX runs_failed ON runs (job) WHERE outcome ->> 'outcome' IN ('failed', 'timed-out', 'lost');
CREATE INDEX runs_published ON runs (job, finished) WHERE outcome ->> 'outcome' IN ('succeeded', 'degraded');
CREATE INDEX runs_deferred ON runs (occurrence, attempt) WHERE outcome ->> 'outcome' = 'deferred';
CREATE INDEX runs_unswept ON runs (id) WHERE state = 'settled' AND staging IS NOT NULL;

CREATE TABLE publications (
    run       TEXT PRIMARY KEY REFERENCES runs (id),
    fence     INTEGER NOT NULL,
    manifest  TEXT NOT NULL,
    committed INTEGER NOT NULL,
    published INTEGER,                     -- when its outcome was committed
    conflict  TEXT                         -- a target that had neither the old nor the new content
) STRICT;

-- The amounts spent, by budget level and key. Limits belong to the configuration and are not stored.
CREATE TABLE budget_usage (
    level   TEXT NOT NULL,
    key     TEXT NOT NULL,
    calls   INTEGER NOT NULL DEFAULT 0,
    tokens  INTEGER NOT NULL DEFAULT 0,
    micros  INTEGER NOT NULL DEFAULT 0,    -- millionths of a dollar
    seconds INTEGER NOT NULL DEFAULT 0,
    ideas   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (level, key)
) STRICT, WITHOUT ROWID;

-- The most that a run may spend, reserved at each of its budget levels until the run is settled.
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
CREATE INDEX reservations_by_level ON reservations (level, key);

-- A run whose reservation came out of the reservation of another run.
CREATE TABLE escalations (
    run    TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    parent TEXT NOT NULL                   -- a run
) STRICT, WITHOUT ROWID;

-- Model calls, each reserved out of the reservation of its run and settled when its usage is known.
CREATE TABLE requests (
    id      INTEGER PRIMARY KEY,
    run     TEXT NOT NULL REFERENCES runs (id),
    made    INTEGER NOT NULL,
    backend TEXT NOT NULL,
    calls   INTEGER NOT NULL,
    tokens  INTEGER NOT NULL,
    micros  INTEGER NOT NULL,
    ideas   INTEGER NOT NULL,
    stated  INTEGER NOT NULL DEFAULT 0,    -- the backend stated its usage
    money   TEXT,                          -- how the money is known: 'stated', 'priced', 'reserved'; null: it is not
    settled INTEGER,
    note    TEXT
) STRICT;
CREATE INDEX requests_by_run ON requests (run);

-- One-off additions to the limit of a budget level. They end with the period of the level, or earlier.
CREATE TABLE grants (
    id      INTEGER PRIMARY KEY,
    level   TEXT NOT NULL,
    key     TEXT NOT NULL,
    made    INTEGER NOT NULL,
    until   INTEGER,                       -- null: as long as the period of its level
    calls   INTEGER NOT NULL,
    tokens  INTEGER NOT NULL,
    micros  INTEGER NOT NULL,
    seconds INTEGER NOT NULL,
    ideas   INTEGER NOT NULL,
    reason  TEXT NOT NULL,
    who     TEXT NOT NULL
) STRICT;
CREATE INDEX grants_by_level ON grants (level, key);

-- The last window of each pool. A window opens with the first run that is admitted in it.
CREATE TABLE windows (
    pool   TEXT PRIMARY KEY,
    opened INTEGER NOT NULL,
    closes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The limits that providers reported, by pool. The next answer deletes them.
CREATE TABLE limits (
    pool   TEXT PRIMARY KEY,
    until  INTEGER NOT NULL,               -- no request is made before
    streak INTEGER NOT NULL,               -- refusals, each after the wait for the one before
    noted  INTEGER NOT NULL,
    why    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Resets of a circuit breaker: failures up to this run no longer count.
CREATE TABLE breaker_resets (
    id  INTEGER PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    run TEXT NOT NULL,                     -- the last run of the job; older runs may have been pruned
    at  INTEGER NOT NULL,
    who TEXT NOT NULL
) STRICT;
CREATE INDEX breaker_resets_by_job ON breaker_resets (job);

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

-- Outcomes that were not yet examined for alerts. Settling writes them and the next tick deletes them.
CREATE TABLE news (
    id         INTEGER PRIMARY KEY,
    occurrence TEXT NOT NULL REFERENCES occurrences (id) ON DELETE CASCADE,
    run        TEXT                        -- null: the occurrence was missed
) STRICT;
CREATE INDEX news_by_occurrence ON news (occurrence);

-- The problems of jobs; of each kind at most one is open. `engine/src/alerts.rs` draws their states.
CREATE TABLE alerts (
    id          TEXT PRIMARY KEY,
    job         INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    kind        TEXT NOT NULL,
    raised      INTEGER NOT NULL,
    last        INTEGER NOT NULL,          -- when it last happened
    notified    INTEGER NOT NULL,          -- when messages were last made
    count       INTEGER NOT NULL,          -- how often it has happened
    run         TEXT,                      -- the last run that it is about
    why         TEXT NOT NULL,
    silenced    INTEGER,
    silenced_by TEXT,
    ended       INTEGER,                   -- null: open
    ending      TEXT                       -- 'recovered', or the person who acknowledged it
) STRICT;
CREATE UNIQUE INDEX alerts_open ON alerts (job, kind) WHERE ended IS NULL;
CREATE INDEX alerts_ended ON alerts (ended) WHERE ended IS NOT NULL;

-- Messages of alerts, each to one channel.
CREATE TABLE messages (
    id      TEXT PRIMARY KEY,
    alert   TEXT NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    channel TEXT NOT NULL,
    kind    TEXT NOT NULL CHECK (kind IN ('raised', 'repeated', 'recovered')),
    made    INTEGER NOT NULL,
    detail  TEXT NOT NULL,                 -- JSON: the state of the alert when the message was made
    state   TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'given-up', 'withdrawn')),
    tries   INTEGER NOT NULL DEFAULT 0,
    next    INTEGER NOT NULL,              -- waiting: the earliest time of the next try
    ended   INTEGER,                       -- when it stopped waiting
    error   TEXT NOT NULL DEFAULT ''       -- the error of the last try, redacted
) STRICT;
CREATE INDEX messages_waiting ON messages (next) WHERE state = 'waiting';
CREATE INDEX messages_given_up ON messages (made) WHERE state = 'given-up';
CREATE INDEX messages_by_alert ON messages (alert);

-- When each kind of maintenance of this file was last done. The row `schema` has the digest of the
-- steps that made the file.
CREATE TABLE maintenance (
    task   TEXT PRIMARY KEY,
    done   INTEGER NOT NULL,
    detail TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
