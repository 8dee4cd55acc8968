SELECT jsonb_build_object(
    'hosts', (SELECT coalesce(jsonb_agg(to_jsonb(h) ORDER BY host COLLATE "C"), '[]')
              FROM runner_fleet.hosts h),
    'occurrences', (SELECT coalesce(jsonb_agg(to_jsonb(o) ORDER BY id COLLATE "C"), '[]')
                    FROM runner_fleet.occurrences o),
    'attempts', (SELECT coalesce(jsonb_agg(to_jsonb(a) ORDER BY occurrence COLLATE "C", fence), '[]')
                 FROM runner_fleet.attempts a),
    'budgets', (SELECT coalesce(jsonb_agg(to_jsonb(b) ORDER BY level COLLATE "C"), '[]')
                FROM runner_fleet.budgets b),
    'now', runner_fleet.clock())
