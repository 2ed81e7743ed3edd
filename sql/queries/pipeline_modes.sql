select pipeline, mode from spillway.pipeline order by pipeline
