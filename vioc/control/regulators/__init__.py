"""Linear-quadratic regulators, their Riccati equations, and feedback laws."""
