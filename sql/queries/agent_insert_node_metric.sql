insert into spillway.node_metric
    (node, at, cores, cpu_pct, own_cpu_pct, load1, mem_used, mem_total, net_rx_bps, net_tx_bps, window_s) values %s
