-- Format 2: what the accounts learned since. Only additions, so that every row of format 1 stays as
-- it is and live reservations go on.

-- One-off extras to what an account may hold. They end with their account's period, or before.
CREATE TABLE grants (
    id      INTEGER PRIMARY KEY,
    level   TEXT NOT NULL,
    key     TEXT NOT NULL,
    made    INTEGER NOT NULL,
    until   INTEGER,                      -- null: as long as its account's period
    calls   INTEGER NOT NULL,
    tokens  INTEGER NOT NULL,
    micros  INTEGER NOT NULL,
    seconds INTEGER NOT NULL,
    ideas   INTEGER NOT NULL,
    reason  TEXT NOT NULL,
    who     TEXT NOT NULL
) STRICT;
CREATE INDEX grants_by_account ON grants (level, key);

-- The window of a pool that is open, or was the last: it opens with the first run that is admitted.
CREATE TABLE windows (
    pool   TEXT PRIMARY KEY,
    opened INTEGER NOT NULL,
    closes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What a provider refused, by pool. Deleted by the next answer.
CREATE TABLE limits (
    pool   TEXT PRIMARY KEY,
    until  INTEGER NOT NULL,              -- nothing is asked before
    streak INTEGER NOT NULL,              -- refusals, each after the wait for the one before
    noted  INTEGER NOT NULL,
    why    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Failures that somebody has seen: those up to that run count no more.
CREATE TABLE acks (
    id   INTEGER PRIMARY KEY,
    job  INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    run  TEXT NOT NULL,                   -- the job's last run; older runs may have been pruned
    at   INTEGER NOT NULL,
    who  TEXT NOT NULL
) STRICT;
CREATE INDEX acks_by_job ON acks (job);

-- A run whose reservation came out of another's.
CREATE TABLE escalations (
    run    TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    parent TEXT NOT NULL                  -- a run
) STRICT, WITHOUT ROWID;

-- How the money of a request is known: stated, by a list of prices, or not. Null: before format 2.
ALTER TABLE requests ADD COLUMN money TEXT;

-- What a look at a project needs of its configuration, as the program above wrote it with the jobs of
-- the same stamp. Null: before format 2, or never read.
ALTER TABLE projects ADD COLUMN projection TEXT;

-- What is next in each project, the first by name where several are due at once: no job's row is read
-- but that one's.
CREATE INDEX jobs_next ON jobs (project, next_due, name, paused_until)
    WHERE enabled AND next_due IS NOT NULL;
-- Which jobs fail is asked of those that ever did.
CREATE INDEX runs_failed ON runs (job) WHERE outcome ->> 'outcome' IN ('failed', 'timed-out', 'lost');
