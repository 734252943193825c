"""Stores for many hosts."""
