"""`make demo`: the taxi pipeline through rush hour on embedded services, ending in a verdict."""
