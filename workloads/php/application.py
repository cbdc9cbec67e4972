"""What an application is to the machinery here: its `application.toml`, with its paths filled in.

Placeholders in its texts: `{here}` the application's folder, `{data}` its prepared data,
`{scratch}` the trial's folder, `{socket}` the database's socket.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

FILE_NAME = "application.toml"
PAGES_NAME = "pages.json"
DATABASES = ("none", "sqlite", "mariadb")


@dataclass(frozen=True)
class Submit:
    """What to do with a form on a page: submit it as the browser would, with some text added."""

    form: str  # its HTML id
    textarea: str  # the name of the field that the text is appended to
    append: str
    fields: dict[str, str] = field(default_factory=dict)  # set to these, or added: a button
    action: str = ""  # where it goes; empty: where the form says
    status: int = 302  # a saved page is shown by a redirection


@dataclass(frozen=True)
class Page:
    """A page to fetch. Each answer must have the status and hold the text `contains`."""

    path: str
    contains: str
    cookie: str = ""
    status: int = 200
    post: dict[str, str] = field(default_factory=dict)  # sent as a form would; empty: a GET
    submit: Submit | None = None
    # Fetched when the load is over: what this page changed, the text `stored`, must be found there.
    stored_at: str = ""
    stored: str = ""  # empty: what the form appended
    # What the same visitor asks for next, one after the other's answer.
    then: list[Page] = field(default_factory=list)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Page:
        submit = record.get("submit")
        then = [cls.of(page) for page in record.get("then", [])]
        values = {**record, "submit": Submit(**submit) if submit else None, "then": then}
        return cls(**values)

    @property
    def to_find(self) -> str:
        """The text that `stored_at` must show."""
        return self.stored or (self.submit.append.strip() if self.submit else "")


@dataclass(frozen=True)
class Application:
    """See README.md for what each key of `application.toml` means."""

    here: Path
    root: str
    database: str = "none"
    copy: list[str] = field(default_factory=list)
    extensions: list[str] = field(default_factory=list)
    front_controller: str = ""
    ini: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    pages: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def load(cls, here: Path) -> Application:
        path = here / FILE_NAME
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        known = {each.name for each in fields(cls)} - {"here"}
        if unknown := sorted(set(values) - known):
            sys.exit(f"{path}: unknown keys: {', '.join(unknown)}")
        application = cls(here=here, **values)
        if application.database not in DATABASES:
            sys.exit(f"{path}: database is one of {', '.join(DATABASES)}")
        return application

    def all_pages(self, data: Path) -> list[Page]:
        """The pages that the TOML file lists, else those that the preparation left in `data`."""
        records = self.pages or json.loads((data / PAGES_NAME).read_text(encoding="utf-8"))
        return [Page.of(record) for record in records]
