"""Model file formats: s-expressions are read and written, URDF and MJCF are read."""
