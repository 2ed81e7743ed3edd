"""Frozen values that cross a boundary. Standard library only: this package ships to Spark."""
