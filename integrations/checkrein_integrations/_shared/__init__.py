"""What adapters of several frameworks have in common. Imports no framework."""
