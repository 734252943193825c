"""Tools for tests: of applications, plugins and stores."""
