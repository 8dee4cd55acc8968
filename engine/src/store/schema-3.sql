-- Format 3: what later looks need. Only additions, so that every row of the formats before stays as it
-- is and live reservations go on.

-- All that was ever held of an account is found without reading what others held.
CREATE INDEX reservations_by_account ON reservations (level, key);

-- Nights: the report that was made last, in one line, and the folder that it lies in: a night whose name
-- another one had before has a folder of its own.
ALTER TABLE nights ADD COLUMN headline TEXT;
ALTER TABLE nights ADD COLUMN worst TEXT;
ALTER TABLE nights ADD COLUMN folder TEXT;

-- Projects: whether the folder was seen to have its id for its own, in its git folder, and not only the
-- seed that every clone is born with. No other clone is taken for it then.
ALTER TABLE projects ADD COLUMN own INTEGER NOT NULL DEFAULT 0;

-- Alerts (engine/src/alerts.rs draws their states). What was settled or missed and nobody has looked at
-- with an eye to alerts: written by whoever settles, emptied by the next tick.
CREATE TABLE news (
    id         INTEGER PRIMARY KEY,
    occurrence TEXT NOT NULL REFERENCES occurrences (id) ON DELETE CASCADE,
    run        TEXT                       -- absent: missed
) STRICT;
CREATE INDEX news_by_occurrence ON news (occurrence);

-- A trouble of a job; at most one of a kind is open.
CREATE TABLE alerts (
    id       TEXT PRIMARY KEY,
    job      INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    kind     TEXT NOT NULL,
    raised   INTEGER NOT NULL,
    last     INTEGER NOT NULL,            -- when it last happened
    told     INTEGER NOT NULL,            -- when messages were last made
    count    INTEGER NOT NULL,            -- how often it has happened
    run      TEXT,                        -- the last one
    why      TEXT NOT NULL,
    silenced INTEGER,
    silenced_by TEXT,
    ended    INTEGER,                     -- null: open
    ending   TEXT                         -- 'recovered', or by whom it was acknowledged
) STRICT;
CREATE UNIQUE INDEX alerts_open ON alerts (job, kind) WHERE ended IS NULL;
CREATE INDEX alerts_ended ON alerts (ended) WHERE ended IS NOT NULL;

-- One message of an alert to one channel.
CREATE TABLE messages (
    id      TEXT PRIMARY KEY,
    alert   TEXT NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    channel TEXT NOT NULL,
    what    TEXT NOT NULL CHECK (what IN ('raised', 'repeated', 'recovered')),
    made    INTEGER NOT NULL,
    detail  TEXT NOT NULL,                -- JSON: what it tells, as it was when it was made
    state   TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'given-up', 'withdrawn')),
    tries   INTEGER NOT NULL DEFAULT 0,
    next    INTEGER NOT NULL,             -- waiting: not before this moment
    over    INTEGER,                      -- when it was no longer waiting
    said    TEXT NOT NULL DEFAULT ''      -- what went wrong with the last try, redacted
) STRICT;
CREATE INDEX messages_waiting ON messages (next) WHERE state = 'waiting';
CREATE INDEX messages_given_up ON messages (made) WHERE state = 'given-up';
CREATE INDEX messages_by_alert ON messages (alert);

-- Since when somebody looks whether the job succeeds from time to time; null while nobody does.
ALTER TABLE jobs ADD COLUMN watched INTEGER;
CREATE INDEX runs_placed ON runs (job, finished) WHERE outcome ->> 'outcome' IN ('succeeded', 'degraded');
