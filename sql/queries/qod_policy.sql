insert into spillway.policy_version (digest, body) values (%(digest)s, %(body)s::jsonb) on conflict (digest) do nothing
