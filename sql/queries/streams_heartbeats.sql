-- The last sign of life of every application's current generation.
select h.pipeline, h.application, h.generation, h.state, h.at, h.started_at, h.version
from spillway.heartbeat h
join spillway.application a using (pipeline, application, generation);
