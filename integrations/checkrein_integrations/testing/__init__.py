"""Fakes for users' own tests, one module per framework."""
