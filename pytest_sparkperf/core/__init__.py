"""Pure part: no pytest, no I/O, no clock. Everything here can be tested with plain values."""
