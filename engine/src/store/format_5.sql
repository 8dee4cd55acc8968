-- Format 5: counts of settled runs, so that metrics read as many rows as there are jobs, not runs. Pruning
-- deletes runs and leaves the counts.
CREATE TABLE run_totals (
    job     INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    outcome TEXT NOT NULL,
    class   TEXT NOT NULL,     -- the class of a failure; empty for other outcomes
    runs    INTEGER NOT NULL,
    last    INTEGER NOT NULL,  -- when the last of them was settled
    PRIMARY KEY (job, outcome, class)
) STRICT, WITHOUT ROWID;

-- The durations of settled runs that had started, by the smallest limit that they did not exceed.
CREATE TABLE run_durations (
    job    INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    most   INTEGER NOT NULL,   -- seconds; 0: longer than every limit
    runs   INTEGER NOT NULL,
    millis INTEGER NOT NULL,   -- their durations together
    PRIMARY KEY (job, most)
) STRICT, WITHOUT ROWID;

INSERT INTO run_totals (job, outcome, class, runs, last)
SELECT job, outcome ->> 'outcome', coalesce(outcome ->> 'class', ''), count(*), max(finished)
FROM runs WHERE state = 'settled' GROUP BY 1, 2, 3;

INSERT INTO run_durations (job, most, runs, millis)
SELECT job,
    CASE WHEN millis <= 1000 THEN 1 WHEN millis <= 5000 THEN 5 WHEN millis <= 15000 THEN 15
         WHEN millis <= 60000 THEN 60 WHEN millis <= 300000 THEN 300 WHEN millis <= 900000 THEN 900
         WHEN millis <= 3600000 THEN 3600 WHEN millis <= 14400000 THEN 14400 ELSE 0 END,
    count(*), sum(millis)
FROM (SELECT job, max(0, finished - started) AS millis FROM runs
      WHERE state = 'settled' AND started IS NOT NULL) GROUP BY 1, 2;
