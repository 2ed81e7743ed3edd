select id from spillway.rescale_plan where id = %(id)s for update
