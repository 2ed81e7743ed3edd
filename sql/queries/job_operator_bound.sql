update spillway.operator_state set max_rows = %(max_rows)s, changed_at = now()
where pipeline = %(pipeline)s and operator = %(operator)s
