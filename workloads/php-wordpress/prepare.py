"""Makes the blog that the workload reads: WordPress's tables, posts, and what readers say to them.

The posts are chapters of Perl's manual, the comments are fortune cookies; both come as Debian
packages and are the same every time. Every page is looked at once, and checked.

Usage: prepare.py DATA [--posts N]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "php"))

import articles  # noqa: E402
import mariadb  # noqa: E402
import php  # noqa: E402
from application import PAGES_NAME, Application  # noqa: E402
from layout import Layout  # noqa: E402
from visit import free_port, visit  # noqa: E402

POSTS = 300
SEED = 1
FIRST_DAY = datetime.datetime(2015, 1, 1, 8)
DAYS_BETWEEN_POSTS = 3
# What the theme shows of a list, which is WordPress's default.
POSTS_PER_PAGE = 10

FORTUNES = Path("/usr/share/games/fortunes")
FORTUNE_FILES = ("computers", "linux", "literature", "perl", "science", "wisdom", "work")
COMMENT_BYTES = (40, 900)
MOST_COMMENTS = 12
ANSWERING = 0.3  # the share of comments that answer another
READERS = "Ana Bo Chen Dora Emil Fay Goran Hana Ivo Jun Kim Lena Mads Nia Otto Pia"

# Of all page views, beside one of each post and of each list.
FRONT_PAGE_VIEWS = 60
SEARCHES = 40


@dataclass(frozen=True)
class Comment:
    author: str
    date: str
    content: str
    answers: int | None  # the place of the comment that it answers


@dataclass(frozen=True)
class Post:
    title: str
    name: str  # in its address
    category: str
    tag: str
    date: str
    content: str
    comments: list[Comment]


def category(page: str) -> str:
    """The category of a chapter of the manual page `page`."""
    if page.startswith("perl5"):
        return "Changes"
    return "Questions" if page.startswith("perlfaq") else "Reference"


def fortunes() -> list[str]:
    """Sayings of the length of a comment."""
    found = []
    for name in FORTUNE_FILES:
        path = FORTUNES / name
        if not path.exists():
            sys.exit(f"prepare.py: {path} is missing; install the package fortunes")
        sayings = path.read_text(encoding="utf-8", errors="replace").split("\n%\n")
        found += [each.strip() for each in sayings if "\b" not in each]
    least, most = COMMENT_BYTES
    return [each for each in found if least <= len(each) <= most]


def comments(day: datetime.datetime, said: list[str], chance: random.Random) -> Iterator[Comment]:
    """What readers say to a post of that `day`, in the order in which they say it."""
    moment = day
    for place in range(chance.randint(0, MOST_COMMENTS)):
        moment += datetime.timedelta(minutes=chance.randint(5, 500))
        answers = chance.randrange(place) if place and chance.random() < ANSWERING else None
        yield Comment(chance.choice(READERS.split()), str(moment), chance.choice(said), answers)


def posts(count: int) -> list[Post]:
    """The posts, oldest first."""
    chance = random.Random(SEED)
    said = fortunes()
    chosen = articles.load(count)
    writer = articles.Html(chosen)
    found = []
    for number, article in enumerate(chosen):
        day = FIRST_DAY + datetime.timedelta(days=number * DAYS_BETWEEN_POSTS)
        found.append(
            Post(
                title=article.title,
                name=re.sub(r"[^a-z0-9]+", "-", article.title.lower()).strip("-"),
                category=category(article.page),
                tag=article.page,
                date=str(day),
                content=writer.write(article),
                comments=list(comments(day, said, chance)),
            )
        )
    return found


def pages(written: list[Post], titles: dict[str, str]) -> list[dict[str, str]]:
    """What readers ask for; `titles` are the posts' as the theme prints them, by name."""
    newest_first = written[::-1]
    found = [
        {"path": f"/{post.name}/", "contains": f'wp-block-post-title">{titles[post.name]}</h1>'}
        for post in written
    ]
    found += [in_list("/", newest_first[0])] * FRONT_PAGE_VIEWS
    for start in range(POSTS_PER_PAGE, len(written), POSTS_PER_PAGE):
        found.append(in_list(f"/page/{start // POSTS_PER_PAGE + 1}/", newest_first[start]))
    lists: dict[str, list[Post]] = defaultdict(list)
    for post in newest_first:
        lists[f"/{post.date[:4]}/{post.date[5:7]}/"].append(post)
        lists[f"/category/{post.category.lower()}/"].append(post)
        lists[f"/tag/{post.tag}/"].append(post)
    found += [in_list(path, listed[0]) for path, listed in lists.items()]
    for post in random.Random(SEED).sample(written, min(SEARCHES, len(written))):
        words = "+".join(post.name.split("-"))
        found.append(in_list(f"/?s={words}", post))
    return found


def in_list(path: str, post: Post) -> dict[str, str]:
    """A page that lists this post among others."""
    return {"path": path, "contains": f'/{post.name}/" target="_self"'}


def install(application: Application, layout: Layout, written: list[Post]) -> dict[str, str]:
    """Fill a new database in the scratch folder; return the posts' titles as they are shown."""
    given, titles = layout.scratch / "posts.json", layout.scratch / "titles.json"
    given.write_text(json.dumps([asdict(post) for post in written]), encoding="utf-8")
    mariadb.create(layout.scratch / mariadb.FOLDER)
    server = mariadb.start(layout, cpus=os.sched_getaffinity(0), base=os.environ)
    try:
        php.run(application, layout, [str(HERE / "install.php"), str(given), str(titles)])
    finally:
        server.stop()
    found: dict[str, str] = json.loads(titles.read_text(encoding="utf-8"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the blog that php-wordpress reads.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--posts", type=int, default=POSTS)
    arguments = parser.parse_args()
    data = arguments.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    application = Application.load(HERE)
    written = posts(arguments.posts)
    with tempfile.TemporaryDirectory(prefix="heapfit-wordpress-") as folder:
        layout = Layout(here=HERE, data=data, scratch=Path(folder).resolve())
        os.chdir(folder)  # where the database's socket is to be: see Layout
        titles = install(application, layout, written)
        os.chdir(data)
        shutil.move(layout.scratch / mariadb.FOLDER, data / mariadb.FOLDER)
    listed = json.dumps(pages(written, titles), indent=0)
    (data / PAGES_NAME).write_text(listed + "\n", encoding="utf-8")
    visit(application, data, free_port())


if __name__ == "__main__":
    main()
