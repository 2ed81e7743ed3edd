select id, world, pipelines, body from spillway.observation where id = %(id)s
