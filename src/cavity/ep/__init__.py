"""Expectation propagation: sites, schedules, damping, the double loop, and where sites act (geometries)."""
