-- Format 3: what later looks need. Only additions, so that every row of the formats before stays as it
-- is and live reservations go on.

-- All that was ever held of an account is found without reading what others held.
CREATE INDEX reservations_by_account ON reservations (level, key);
