insert into spillway.gate_result (decision, gate, suite, rule, success, evidence) values %s
