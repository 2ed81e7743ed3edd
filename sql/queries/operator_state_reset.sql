-- Starts an operator anew: another path, other writers, other markers, and nothing fixed until it is launched. A checkpoint that a plan
-- began to make is not used again.
update spillway.operator_state s
set checkpoint = 1 + greatest(s.checkpoint, (select max(greatest(p.checkpoint_to, p.checkpoint_left)) from spillway.rescale_plan p
                                             where p.pipeline = s.pipeline and p.operator = s.operator)),
    launched_at = null, changed_at = now()
where s.pipeline = %(pipeline)s and s.operator = %(operator)s
returning s.checkpoint
