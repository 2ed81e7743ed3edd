-- The operator goes on from the checkpoint it has: that of a successor that followed is not taken.
with stays as (
    update spillway.rescale_plan set checkpoint_left = checkpoint_to, checkpoint_to = checkpoint_from where id = %(plan)s
    returning id, checkpoint_from
)
update spillway.successor n set checkpoint_to = stays.checkpoint_from from stays where n.plan = stays.id
