-- Holds off launches, starts and stops of a pipeline for the rest of the transaction.
select application from spillway.application where pipeline = %(pipeline)s order by application for update
