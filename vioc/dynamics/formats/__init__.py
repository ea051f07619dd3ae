"""Formats of models: s-expressions, which are read and written, URDF and MJCF."""
