"""What acts on a tree of frames: potentials, forces and constraints."""
