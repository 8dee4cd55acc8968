-- Format 6: what a list of runs needs to find its rows without reading all runs.
CREATE INDEX runs_by_outcome ON runs (coalesce(outcome ->> 'outcome', state));
CREATE INDEX runs_failures ON runs (state) WHERE outcome ->> 'outcome' IN ('failed', 'timed-out', 'lost');
CREATE INDEX runs_by_time ON runs (requested);

-- The texts of ended runs, by sequences of three characters. The row of a text has the number of its run.
CREATE VIRTUAL TABLE run_texts USING fts5 (
    text, content = '', contentless_delete = 1, detail = none, tokenize = 'trigram'
);
CREATE TRIGGER run_texts_new AFTER INSERT ON runs WHEN new.state = 'settled' BEGIN
    INSERT INTO run_texts (rowid, text)
    SELECT new.rowid, name || char(10) || coalesce(new.summary ->> 'headline', '') || char(10)
        || coalesce(new.outcome ->> 'why', '') FROM jobs WHERE id = new.job;
END;
CREATE TRIGGER run_texts_settled AFTER UPDATE OF outcome, summary ON runs WHEN new.state = 'settled' BEGIN
    INSERT OR REPLACE INTO run_texts (rowid, text)
    SELECT new.rowid, name || char(10) || coalesce(new.summary ->> 'headline', '') || char(10)
        || coalesce(new.outcome ->> 'why', '') FROM jobs WHERE id = new.job;
END;
CREATE TRIGGER run_texts_gone AFTER DELETE ON runs WHEN old.state = 'settled' BEGIN
    DELETE FROM run_texts WHERE rowid = old.rowid;
END;
INSERT INTO run_texts (rowid, text)
SELECT r.rowid, j.name || char(10) || coalesce(r.summary ->> 'headline', '') || char(10)
    || coalesce(r.outcome ->> 'why', '') FROM runs r JOIN jobs j ON j.id = r.job WHERE r.state = 'settled';
