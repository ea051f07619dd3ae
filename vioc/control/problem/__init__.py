"""Limits, poses, results and their status, which all optimizers share."""
