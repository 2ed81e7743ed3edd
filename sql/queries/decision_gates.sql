select gate, suite, rule, success, evidence, at from spillway.gate_result where decision = %(decision)s order by id
