"""Complementarity and friction of a step in any coordinates: cones, the interior point, rollouts by it."""
