"""Makes the wiki that the workload reads: MediaWiki's tables, and articles out of Perl's manual.

The articles are the same every time. Each is looked at once, so that the wiki has them rendered, as
one that is read all day.

Usage: prepare.py DATA [--articles N]
"""

from __future__ import annotations

import argparse
import dataclasses
import html
import json
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "php"))

import articles  # noqa: E402
import php  # noqa: E402
from application import PAGES_NAME, Application  # noqa: E402
from layout import Layout  # noqa: E402
from visit import free_port, visit  # noqa: E402

MAINTENANCE = Path("/usr/share/mediawiki/maintenance")
ARTICLES = 300
ADDED = "\n\nA reader added this paragraph to see whether it would be kept."


def pages(texts: dict[str, str]) -> list[dict[str, object]]:
    """Each article to be read, and to be edited."""
    found: list[dict[str, object]] = []
    for title in texts:
        url = f"/index.php?title={title.replace(' ', '_')}"
        shown = html.escape(title)
        found.append({"path": url, "contains": f"<title>{shown} - Perl manual</title>"})
        found.append(
            {
                "path": f"{url}&action=edit",
                "contains": f"<title>Editing {shown} - Perl manual</title>",
                "submit": {
                    "form": "editform",
                    "textarea": "wpTextbox1",
                    "append": ADDED,
                    "fields": {"wpSave": "Save changes", "wpSummary": "a paragraph"},
                },
                "stored_at": f"{url}&action=raw",
            }
        )
    return found


def install(application: Application, layout: Layout) -> None:
    """Make the tables and the messages' cache."""
    database = layout.scratch / "wiki"
    database.mkdir()
    # The installer writes settings of its own, which nobody reads; it stops where it finds some.
    bare = dataclasses.replace(application, environment={"MW_CONFIG_FILE": "{scratch}/none.php"})
    settings = ["--dbtype", "sqlite", "--dbpath", str(database), "--dbname", "wiki"]
    settings += ["--confpath", str(layout.scratch), "--server", "http://127.0.0.1"]
    settings += ["--scriptpath", "", "--pass", "a pass phrase of no use", "--skins", "Vector"]
    php.run(bare, layout, [str(MAINTENANCE / "install.php"), *settings, "Perl manual", "Admin"])
    (layout.data / "localisation").mkdir()
    writable = {**application.environment, "WIKI_LOCALISATION_WRITABLE": "1"}
    php.run(
        dataclasses.replace(application, environment=writable),
        layout,
        [str(MAINTENANCE / "rebuildLocalisationCache.php"), "--lang", "en"],
    )


def import_articles(application: Application, layout: Layout, texts: dict[str, str]) -> None:
    folder = layout.scratch / "articles"
    folder.mkdir()
    files = []
    for title, text in texts.items():
        path = folder / f"{title}.txt"
        path.write_text(text, encoding="utf-8")
        files.append(str(path))
    importer = str(MAINTENANCE / "importTextFiles.php")
    php.run(application, layout, [importer, "--user", "Admin", "--rc", *files])
    php.run(application, layout, [str(MAINTENANCE / "runJobs.php")])


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the wiki that php-mediawiki reads.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--articles", type=int, default=ARTICLES)
    arguments = parser.parse_args()
    data = arguments.data.resolve()
    application = Application.load(HERE)
    chosen = articles.load(arguments.articles)
    writer = articles.WikiText(chosen)
    texts = {article.title: writer.write(article) for article in chosen}
    with tempfile.TemporaryDirectory(prefix="heapfit-mediawiki-") as folder:
        layout = Layout(here=HERE, data=data, scratch=Path(folder))
        install(application, layout)
        import_articles(application, layout, texts)
        shutil.move(layout.scratch / "wiki", data / "wiki")
    (data / PAGES_NAME).write_text(json.dumps(pages(texts), indent=0) + "\n", encoding="utf-8")
    visit(application, data, free_port())


if __name__ == "__main__":
    main()
