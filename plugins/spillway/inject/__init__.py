"""Load for pipelines: seeded events, scenarios of rates over time, and a player that holds them."""
