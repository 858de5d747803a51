"""The embedded simulator: a vLLM server's HTTP face over one engine loop, for tests and first trials."""
