-- Plans that a decision has asked for.
select id from spillway.rescale_plan where decision = %(decision)s order by id
