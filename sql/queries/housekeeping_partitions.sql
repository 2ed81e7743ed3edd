-- Yesterday too: a batch that ends late still finds its day.
select spillway.ensure_partitions(%(today)s::date - 1, %(days)s::integer + 2) as made, spillway.drop_partitions(%(today)s::date - %(keep)s::integer) as dropped;
