"""What can go wrong with the store, each as one sentence."""

from __future__ import annotations


class StoreError(Exception):
    """A failed action; the message is one sentence that says what is wrong and what to do."""


class NotConfigured(StoreError):
    """A variable of the environment is missing or unusable."""


class Unavailable(StoreError):
    """The server is away, or does not let us in."""


class Refused(StoreError):
    """What was asked contradicts what is stored or declared; nothing was changed."""
