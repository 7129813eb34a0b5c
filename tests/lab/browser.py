"""A real browser for the tests of pages: Chromium without a window, spoken to through a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


class Browser:
    """One page of a browser. Calling it sends a command of the DevTools protocol; `events` is what came meanwhile."""

    def __init__(self, profile: Path) -> None:
        (read, self._write), (self._read, write) = os.pipe(), os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read, write)]  # out of the way of 3 and 4

        def connect() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=connect, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in (read, write, *high):
            os.close(end)
        self._buffer, self._number = b"", 0
        self._session: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        page = next(each for each in self("Target.getTargets")["targetInfos"] if each["type"] == "page")
        attached = self("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, page: Path, width: int, **media: str) -> None:
        """Load a page at a width, on `media` such as prefers-color-scheme."""
        self.events.clear()
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self("Emulation.setEmulatedMedia", media="screen", features=features)
        self("Page.navigate", url=page.as_uri())
        while not self.seen("Page.loadEventFired"):
            self.events.append(self._next())

    def seen(self, *methods: str) -> list[dict[str, Any]]:
        """What the events of these kinds said."""
        return [event["params"] for event in self.events if event.get("method") in methods]

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        return self("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(20)
        os.close(self._write)
        os.close(self._read)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser for a while."""
    opened = Browser(profile)
    try:
        yield opened
    finally:
        opened.close()
