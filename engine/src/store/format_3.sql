-- Format 3: the files that runner published last, by path. A file that acts on something later is compared with
-- its digest here, because somebody else may have written it.
CREATE TABLE published_files (
    project TEXT NOT NULL REFERENCES projects (id),
    path    TEXT NOT NULL,
    digest  TEXT NOT NULL,
    at      INTEGER NOT NULL,  -- when the file was published, or when a person adopted it
    PRIMARY KEY (project, path)
) STRICT, WITHOUT ROWID;

INSERT OR REPLACE INTO published_files (project, path, digest, at)
SELECT j.project, e.value ->> 'target', e.value ->> 'after', p.published
FROM publications p
JOIN runs r ON r.id = p.run
JOIN jobs j ON j.id = r.job
JOIN json_each(p.manifest, '$.entries') e
WHERE p.published IS NOT NULL AND e.value ->> 'after' IS NOT NULL
ORDER BY p.published;
