-- Which operators were found to hold a pipeline back, by evaluations of windows that ended since a moment.
select interval_end, output -> 'bottlenecks' as bottlenecks from spillway.decision
where kind = 'capacity' and pipeline = %(pipeline)s and origin = 'live' and interval_end >= %(since)s and status = 'decided'
  and output is not null
order by interval_end
