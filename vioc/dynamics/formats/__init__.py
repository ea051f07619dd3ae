"""Readers and writers of model files: s-expressions (read and written), URDF and MJCF (read)."""
