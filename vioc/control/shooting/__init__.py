"""The optimizer's core: states and inputs of all stages at once, limits by an interior point."""
