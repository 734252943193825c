"""Adapters to agent frameworks, and what speaks to other processes."""
