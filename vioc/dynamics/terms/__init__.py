"""Classes of potentials, forces, constraints and contacts of a mechanism."""
