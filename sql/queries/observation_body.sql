select body from spillway.observation where id = %(id)s
