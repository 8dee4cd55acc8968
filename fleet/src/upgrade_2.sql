-- From format 1 to format 2: large contents are stored in parts.
ALTER TABLE runner_fleet.blobs ADD COLUMN part integer NOT NULL DEFAULT 0;
ALTER TABLE runner_fleet.blobs ALTER COLUMN part DROP DEFAULT;
ALTER TABLE runner_fleet.blobs DROP CONSTRAINT blobs_pkey;
ALTER TABLE runner_fleet.blobs ADD PRIMARY KEY (digest, part);
