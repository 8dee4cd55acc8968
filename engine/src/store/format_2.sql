-- Format 2: the files of each project that a person has accepted. The digests decide; the texts, in which
-- secrets are replaced, only show what changed.
CREATE TABLE trust (
    project TEXT PRIMARY KEY REFERENCES projects (id),
    at      INTEGER NOT NULL,
    digests TEXT NOT NULL,  -- JSON: {"files": {path: digest}, "jobs": {name: digest}, "common": digest}
    texts   TEXT NOT NULL   -- JSON: {path: text}
) STRICT;
