-- Starts an operator anew: another path, other writers, other markers, and nothing fixed until it is launched.
update spillway.operator_state set checkpoint = checkpoint + 1, launched_at = null, changed_at = now()
where pipeline = %(pipeline)s and operator = %(operator)s
returning checkpoint
