"""Check the site that `make site` built: links, the browser's console, weight, accessibility, search.

    python -m tools.site_check build/site [--axe axe.min.js]

`--axe` is the file of that name from `npm install axe-core`; without it, accessibility is not checked.
Ends with exit code 1 if something is wrong. Needs Chromium for all but the links.
"""

from __future__ import annotations

import argparse
import gzip
import http.server
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

from .browser import Browser, find

LIMIT = 300_000
"""Bytes that the first view of a page may take, text compressed as web servers do."""
LOOKS = ((1200, False), (1200, True), (400, False), (400, True))


def broken(root: Path) -> list[str]:
    """Links, anchors and files that are not there, and files that would come from a network."""
    root = root.resolve()
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.html"))}
    anchors = {path: {"top", *re.findall(r'\s(?:id|name)="([^"]+)"', text)} for path, text in pages.items()}
    wrong = []
    for path, text in pages.items():
        here = path.relative_to(root)
        for tag, attributes in re.findall(r"<(a|img|script|link|iframe)\b([^>]*)>", text):
            found = re.search(r'\s(?:href|src)="([^"]*)"', attributes)
            if found is None or 'rel="canonical"' in attributes:
                continue
            address = unescape(found[1])
            place, anchor = urldefrag(address)
            if urlsplit(place).scheme or address.startswith("//"):
                wrong += [f"{here} loads {address}"] if tag != "a" and not address.startswith("data:") else []
                continue
            target = (path.parent / unquote(urlsplit(place).path)).resolve() if place else path
            if not target.is_file():
                wrong.append(f"{here}: {address} is not there")
            elif anchor and unquote(anchor) not in anchors.get(target, {unquote(anchor)}):
                wrong.append(f"{here}: {address} has no such anchor")
    return wrong


class Weighed(http.server.SimpleHTTPRequestHandler):
    """Serves files and counts their bytes, those of text as gzip makes them."""

    sent = 0

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def copyfile(self, source: Any, outputfile: Any) -> None:
        data = source.read()
        text = self.path.partition("?")[0].endswith((".html", ".css", ".js", ".svg", "/"))
        Weighed.sent += len(gzip.compress(data, 6) if text else data)
        outputfile.write(data)


@contextmanager
def served(root: Path) -> Iterator[str]:
    """The folder behind an address of this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *a, **k: Weighed(*a, directory=str(root), **k))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def serious(browser: Browser, axe: str) -> list[str]:
    """What axe finds serious or critical on the open page."""
    browser.run(axe)
    found = browser.run("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
    return [
        f"{violation['id']} ({len(violation['nodes'])}): {violation['nodes'][0]['html'][:110]}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
    ]


def browse(root: Path, axe: str | None) -> list[str]:
    """Open every page as files and served, in each look."""
    wrong = []
    heaviest = (0, "")
    pages = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*.html"))]
    with Browser() as browser, served(root) as address:
        browser.ask("Network.enable")
        browser.ask("Network.setCacheDisabled", cacheDisabled=True)
        for page in pages:
            browser.look(1200)
            Weighed.sent = 0
            browser.open(f"{address}/{page}")
            browser.run("new Promise(done => setTimeout(done, 150))")
            heaviest = max(heaviest, (Weighed.sent, page))
            if Weighed.sent > LIMIT:
                wrong.append(f"{page}: the first view takes {Weighed.sent:,} bytes")
            wrong += [f"{page}: {error}" for error in browser.errors()]
            browser.open(root.resolve() / page)
            wrong += [f"{page} as a file: {error}" for error in browser.errors()]
            for width, dark in LOOKS:
                browser.look(width, dark=dark)
                browser.run("dispatchEvent(new Event('resize')), scrollTo(0, 0)")
                look = f"{width} {'dark' if dark else 'light'}"
                if axe:
                    wrong += [f"{page}, {look}: {violation}" for violation in serious(browser, axe)]
                wide = browser.run("document.documentElement.scrollWidth - innerWidth")
                if wide > 1:
                    wrong.append(f"{page}, {look}: {wide} pixels wider than the window")
        print(f"{len(pages)} pages; the heaviest first view is {heaviest[1]} with {heaviest[0]:,} bytes")
        wrong += search(browser, root)
    return wrong


def search(browser: Browser, root: Path) -> list[str]:
    """Whether a search finds pages, from files alone."""
    browser.look(1200)
    wrong = []
    for word, page in (("permutation", "members.html"), ("propagate", "api/theory.html")):
        browser.open(f"{(root / 'search.html').resolve().as_uri()}?q={word}")
        found = browser.run(
            "new Promise(done => { const links = () => [...document.querySelectorAll('#search-results a')];"
            " const wait = n => links().length || !n ? setTimeout(() => done(links().map(a => a.href)), 500)"
            " : setTimeout(wait, 100, n - 1); wait(50); })"
        )
        print(f"search for {word!r}: {len(found)} results")
        if not any(page in one for one in found):
            wrong.append(f"a search for {word} does not find {page}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, help="the folder that `make site` made")
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    options = parser.parse_args()
    if not (options.site / "index.html").is_file():
        sys.exit(f"{options.site} holds no site; run `make site` first.")
    wrong = broken(options.site)
    print(f"links: {len(wrong)} broken")
    axe = options.axe.read_text(encoding="utf-8") if options.axe else None
    if axe is None:
        print("Without --axe, accessibility is not checked.")
    if find() is None:
        print("There is no Chromium here, so pages are not opened; install it by name: `apt install chromium`.")
    else:
        wrong += browse(options.site, axe)
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
