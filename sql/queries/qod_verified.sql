update spillway.decision set verified = %(verified)s::jsonb, verified_at = clock_timestamp() where id = %(id)s
