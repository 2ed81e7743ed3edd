"""What runs inside Spark: the driver program, the shedder, the sinks, and the operators that ship with Spillway."""
