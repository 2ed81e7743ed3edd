delete from spillway.gate_result where decision = %(decision)s
