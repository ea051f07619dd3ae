"""Mechanisms as plain data: frames, masses and components, and their notation."""
