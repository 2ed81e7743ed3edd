-- Every keep that was set since a moment, by whomever.
select edge, keep, decision_id, issued_at, issued_by from spillway.setting_history
where pipeline = %(pipeline)s and issued_at >= %(since)s
order by issued_at, edge
