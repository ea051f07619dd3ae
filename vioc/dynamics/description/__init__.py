"""Immutable data that describe mechanisms: frames, masses and components."""
