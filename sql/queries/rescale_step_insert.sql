insert into spillway.rescale_step (plan, ordinal, step) values (%(plan)s, %(ordinal)s, %(step)s)
