"""A headless Chromium for the pictures of the documentation: open a file, and look at it.

Talks the DevTools protocol over Chromium's own pipe (`--remote-debugging-pipe`): no port to race
for, no driver to match, no package beside Debian's `chromium`. Everything has a deadline.

    with Browser() as browser:
        page = browser.open(Path("report.html"), width=1100)
        page.wait_until("document.documentElement.dataset.figures === 'drawn'")
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
INSTALL_HINT = (
    "pictures are taken of pages in a real browser and there is none; "
    "install it: apt-get install chromium"
)
# Generous: two busy cores start Chromium in a few seconds.
DEADLINE_S = 60.0
_POLL_S = 0.05

_SWITCHES = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # root in a container has none; the page is one we wrote
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
]


class BrowserError(Exception):
    """The browser did not do what was asked, with what it said instead."""


class Page:
    """One tab. Records what the console says of errors from before its first byte."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.errors: list[str] = []

    def listen(self) -> None:
        """Have Chromium report what the page says and does."""
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one DevTools command to this tab and return its result."""
        return self._browser.command(method, parameters, self._session)

    def goto(self, url: str) -> None:
        """Load `url` and wait for the end of its load event."""
        self.command("Page.navigate", url=url)
        self.wait_until(f"document.readyState === 'complete' && location.href === {url!r}")

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        answer = self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {_exception_text(answer['exceptionDetails'])}")
        return answer["result"].get("value")

    def wait_until(self, expression: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + deadline_s
        while not self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > end:
                raise BrowserError(f"not true after {deadline_s:g} s: {expression}; {self.errors}")
            time.sleep(_POLL_S)

    def note(self, method: str, event: dict[str, Any]) -> None:
        """Remember what an event says, where it is an error."""
        if method == "Runtime.exceptionThrown":
            self.errors.append(_exception_text(event["exceptionDetails"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.errors.append(event["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning"):
            said = (arg.get("value", arg.get("description", "")) for arg in event["args"])
            self.errors.append(" ".join(str(part) for part in said))


class Browser:
    """A Chromium process with a profile of its own; ends with the `with` block."""

    def __init__(self) -> None:
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        if program is None:
            raise BrowserError(INSTALL_HINT)
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        self._last_id = 0
        self._start(program)

    def _start(self, program: str) -> None:
        commands_read, self._commands = os.pipe()
        self._incoming, answers_write = os.pipe()
        # A shell puts the pipes' ends where Chromium looks for them; `exec` keeps it one process.
        shell = 'exec "$0" "$@" 3<&"$HEAPFIT_TEST_IN" 4>&"$HEAPFIT_TEST_OUT"'
        environment = os.environ | {
            "HEAPFIT_TEST_IN": f"{commands_read}",
            "HEAPFIT_TEST_OUT": f"{answers_write}",
        }
        profile = f"--user-data-dir={self._profile.name}"
        self._process = subprocess.Popen(
            ["bash", "-c", shell, program, *_SWITCHES, profile, "about:blank"],
            pass_fds=(commands_read, answers_write),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands_read)
        os.close(answers_write)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self, path: Path, width: int) -> Page:
        """Open a file in a new tab of the given width and return it once loaded."""
        target = self.command("Target.createTarget", {"url": "about:blank"})["targetId"]
        attach = {"targetId": target, "flatten": True}
        session = self.command("Target.attachToTarget", attach)["sessionId"]
        page = self._pages[session] = Page(self, session)
        page.listen()
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        page.command("Emulation.setDeviceMetricsOverride", **size)
        page.goto(path.resolve().as_uri())
        return page

    def command(
        self, method: str, parameters: dict[str, Any], session: str | None = None
    ) -> dict[str, Any]:
        """Send one DevTools command and return its result."""
        self._last_id += 1
        number = self._last_id
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        answers = self._answers[number] = queue.Queue()
        data = memoryview(json.dumps(message).encode() + b"\0")
        while data:
            data = data[os.write(self._commands, data) :]
        try:
            answer = answers.get(timeout=DEADLINE_S)
        except queue.Empty:
            state = self._process.poll()
            silence = f"no answer to {method} in {DEADLINE_S:g} s (exit code {state})"
            raise BrowserError(silence) from None
        finally:
            del self._answers[number]
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def close(self) -> None:
        """End Chromium and everything it started, and remove its profile."""
        os.close(self._commands)  # Chromium ends when its pipe does
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(timeout=5)
        self._profile.cleanup()

    def _read(self) -> None:
        """Take Chromium's messages apart until it ends: answers to commands, events to pages."""
        rest = b""
        with os.fdopen(self._incoming, "rb", buffering=0) as incoming:
            while chunk := incoming.read(1 << 16):
                *messages, rest = (rest + chunk).split(b"\0")
                for message in messages:
                    self._dispatch(json.loads(message))

    def _dispatch(self, message: dict[str, Any]) -> None:
        if "id" in message:
            waiting = self._answers.get(message["id"])
            if waiting is not None:
                waiting.put(message)
            return
        page = self._pages.get(message.get("sessionId", ""))
        if page is not None:
            page.note(message["method"], message["params"])


def _exception_text(details: dict[str, Any]) -> str:
    text: str = details.get("exception", {}).get("description") or details["text"]
    return text
