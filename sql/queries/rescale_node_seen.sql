select exists (select from spillway.node_metric where at > %(since)s) as measured,
       exists (select from spillway.node_metric where at > %(since)s and node = %(node)s) as seen
