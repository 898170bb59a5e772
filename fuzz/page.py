"""The report page in a real browser, with hostile keys, file names and stream names.

    python -m fuzz.page --seconds 60 --seed 1

Every page shows texts from `fuzz.targets.pages`, put together anew, wherever one from outside can stand. No
script of theirs runs, nothing is loaded, the browser complains of nothing, and the document that the browser
makes has the elements that harmless texts give. Needs Chromium (tests/report/browser.py says how it is
found). Exit code 1 after a find, with its texts.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from kpl_codec.report.page import write_page
from tests.report.browser import Browser
from tests.report.examples import hostile_report

from .targets.pages import HOSTILE, plain

#: Elements by name, and whether something of ours or theirs has run.
_SEEN = """JSON.stringify({hit: typeof window.hit, title: typeof document.title,
    elements: [...document.querySelectorAll("*")].map(e => e.tagName).sort().join(" ")})"""


def texts(chance: random.Random) -> list[str]:
    """One to twelve hostile texts, whole, cut and put together."""

    def one() -> str:
        parts = [chance.choice(HOSTILE) for _ in range(chance.choice((1, 1, 2, 3)))]
        text = "".join(parts)
        return text if chance.randrange(3) else text[chance.randrange(len(text) + 1) :]

    return [one() for _ in range(chance.randint(1, 12))]


def shown(browser: Browser, folder: Path, some: list[str]) -> tuple[dict[str, str], list[str]]:
    """What the browser made of a page with these texts, and everything it asked for or complained of."""
    address = write_page(hostile_report(some), folder / "report.html").as_uri()
    with browser.page(address) as page:
        found = json.loads(page.evaluate(_SEEN))
        return found, [*page.complaints, *(asked for asked in page.requests if asked != address)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    args = parser.parse_args()
    chance = random.Random(args.seed)
    end = time.monotonic() + args.seconds
    count = 0
    with tempfile.TemporaryDirectory() as scratch, Browser() as browser:
        while time.monotonic() < end:
            some = texts(chance)
            found, trouble = shown(browser, Path(scratch), some)
            harmless, _ = shown(browser, Path(scratch), plain(some))
            count += 1
            if trouble or found != harmless or found["hit"] != "undefined":
                print(f"seed {args.seed}: {some!r}\n{trouble}\n{found}\n{harmless}")
                return 1
    print(f"seed {args.seed}: {count} pages, no script ran, no element escaped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
