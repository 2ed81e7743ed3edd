update spillway.decision
set status = %(status)s, reason = %(reason)s, published_at = case %(status)s when 'published' then clock_timestamp() else published_at end
where id = %(id)s
