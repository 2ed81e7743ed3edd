select plan, ordinal, step, state, attempts, began_at, ended_at, evidence, detail
from spillway.rescale_step where plan = any(%(plans)s::bigint[])
order by plan, ordinal
