"""Ready connectors: what is known of common SDKs, as data, and two clients of our own.

`rein.wrap(stripe_client, connector="stripe")` finds its table here: `stripe`, `github` (PyGithub),
`slack` (slack_sdk), `s3` (boto3), `sqlalchemy` (a `Database`), `files` (a `Files`).
"""

from pathlib import Path

from checkrein_plugins.connectors.database import Database
from checkrein_plugins.connectors.directory import Files

_HERE = Path(__file__).parent
STRIPE = _HERE / "stripe.toml"
GITHUB = _HERE / "github.toml"
SLACK = _HERE / "slack.toml"
S3 = _HERE / "s3.toml"
SQLALCHEMY = _HERE / "sqlalchemy.toml"
FILES = _HERE / "files.toml"

__all__ = ["FILES", "GITHUB", "S3", "SLACK", "SQLALCHEMY", "STRIPE", "Database", "Files"]
