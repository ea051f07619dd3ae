"""Descriptions of mechanisms: frames, masses and components as immutable data, and their text."""
