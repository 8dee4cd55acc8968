-- Format 4: the last changes, in their order, for programs that follow the database. The triggers write them, so that
-- no writer can forget one. A number is never used again.
CREATE TABLE changes (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT,                          -- null: the change is about all projects
    kind    TEXT NOT NULL,                 -- 'run', 'job', 'night', 'alert', 'grant', 'pause' or 'event'
    subject TEXT NOT NULL,                 -- the id or the name of what changed
    state   TEXT NOT NULL                  -- its state after the change
) STRICT;
CREATE TRIGGER changes_kept AFTER INSERT ON changes WHEN new.id % 1000 = 0 BEGIN
    DELETE FROM changes WHERE id <= new.id - 10000;
END;

CREATE TRIGGER changes_run_new AFTER INSERT ON runs BEGIN
    INSERT INTO changes (project, kind, subject, state)
    SELECT project, 'run', new.id, new.state FROM jobs WHERE id = new.job;
END;
CREATE TRIGGER changes_run AFTER UPDATE OF state, cancel ON runs
WHEN old.state IS NOT new.state OR old.cancel IS NOT new.cancel BEGIN
    INSERT INTO changes (project, kind, subject, state)
    SELECT project, 'run', new.id,
        CASE WHEN new.state = 'settled' THEN new.outcome ->> 'outcome'
             WHEN new.cancel IS NOT NULL THEN 'ending' ELSE new.state END
    FROM jobs WHERE id = new.job;
END;
CREATE TRIGGER changes_job AFTER UPDATE OF paused_until, enabled, schedule ON jobs
WHEN old.paused_until IS NOT new.paused_until OR old.enabled IS NOT new.enabled
    OR old.schedule IS NOT new.schedule BEGIN
    INSERT INTO changes (project, kind, subject, state) VALUES (new.project, 'job', new.name, 'changed');
END;
CREATE TRIGGER changes_breaker AFTER INSERT ON breaker_resets BEGIN
    INSERT INTO changes (project, kind, subject, state)
    SELECT project, 'job', name, 'reset' FROM jobs WHERE id = new.job;
END;
CREATE TRIGGER changes_night_new AFTER INSERT ON nights BEGIN
    INSERT INTO changes (project, kind, subject, state) VALUES (new.project, 'night', new.name, 'open');
END;
CREATE TRIGGER changes_night AFTER UPDATE OF closed, headline ON nights
WHEN old.closed IS NOT new.closed OR old.headline IS NOT new.headline BEGIN
    INSERT INTO changes (project, kind, subject, state)
    VALUES (new.project, 'night', new.name, iif(new.closed IS NULL, 'open', 'closed'));
END;
CREATE TRIGGER changes_alert_new AFTER INSERT ON alerts BEGIN
    INSERT INTO changes (project, kind, subject, state)
    SELECT project, 'alert', new.id, 'raised' FROM jobs WHERE id = new.job;
END;
CREATE TRIGGER changes_alert AFTER UPDATE OF silenced, ended ON alerts
WHEN old.silenced IS NOT new.silenced OR old.ended IS NOT new.ended BEGIN
    INSERT INTO changes (project, kind, subject, state)
    SELECT project, 'alert', new.id, iif(new.ended IS NULL, 'silenced', 'ended') FROM jobs WHERE id = new.job;
END;
CREATE TRIGGER changes_grant AFTER INSERT ON grants BEGIN
    INSERT INTO changes (project, kind, subject, state) VALUES (NULL, 'grant', new.level, 'made');
END;
CREATE TRIGGER changes_pause_new AFTER INSERT ON pause BEGIN
    INSERT INTO changes (project, kind, subject, state) VALUES (NULL, 'pause', 'all', 'changed');
END;
CREATE TRIGGER changes_pause AFTER UPDATE ON pause WHEN old.until IS NOT new.until BEGIN
    INSERT INTO changes (project, kind, subject, state) VALUES (NULL, 'pause', 'all', 'changed');
END;
CREATE TRIGGER changes_pause_end AFTER DELETE ON pause BEGIN
    INSERT INTO changes (project, kind, subject, state) VALUES (NULL, 'pause', 'all', 'changed');
END;
CREATE TRIGGER changes_event AFTER INSERT ON events BEGIN
    INSERT INTO changes (project, kind, subject, state) VALUES (new.project, 'event', coalesce(new.run, ''), new.kind);
END;
