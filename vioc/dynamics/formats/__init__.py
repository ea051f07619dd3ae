"""Model texts: s-expressions and URDF, read into a description and written back."""
