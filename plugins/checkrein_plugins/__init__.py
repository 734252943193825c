"""The built-in plugins."""
