"""The outside world: HTTP, processes, files. Knows the pure core, knows no pytest."""
