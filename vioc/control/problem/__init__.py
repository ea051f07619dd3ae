"""What every optimizer reads and returns alike: limits by name, statuses, results."""
