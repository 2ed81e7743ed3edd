-- A hand-over may follow what runs on a checkpoint of its own, and yet go on from the one there is.
alter table spillway.rescale_plan add column checkpoint_left integer;
comment on column spillway.rescale_plan.checkpoint_left is 'of a successor that followed and was not gone on from: given to nobody else';
