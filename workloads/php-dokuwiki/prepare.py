"""Makes the wiki that the workload reads: a file for each article out of Perl's manual.

The articles are the same every time. Each is looked at once, so that the wiki has them rendered, as
one that is read all day.

Usage: prepare.py DATA [--articles N]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "php"))

import articles  # noqa: E402
from application import PAGES_NAME, Application  # noqa: E402
from visit import free_port, visit  # noqa: E402

ARTICLES = 300
ADDED = "\n\nA reader added this paragraph to see whether it would be kept.\n"
# The folders that DokuWiki expects to find.
FOLDERS = ["attic", "cache", "index", "locks", "log", "media", "media_attic", "media_meta"]
FOLDERS += ["meta", "pages", "tmp"]
PACKAGE_SETTINGS = Path("/etc/dokuwiki")


def copy_settings(folder: Path) -> None:
    """The package's own settings with ours, and nothing that an administrator has set there."""
    folder.mkdir()
    for path in sorted(PACKAGE_SETTINGS.iterdir()):
        if path.is_file() and not path.is_symlink() and ".local." not in path.name:
            shutil.copy(path, folder)
    shutil.copy(HERE / "local.php", folder)


def pages(identifiers: list[str]) -> list[dict[str, object]]:
    """Each article to be read, and to be edited."""
    found: list[dict[str, object]] = []
    for name in identifiers:
        url = f"/doku.php?id={name}"
        found.append({"path": url, "contains": f"<title>{name} [Perl manual]</title>"})
        found.append(
            {
                "path": f"{url}&do=edit",
                "contains": f"<title>✎ {name} [Perl manual]</title>",
                # Who has the form has the page's lock, and is known by the session.
                "cookie": f"DokuWiki={hashlib.sha256(name.encode()).hexdigest()[:26]}",
                "submit": {
                    "form": "dw__editform",
                    "textarea": "wikitext",
                    "append": ADDED,
                    "fields": {"do[save]": "1", "summary": "a paragraph"},
                },
                "stored_at": f"/doku.php?id={name}&do=export_raw",
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the wiki that php-dokuwiki reads.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--articles", type=int, default=ARTICLES)
    arguments = parser.parse_args()
    data = arguments.data.resolve()
    chosen = articles.load(arguments.articles)
    writer = articles.DokuWiki(chosen)
    copy_settings(data / "settings")
    for folder in FOLDERS:
        (data / "wiki" / folder).mkdir(parents=True)
    for article in chosen:
        text = f"====== {article.title} ======\n\n{writer.write(article)}"
        path = data / "wiki" / "pages" / f"{writer.identifier(article.title)}.txt"
        path.write_text(text, encoding="utf-8")
    listed = pages([writer.identifier(article.title) for article in chosen])
    (data / PAGES_NAME).write_text(json.dumps(listed, indent=0) + "\n", encoding="utf-8")
    visit(Application.load(HERE), data, free_port())


if __name__ == "__main__":
    main()
