-- Whoever publishes on a pipeline, or changes it, does so alone.
select pipeline from spillway.pipeline where pipeline = %(pipeline)s for no key update
