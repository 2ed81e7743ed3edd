-- Spark's application ids of what ran lately, and whose they are.
select h.pipeline, h.application, h.generation, h.spark_app
from spillway.heartbeat h
where h.spark_app is not null and h.at > now() - interval '1 hour';
