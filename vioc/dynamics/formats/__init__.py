"""Formats of models: s-expressions, read and written; URDF and MJCF, read."""
