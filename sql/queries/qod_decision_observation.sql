select o.body from spillway.decision d join spillway.observation o on o.id = d.observation where d.id = %(id)s
