"""Streamed answers: filtered on their way out, counted, and recorded like any other."""
