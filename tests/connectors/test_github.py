"""PyGithub against a stand-in over HTTP."""

from __future__ import annotations

import base64
from typing import Any

import pytest

pytest.importorskip("github")

import github

from checkrein import Rein
from checkrein_plugins import connectors

from .conftest import StandIn, statuses

REPO = "/repos/ada/engine"


class GitHub:
    """One repository with issues, labels, comments, files."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.repo = {
            "id": 1, "name": "engine", "full_name": "ada/engine", "url": f"{url}{REPO}",
            "description": "old", "owner": {"login": "ada"},
        }  # fmt: skip
        self.issues: dict[int, dict[str, Any]] = {}
        self.labels: dict[str, dict[str, Any]] = {}
        self.comments: dict[int, dict[str, Any]] = {}
        self.files: dict[str, dict[str, Any]] = {}
        self.topics = ["math"]

    def __call__(self, method: str, path: str, body: Any, headers: Any) -> tuple[int, Any]:
        if path == REPO:
            if method == "PATCH":
                self.repo.update(body)
            return 200, self.repo
        parts = path.removeprefix(f"{REPO}/").split("/")
        if parts == ["topics"]:
            if method == "PUT":
                self.topics = body["names"]
            return 200, {"names": self.topics}
        if parts[0] == "contents":
            return self.content(method, "/".join(parts[1:]), body)
        if parts[0] == "labels":
            if method == "POST":
                self.labels[body["name"]] = {**body, "url": f"{self.url}{path}/{body['name']}"}
                return 201, self.labels[body["name"]]
            if method == "DELETE":
                del self.labels[parts[1]]
                return 204, None
            return (200, self.labels[parts[1]]) if parts[1] in self.labels else (404, {})
        if parts[:2] == ["issues", "comments"]:
            if method == "DELETE":
                del self.comments[int(parts[2])]
                return 204, None
            return 200, self.comments[int(parts[2])]
        return self.issue(method, parts, body)

    def issue(self, method: str, parts: list[str], body: Any) -> tuple[int, Any]:
        if len(parts) == 1:
            number = len(self.issues) + 1
            made = {
                "number": number, "state": "open", "assignees": [],
                "url": f"{self.url}{REPO}/issues/{number}", "body": "",
                "repository_url": self.repo["url"], **body,
                "labels": list(map(self.label, body.get("labels", []))),
            }  # fmt: skip
            self.issues[number] = made
            return 201, made
        found = self.issues[int(parts[1])]
        if parts[2:] == ["comments"]:
            id = len(self.comments) + 100
            url = f"{self.url}{REPO}/issues/comments/{id}"
            self.comments[id] = {"id": id, "url": url, **body}
            return 201, self.comments[id]
        if parts[2:3] == ["labels"]:
            names = body.get("", body.get("labels", []))
            if method == "PUT":
                found["labels"] = list(map(self.label, names))
            elif method == "POST":
                found["labels"] = [*found["labels"], *map(self.label, names)]
            elif method == "DELETE":
                found["labels"] = [x for x in found["labels"] if x["name"] not in parts[3:]]
                found["labels"] = found["labels"] if parts[3:] else []
                return (200, found["labels"]) if parts[3:] else (204, None)
            return 200, found["labels"]
        if method == "PATCH":
            found.update(body)
        return 200, found

    def content(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if method == "PUT":
            old = self.files.get(path)
            if (old["sha"] if old else None) != body.get("sha"):
                return 409, {"message": "sha"}
            sha = f"s{len(self.files)}{len(body['content'])}"
            self.files[path] = {
                "type": "file", "path": path, "name": path, "sha": sha, "encoding": "base64",
                "content": body["content"], "size": 1, "url": f"{self.url}{REPO}/contents/{path}",
            }  # fmt: skip
            return 200, {"content": self.files[path], "commit": {"sha": "c1"}}
        if path not in self.files:
            return 404, {"message": "Not Found"}
        if method == "DELETE":
            del self.files[path]
            return 200, {"content": None, "commit": {"sha": "c2"}}
        return 200, self.files[path]

    def label(self, name: str) -> dict[str, Any]:
        return {"name": name, "color": "fff", "url": f"{self.url}{REPO}/labels/{name}"}

    def text(self, path: str) -> str:
        return base64.b64decode(self.files[path]["content"]).decode()


def hub(rein: Rein, service: StandIn) -> Any:
    client = github.Github(base_url=service.url, retry=None)
    return rein.wrap(client, connector="github", table=connectors.GITHUB)


def act(client: Any) -> None:
    repo = client.get_repo("ada/engine")
    assert isinstance(repo, github.Repository.Repository)
    issue = repo.create_issue("It jams", body="now", labels=["bug"])
    issue.edit(title="It jams badly", body="often")
    issue.create_comment("me too")
    issue.add_to_labels("urgent")
    repo.get_issue(1).remove_from_labels("bug")
    repo.create_label("wish", "00ff00")
    repo.edit(description="new")
    repo.replace_topics(["steam"])
    repo.create_file("a.txt", "add", "one")
    found = repo.get_contents("a.txt")
    repo.update_file("a.txt", "change", "two", found.sha)
    repo.create_file("b.txt", "add", "bee")
    repo.delete_file("b.txt", "drop", repo.get_contents("b.txt").sha)


def test_what_was_done_is_undone_by_another_process(
    go: Any, rein: Rein, service: StandIn, tmp_path: Any
) -> None:
    service.answer = world = GitHub(service.url)
    with rein.session() as session:
        act(hub(rein, service))
    assert world.issues[1]["title"] == "It jams badly" and world.text("a.txt") == "two"
    # Another process: it finds every object by its locator.
    with Rein(store=f"sqlite:///{tmp_path}/s.db") as other:
        hub(other, service)
        report = go.run(other, "rollback", session.id)
    assert report.complete, report.summary()
    assert [status for _, status in statuses(report)] == ["undone"] * 12
    assert world.issues[1]["state"] == "closed" and world.issues[1]["title"] == "It jams"
    assert (world.comments, world.labels, world.files) == ({}, {}, {})
    assert world.topics == ["math"] and world.repo["description"] == "old"


def test_locators_stand_in_the_record(rein: Rein, service: StandIn) -> None:
    service.answer = GitHub(service.url)
    with rein.session() as session:
        act(hub(rein, service))
    views = [e.view for e in session.events() if e.kind == "intent"]
    found = {v["name"]: v["arguments"]["self"] for v in views}
    assert found["github.Repository.create_issue"] == "get_repo('ada/engine')"
    assert found["github.Issue.edit"] == "get_repo('ada/engine').get_issue(1)"
