-- Removes settings of edges that are no longer declared.
delete from spillway.edge_setting where pipeline = %(pipeline)s and edge <> all(%(edges)s::text[])
