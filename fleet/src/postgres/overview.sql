SELECT jsonb_build_object(
    'now', t.now,
    'hosts', (SELECT coalesce(jsonb_agg(jsonb_build_array(to_jsonb(h), (
                  SELECT count(*) FROM runner_fleet.occurrences o
                  WHERE o.wake IS NOT NULL AND o.owner = h.worker)) ORDER BY host COLLATE "C"), '[]')
              FROM runner_fleet.hosts h WHERE h.state <> 'left'),
    'open', (SELECT coalesce(jsonb_object_agg(state, number), '{}')
             FROM (SELECT state, count(*) AS number FROM runner_fleet.occurrences
                   WHERE state <> 'settled' GROUP BY state) o),
    'day', (SELECT to_jsonb(b) FROM runner_fleet.budgets b WHERE b.level = t.day))
FROM (SELECT now, 'day ' || to_char(to_timestamp(now / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day
      FROM (SELECT runner_fleet.clock() AS now) c) t
