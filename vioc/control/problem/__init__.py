"""Common inputs and outputs of all optimizers: limits by name, statuses, results."""
