-- Moves know what they change: the node an application had, which it gets back when a move fails, and whether one was ever begun.

alter table spillway.reschedule
    add column node_before text,             -- application.node at the request; null: any node
    add column begun_at timestamptz;         -- null: nobody has carried it out
update spillway.reschedule set begun_at = changed_at where state <> 'requested';
update spillway.reschedule r set node_before = case r.state when 'requested' then a.node else r.source end
from spillway.application a where a.pipeline = r.pipeline and a.application = r.application;

-- What was last said of a pipeline, and by whom: every cycle asks.
create index event_said on spillway.event (pipeline, actor, id desc);
