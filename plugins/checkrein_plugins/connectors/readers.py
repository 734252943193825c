"""What the tables of Stripe, GitHub and Slack cannot say in a line.

Readers take the client (or the object that a method is of) and the call's arguments, and give
plain data. Undos take by name what they need of the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# -- Stripe: a field that was empty is put back by an empty text


def _stripe(found: Any, params: Any) -> dict[str, Any]:
    wanted = list(params) if isinstance(params, Mapping) else []
    tree = found.to_dict()
    return {key: "" if tree.get(key) is None else tree.get(key) for key in wanted}


def stripe_customer(client: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a customer that an update names."""
    return _stripe(client.v1.customers.retrieve(arguments["customer"]), arguments["params"])


def stripe_product(client: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a product that an update names."""
    return _stripe(client.v1.products.retrieve(arguments["id"]), arguments["params"])


def stripe_price(client: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a price that an update names."""
    return _stripe(client.v1.prices.retrieve(arguments["price"]), arguments["params"])


def stripe_price_off(client: Any, id: str) -> None:
    """Nobody can buy at a price that is not active."""
    client.v1.prices.update(id, {"active": False})


# -- GitHub


def github_fields(target: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object that an edit names, as `edit` takes them."""
    found: dict[str, Any] = {}
    for name in arguments:
        if name == "self":
            continue
        value = getattr(target, name)
        if name == "labels":
            value = [label.name for label in value]
        elif name == "assignees":
            value = [user.login for user in value]
        elif name == "assignee":
            value = value.login if value is not None else None
        found[name] = value
    return found


def github_topics(target: Any, _: Mapping[str, Any]) -> list[str]:
    """The topics of a repository."""
    return list(target.get_topics())


def github_labels(target: Any, _: Mapping[str, Any]) -> list[str]:
    """The labels of an issue."""
    return [label.name for label in target.get_labels()]


def github_labels_back(target: Any, before: list[str]) -> None:
    """Give an issue the labels that it had."""
    target.set_labels(*before) if before else target.delete_labels()


def github_file(target: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A file as it stands in a branch."""
    ref = {"ref": arguments["branch"]} if arguments.get("branch") else {}
    found = target.get_contents(arguments["path"], **ref)
    return {"content": found.decoded_content}


def _branch(branch: str | None) -> dict[str, str]:
    return {"branch": branch} if branch else {}


def github_file_gone(target: Any, path: str, message: str, branch: str | None = None) -> None:
    """Delete a file that was made."""
    where = {"ref": branch} if branch else {}
    found = target.get_contents(path, **where)
    target.delete_file(path, f"Undo: {message}", found.sha, **_branch(branch))


def github_file_back(
    target: Any, path: str, message: str, before: dict[str, Any], branch: str | None = None
) -> None:
    """Give a file the content that it had."""
    where = {"ref": branch} if branch else {}
    found = target.get_contents(path, **where)
    text = f"Undo: {message}"
    target.update_file(path, text, before["content"], found.sha, **_branch(branch))


def github_file_again(
    target: Any, path: str, message: str, before: dict[str, Any], branch: str | None = None
) -> None:
    """Make a file again that was deleted."""
    target.create_file(path, f"Undo: {message}", before["content"], **_branch(branch))


def github_label_gone(target: Any, name: str) -> None:
    """Delete a label that was made."""
    target.get_label(name).delete()


def github_milestone_gone(target: Any, number: int) -> None:
    """Delete a milestone that was made."""
    target.get_milestone(number).delete()


def github_ref_gone(target: Any, ref: str) -> None:
    """Delete a branch or tag that was made."""
    target.get_git_ref(ref.removeprefix("refs/")).delete()


def github_comment_gone(target: Any, id: int) -> None:
    """Delete a comment that was made."""
    target.get_comment(id).delete()


# -- Slack


def slack_message(client: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A message as it stands."""
    found = client.conversations_history(
        channel=arguments["channel"], latest=arguments["ts"], inclusive=True, limit=1
    )
    message = found["messages"][0]
    if message["ts"] != arguments["ts"]:
        raise LookupError("no such message")
    return {"text": message.get("text", "")}


def slack_channel(client: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Name, topic and purpose of a channel."""
    channel = client.conversations_info(channel=arguments["channel"])["channel"]
    empty = {"value": ""}
    return {
        "name": channel["name"],
        "topic": {"value": channel.get("topic", empty)["value"]},
        "purpose": {"value": channel.get("purpose", empty)["value"]},
    }
