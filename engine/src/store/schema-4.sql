-- Format 4: which folder a project is. Only an addition, so that every row of the formats before stays as
-- it is and live reservations go on.

-- When the project's folder was made, in nanoseconds since 1970: an inode is given to the next folder once
-- its own is removed. Null: not known.
ALTER TABLE projects ADD COLUMN born INTEGER;
