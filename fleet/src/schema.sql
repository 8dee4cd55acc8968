-- Format 2 of a fleet's database. Times are milliseconds since the Unix epoch in UTC, read from the
-- database's own clock. Amounts are arrays of calls, tokens, micros (millionths of a dollar), seconds and
-- ideas, in this order; in a limit, NULL means no limit.
--
-- occurrences: pending ──claim──> claimed ──deliver──> delivered ──begin_publish──> publishing ──settle──> settled
--                 ^                  │ lease over, release                              │
--                 └──────────────────┴──────────────────────────────────────────── reopen
--
-- A transaction locks occurrences first, then groups by name, then budgets by level, so that no two of them
-- wait for each other.

CREATE SCHEMA runner_fleet;

-- Every decision takes its time from this function, so that the clocks of the hosts do not matter.
CREATE FUNCTION runner_fleet.clock() RETURNS bigint LANGUAGE sql VOLATILE AS
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint';

CREATE TABLE runner_fleet.format (
    one     integer PRIMARY KEY CHECK (one = 1),
    version integer NOT NULL,
    made    bigint NOT NULL
);

CREATE TABLE runner_fleet.hosts (
    host    text PRIMARY KEY,           -- the name of the machine and the id of the state folder
    worker  text NOT NULL,              -- the host and its boot
    state   text NOT NULL CHECK (state IN ('active', 'draining', 'left')),
    tags    text[] NOT NULL,
    version text NOT NULL,              -- the version of runner
    joined  bigint NOT NULL,
    seen    bigint NOT NULL             -- when it last joined, checked in, or worked on a claim
);

CREATE TABLE runner_fleet.occurrences (
    id        text PRIMARY KEY,
    project   text NOT NULL,
    job       text NOT NULL,
    key       text NOT NULL,
    home      text NOT NULL,            -- the only host that publishes the result
    due       bigint NOT NULL,
    state     text NOT NULL CHECK (state IN ('pending', 'claimed', 'delivered', 'publishing', 'settled')),
    wake      bigint,                   -- pending: the earliest claim; claimed: the end of the lease; else null
    fence     bigint NOT NULL DEFAULT 0,
    owner     text,                     -- claimed: the worker
    "group"   text,                     -- the concurrency group; null: none
    slots     integer,                  -- maximum number of claimed occurrences of the group
    tags      text[] NOT NULL,          -- a host needs all of them
    levels    text[] NOT NULL,          -- the budget levels, without repetitions
    want      bigint[] NOT NULL,        -- the amounts that a claim reserves at each level
    lease     bigint NOT NULL,          -- milliseconds
    lost      integer NOT NULL DEFAULT 0, -- claims whose lease ended without a result
    most_lost integer NOT NULL,         -- after this many lost claims, the occurrence is lost
    source    jsonb NOT NULL,
    cancel    text,                     -- the reason the run should end
    why       text,                     -- pending: the reason it waits
    outcome   jsonb,                    -- delivered and later: the result; settled: the recorded outcome
    settled   bigint,
    UNIQUE (project, job, key),
    CHECK ((wake IS NOT NULL) = (state IN ('pending', 'claimed'))),
    CHECK ((owner IS NOT NULL) = (state = 'claimed')),
    CHECK ((outcome IS NOT NULL) = (state IN ('delivered', 'publishing', 'settled')))
);
CREATE INDEX occurrences_wake ON runner_fleet.occurrences (wake, id COLLATE "C") WHERE wake IS NOT NULL;
CREATE INDEX occurrences_home ON runner_fleet.occurrences (home) WHERE state <> 'settled';
CREATE INDEX occurrences_group ON runner_fleet.occurrences ("group") WHERE state = 'claimed' AND "group" IS NOT NULL;

-- Each claim. An open claim has reserved `reserved` at the levels of its occurrence; a closed one has been
-- charged `charged`.
CREATE TABLE runner_fleet.attempts (
    occurrence text NOT NULL REFERENCES runner_fleet.occurrences (id) ON DELETE CASCADE,
    fence      bigint NOT NULL,
    worker     text NOT NULL,
    host       text NOT NULL,
    claimed    bigint NOT NULL,
    ended      bigint,
    ending     text CHECK (ending IN ('delivered', 'released', 'lost', 'late')),
    reserved   bigint[] NOT NULL,
    charged    bigint[],
    not_before bigint,                  -- released: this host does not claim the occurrence again before this time
    outcome    jsonb,                   -- delivered and late
    summary    jsonb,
    manifest   jsonb,
    PRIMARY KEY (occurrence, fence),
    CHECK ((ended IS NOT NULL) = (ending IS NOT NULL)),
    CHECK ((ended IS NOT NULL) = (charged IS NOT NULL))
);
CREATE INDEX attempts_not_before ON runner_fleet.attempts (occurrence, host) WHERE not_before IS NOT NULL;

-- Rows that are locked while the claimed occurrences of a group are counted.
CREATE TABLE runner_fleet.groups (
    name text PRIMARY KEY
);

CREATE TABLE runner_fleet.budgets (
    level  text PRIMARY KEY,
    limits bigint[] NOT NULL,
    used   bigint[] NOT NULL DEFAULT '{0,0,0,0,0}',
    held   bigint[] NOT NULL DEFAULT '{0,0,0,0,0}'
);

-- Sources and results, by their SHA-256, in parts that are numbered from 0.
CREATE TABLE runner_fleet.blobs (
    digest  text NOT NULL,
    part    integer NOT NULL,
    stored  bigint NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (digest, part)
);
