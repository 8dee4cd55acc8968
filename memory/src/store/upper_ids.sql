-- Imported ids in lower case become upper case, like the ids in commands. An id that the store contains in both
-- cases is kept.
PRAGMA defer_foreign_keys = ON;
-- Undoing an earlier change would restore ids in lower case.
DELETE FROM undo_steps WHERE EXISTS (SELECT 1 FROM nodes WHERE id <> upper(id));
DELETE FROM changes WHERE EXISTS (SELECT 1 FROM nodes WHERE id <> upper(id));
UPDATE OR IGNORE node_index SET node_id = upper(node_id) WHERE node_id <> upper(node_id);
UPDATE OR IGNORE tags SET node_id = upper(node_id) WHERE node_id <> upper(node_id);
UPDATE OR IGNORE edges SET from_id = upper(from_id), to_id = upper(to_id)
    WHERE from_id <> upper(from_id) OR to_id <> upper(to_id);
UPDATE OR IGNORE delivered SET node_id = upper(node_id) WHERE node_id <> upper(node_id);
UPDATE OR IGNORE nodes SET id = upper(id), superseded_by = upper(superseded_by)
    WHERE id <> upper(id) OR superseded_by <> upper(superseded_by);
