-- The driver that runs stops the operator's query at a committed batch and starts it again, with these buckets.
update spillway.operator_state
set incarnation = %(incarnation)s, buckets = %(buckets)s, changed_at = %(now)s
where pipeline = %(pipeline)s and operator = %(operator)s and incarnation < %(incarnation)s and checkpoint = %(checkpoint)s
