"""A headless Chromium, spoken to through a pipe: what the checks of pages, of the site and of the explorer share."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
    "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking",
    "--mute-audio",
)  # fmt: skip

# What the browser reads from 3 and writes to 4 is set in a process between: `preexec_fn` would fork this one, which may
# have threads.
_AS_3_AND_4 = """
import os, sys
first, second = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))
for end, place in ((first, 3), (second, 4)):
    os.dup2(end, place)
    os.set_inheritable(place, True)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str | None:
    """The browser of this machine, if it has one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser of its own; a context manager."""

    def __init__(self) -> None:
        path = find()
        if path is None:
            raise RuntimeError("there is no Chromium here; install it by name, as with `apt install chromium`")
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_by_it, self._to = os.pipe()
        self._from, written_by_it = os.pipe()
        command = [path, *OPTIONS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-ISc", _AS_3_AND_4, str(read_by_it), str(written_by_it), *command],
            pass_fds=(read_by_it, written_by_it), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read_by_it)
        os.close(written_by_it)
        self._rest, self._count, self.events = b"", 0, []  # type: bytes, int, list[dict[str, Any]]
        self._session: str | None = None
        page = next(target for target in self.ask("Target.getTargets")["targetInfos"] if target["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._from, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol; events that come meanwhile are kept."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def open(self, address: str | Path, *, seconds: float = 30) -> None:
        self.events.clear()
        self.ask("Page.navigate", url=address.as_uri() if isinstance(address, Path) else address)
        limit = time.monotonic() + seconds
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            if time.monotonic() > limit:
                raise RuntimeError(f"{address} did not load in {seconds:g} s")
            event = self._read()
            if "method" in event:
                self.events.append(event)

    def run(self, script: str) -> Any:
        done = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            details = done["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return done["result"].get("value")

    def look(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Set the size of the window and the colours that the reader prefers."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        value = "dark" if dark else "light"
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def asked(self) -> list[str]:
        """The addresses that the page has asked the network for since it was opened."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        addresses = [parameters["request"]["url"] for parameters in sent]
        return [address for address in addresses if not address.startswith(("file:", "data:"))]

    def errors(self) -> list[str]:
        """What the console has complained about since the page was opened."""
        self.run("1")  # what came before is here now
        found = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                details = event["params"]["exceptionDetails"]
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                entry = event["params"]["entry"]
                found.append(f"{entry['text']} {entry.get('url', '')}")
            elif event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] == "error":
                found.append(str(event["params"]["args"]))
        return found
