-- By operator: buckets, rows and checksums before and after. Checksums are sums modulo 2^64.
select operator, bool_or(moment = 'before') and bool_or(moment = 'after') as both,
       count(*) filter (where moment = 'before')::integer as buckets_before, count(*) filter (where moment = 'after')::integer as buckets_after,
       sum(rows) filter (where moment = 'before')::bigint as rows_before, sum(rows) filter (where moment = 'after')::bigint as rows_after,
       count(*) filter (where rows is null or checksum is null)::integer as uncounted,
       coalesce(mod(sum(checksum) filter (where moment = 'before'), 18446744073709551616)
              = mod(sum(checksum) filter (where moment = 'after'), 18446744073709551616), false) as same_checksum
from spillway.bucket_handle where plan = %(plan)s
group by operator
order by operator
