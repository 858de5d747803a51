"""Runs measurements: servers kept for a run, warm-up, rounds. Knows no pytest."""
