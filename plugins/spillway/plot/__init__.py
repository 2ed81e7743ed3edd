"""Figures of runs over time. Drawing imports matplotlib; nothing else here does."""

from spillway.plot.draw import PlotError, draw

__all__ = ["PlotError", "draw"]
