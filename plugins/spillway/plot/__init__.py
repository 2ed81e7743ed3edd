"""Figures of runs over time. Drawing imports matplotlib; nothing else here does."""

from spillway.plot.draw import PlotError, check_path, draw

__all__ = ["PlotError", "check_path", "draw"]
