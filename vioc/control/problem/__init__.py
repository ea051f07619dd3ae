"""Inputs and outputs that all optimizers share, such as limits and results."""
