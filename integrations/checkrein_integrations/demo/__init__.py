"""`checkrein demo`: a refund desk that an agent works at, under supervision.

Real parts: a shop in SQLite, a payment service over HTTP in its own process, mail in a
Maildir. Only the chat model is scripted, unless `--model` names a real one.
"""

from checkrein_integrations.demo.cli import command

__all__ = ["command"]
