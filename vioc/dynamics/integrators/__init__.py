"""Integrators: each turns a description into a one-step map."""
