"""Linear-quadratic regulators, the Riccati equations behind them, and the laws that they are."""
