-- Refusals of an earlier run of a replay on pipelines that pass now.
update spillway.decision set status = 'failed', reason = 'observed anew and not decided yet'
where kind = 'qod' and interval_start = %(start)s and interval_end = %(end)s and origin = %(origin)s and replay = %(replay)s and policy = %(policy)s
  and status = 'refused' and pipeline = any(%(pipelines)s)
