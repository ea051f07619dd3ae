"""Integrators of mechanisms: one-step maps from the state at one time to the state at the next."""
