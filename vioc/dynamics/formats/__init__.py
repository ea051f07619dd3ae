"""Readers of model files (URDF, MJCF and s-expressions), and a writer of s-expressions."""
