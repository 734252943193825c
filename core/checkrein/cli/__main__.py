"""`python -m checkrein.cli`."""

from __future__ import annotations

from checkrein.cli import main

if __name__ == "__main__":
    main()
