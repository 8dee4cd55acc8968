CREATE TABLE nodes (
    id TEXT PRIMARY KEY NOT NULL,
    type TEXT NOT NULL,
    content TEXT NOT NULL,
    summary TEXT,
    token_estimate INTEGER NOT NULL,
    superseded_by TEXT REFERENCES nodes(id) ON DELETE SET NULL,
    project TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    metadata TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX nodes_superseded_by ON nodes(superseded_by) WHERE superseded_by IS NOT NULL;
CREATE TABLE edges (
    id TEXT PRIMARY KEY NOT NULL,
    from_id TEXT NOT NULL REFERENCES nodes(id) ON DELETE CASCADE,
    to_id TEXT NOT NULL REFERENCES nodes(id) ON DELETE CASCADE,
    type TEXT NOT NULL,
    created_at TEXT NOT NULL,
    metadata TEXT NOT NULL DEFAULT '{}',
    UNIQUE (from_id, to_id, type)
);
CREATE INDEX edges_to ON edges(to_id, type);
CREATE TABLE tags (
    node_id TEXT NOT NULL REFERENCES nodes(id) ON DELETE CASCADE,
    tag TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (node_id, tag)
) WITHOUT ROWID;
CREATE INDEX tags_by_tag ON tags(tag, node_id);
CREATE TABLE views (
    name TEXT PRIMARY KEY NOT NULL,
    query TEXT NOT NULL,
    budget INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE pending (
    session TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (session, key)
) WITHOUT ROWID;

-- Increases with every change to nodes, tags, edges and views.
CREATE TABLE state (generation INTEGER NOT NULL);
INSERT INTO state VALUES (0);

-- The order of the nodes, and the columns that the hooks read without reading the nodes. `tier` is 0 to 2
-- for pinned, reference and working, and NULL for a node that a session's block never contains. A row
-- outlives its node, so that a session learns that the node is gone.
CREATE TABLE node_index (
    seq INTEGER PRIMARY KEY,
    node_id TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    project TEXT,
    tier INTEGER,
    session TEXT,
    generation INTEGER NOT NULL
);
CREATE INDEX node_index_tier ON node_index(tier, project, type, node_id) WHERE tier IS NOT NULL;
CREATE INDEX node_index_generation ON node_index(generation);
CREATE INDEX node_index_session ON node_index(session, seq) WHERE session IS NOT NULL;

-- `rowid` is `node_index.seq`.
CREATE VIRTUAL TABLE search USING fts5(
    content, summary, content='', contentless_delete=1, tokenize="porter unicode61"
);

-- The state of each session. `cursor` is the byte offset of the transcript's row that began the last turn, or
-- of the first row that was not read within the time limit.
-- Rows of the transcript that are older than `since` were copied from another session.
CREATE TABLE sessions (
    session TEXT PRIMARY KEY NOT NULL,
    folder TEXT NOT NULL,
    project TEXT,
    cursor INTEGER NOT NULL DEFAULT 0,
    since TEXT,
    generation INTEGER,
    skipped INTEGER NOT NULL DEFAULT 0,
    started_at TEXT NOT NULL,
    answered_at TEXT,
    updated_at TEXT NOT NULL
);
CREATE INDEX sessions_folder ON sessions(folder, updated_at);
CREATE TABLE effects (
    turn TEXT NOT NULL,
    digest TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (turn, digest, ordinal)
) WITHOUT ROWID;
-- The nodes that a session has received, complete or cut, and whose content has not changed since.
-- Incomplete previews do not count.
CREATE TABLE delivered (
    session TEXT NOT NULL,
    node_id TEXT NOT NULL,
    PRIMARY KEY (session, node_id)
) WITHOUT ROWID;

-- Undo: the triggers write the statement that reverses each change, as SQLite's documentation describes.
CREATE TABLE changes (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    what TEXT NOT NULL,
    session TEXT,
    undone INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE undo_steps (
    seq INTEGER PRIMARY KEY,
    change_id INTEGER NOT NULL,
    statement TEXT NOT NULL
);
CREATE INDEX undo_steps_change ON undo_steps(change_id);

CREATE TRIGGER nodes_inserted AFTER INSERT ON nodes BEGIN
    INSERT INTO node_index(node_id, type, project, generation)
        VALUES (new.id, new.type, new.project, (SELECT generation FROM state))
        ON CONFLICT (node_id) DO UPDATE SET
            type = new.type, project = new.project, generation = (SELECT generation FROM state);
    INSERT INTO search(rowid, content, summary)
        SELECT seq, new.content, new.summary FROM node_index WHERE node_id = new.id;
    INSERT INTO undo_steps(change_id, statement)
        SELECT coalesce(max(id), 0), 'DELETE FROM nodes WHERE id = ' || quote(new.id) FROM changes;
END;
CREATE TRIGGER nodes_updated AFTER UPDATE ON nodes BEGIN
    UPDATE node_index SET type = new.type, project = new.project,
        generation = (SELECT generation FROM state),
        tier = CASE WHEN new.superseded_by IS NULL THEN (
            SELECT min(CASE tag WHEN 'tier:pinned' THEN 0 WHEN 'tier:reference' THEN 1
                WHEN 'tier:working' THEN 2 END) FROM tags WHERE node_id = new.id) END
        WHERE node_id = new.id;
    DELETE FROM search WHERE rowid = (SELECT seq FROM node_index WHERE node_id = old.id)
        AND (old.content IS NOT new.content OR old.summary IS NOT new.summary);
    INSERT INTO search(rowid, content, summary)
        SELECT seq, new.content, new.summary FROM node_index WHERE node_id = new.id
        AND (old.content IS NOT new.content OR old.summary IS NOT new.summary);
    INSERT INTO undo_steps(change_id, statement)
        SELECT coalesce(max(id), 0), 'UPDATE nodes SET type = ' || quote(old.type) || ', content = ' || quote(old.content)
            || ', summary = ' || quote(old.summary) || ', token_estimate = ' || quote(old.token_estimate)
            || ', superseded_by = ' || quote(old.superseded_by) || ', project = ' || quote(old.project)
            || ', created_at = ' || quote(old.created_at) || ', updated_at = ' || quote(old.updated_at)
            || ', metadata = ' || quote(old.metadata) || ' WHERE id = ' || quote(old.id) FROM changes;
END;
CREATE TRIGGER nodes_deleted AFTER DELETE ON nodes BEGIN
    DELETE FROM search WHERE rowid = (SELECT seq FROM node_index WHERE node_id = old.id);
    UPDATE node_index SET tier = NULL, generation = (SELECT generation FROM state) WHERE node_id = old.id;
    INSERT INTO undo_steps(change_id, statement)
        SELECT coalesce(max(id), 0), 'INSERT INTO nodes VALUES (' || quote(old.id) || ', ' || quote(old.type) || ', '
            || quote(old.content) || ', ' || quote(old.summary) || ', ' || quote(old.token_estimate) || ', '
            || quote(old.superseded_by) || ', ' || quote(old.project) || ', ' || quote(old.created_at) || ', '
            || quote(old.updated_at) || ', ' || quote(old.metadata) || ')' FROM changes;
END;
CREATE TRIGGER tags_inserted AFTER INSERT ON tags BEGIN
    UPDATE node_index SET generation = (SELECT generation FROM state), tier = (
        SELECT CASE WHEN superseded_by IS NULL THEN (
            SELECT min(CASE tag WHEN 'tier:pinned' THEN 0 WHEN 'tier:reference' THEN 1
                WHEN 'tier:working' THEN 2 END) FROM tags WHERE node_id = new.node_id) END
        FROM nodes WHERE id = new.node_id) WHERE node_id = new.node_id;
    INSERT INTO undo_steps(change_id, statement)
        SELECT coalesce(max(id), 0), 'DELETE FROM tags WHERE node_id = ' || quote(new.node_id)
            || ' AND tag = ' || quote(new.tag) FROM changes;
END;
CREATE TRIGGER tags_deleted AFTER DELETE ON tags BEGIN
    UPDATE node_index SET generation = (SELECT generation FROM state), tier = (
        SELECT CASE WHEN superseded_by IS NULL THEN (
            SELECT min(CASE tag WHEN 'tier:pinned' THEN 0 WHEN 'tier:reference' THEN 1
                WHEN 'tier:working' THEN 2 END) FROM tags WHERE node_id = old.node_id) END
        FROM nodes WHERE id = old.node_id) WHERE node_id = old.node_id;
    INSERT INTO undo_steps(change_id, statement)
        SELECT coalesce(max(id), 0), 'INSERT OR IGNORE INTO tags VALUES (' || quote(old.node_id) || ', ' || quote(old.tag)
            || ', ' || quote(old.created_at) || ')' FROM changes;
END;
CREATE TRIGGER edges_inserted AFTER INSERT ON edges BEGIN
    INSERT INTO undo_steps(change_id, statement)
        SELECT coalesce(max(id), 0), 'DELETE FROM edges WHERE id = ' || quote(new.id) FROM changes;
END;
CREATE TRIGGER edges_deleted AFTER DELETE ON edges BEGIN
    INSERT INTO undo_steps(change_id, statement)
        SELECT coalesce(max(id), 0), 'INSERT OR IGNORE INTO edges VALUES (' || quote(old.id) || ', ' || quote(old.from_id)
            || ', ' || quote(old.to_id) || ', ' || quote(old.type) || ', ' || quote(old.created_at) || ', '
            || quote(old.metadata) || ')' FROM changes;
END;
CREATE TRIGGER views_inserted AFTER INSERT ON views BEGIN
    INSERT INTO undo_steps(change_id, statement)
        SELECT coalesce(max(id), 0), 'DELETE FROM views WHERE name = ' || quote(new.name) FROM changes;
END;
CREATE TRIGGER views_changed BEFORE UPDATE ON views BEGIN
    INSERT INTO undo_steps(change_id, statement)
        SELECT coalesce(max(id), 0), 'UPDATE views SET query = ' || quote(old.query) || ', budget = ' || quote(old.budget)
            || ', updated_at = ' || quote(old.updated_at) || ' WHERE name = ' || quote(old.name) FROM changes;
END;
CREATE TRIGGER views_deleted AFTER DELETE ON views BEGIN
    INSERT INTO undo_steps(change_id, statement)
        SELECT coalesce(max(id), 0), 'INSERT INTO views VALUES (' || quote(old.name) || ', ' || quote(old.query) || ', '
            || quote(old.budget) || ', ' || quote(old.created_at) || ', ' || quote(old.updated_at) || ')'
            FROM changes;
END;
