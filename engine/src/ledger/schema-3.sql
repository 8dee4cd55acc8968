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
