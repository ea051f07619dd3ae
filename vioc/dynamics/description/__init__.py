"""Mechanisms as plain data: frames, masses, components, and the text that they are written in."""
