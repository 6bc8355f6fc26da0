"""The pages as a site, as `make docs` builds it: no link leads nowhere, nothing is fetched, what is made from the code
is what the code says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from ruamel.yaml import YAML

from tests.e2e.pages import DOCS, ROOT, all_pages

_LINK = re.compile(r"(?<!`)\]\((?!https?:|mailto:)([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.MULTILINE)
_BLOCK = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


class Ends(HTMLParser):
    """The links of a page, what it loads, and the places in it that links may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.places.add(found.get("id", ""))
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in ("link", "script", "img", "iframe", "source"):
            self.loaded += [found[name] for name in ("href", "src") if name in found]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    shutil.copytree(DOCS, folder / "docs")
    build = [str(Path(sys.executable).parent / "zensical"), "build", "--strict", "--config-file", "mkdocs.yml"]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_every_page_is_built(site: Path) -> None:
    pages = [it.relative_to(DOCS).with_suffix("") for it in DOCS.rglob("*.md")]
    folders = [it.parent if it.name == "README" else it for it in pages]
    assert [str(it) for it in folders if not (site / it / "index.html").exists()] == []


def test_no_link_of_the_site_leads_nowhere(site: Path) -> None:
    pages = {page: Ends(page.read_text()) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 40
    dead = []
    for page, ends in pages.items():
        for link in ends.links:
            path, place = urldefrag(link)
            if re.match(r"[a-z]+:", link):
                continue
            target = (page.parent / unquote(path)).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            if target not in pages and not target.exists():
                dead.append(f"{page.relative_to(site)}: {link}")
            elif target in pages and unquote(place) not in pages[target].places:
                dead.append(f"{page.relative_to(site)}: {link} (no such place)")
    assert dead == []


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = [
        f"{page.relative_to(site)}: {it}"
        for page in site.rglob("*.html")
        for it in Ends(page.read_text()).loaded
        if re.match(r"(?:[a-z]+:)?//", it)
    ]
    assert loaded == []


def test_every_page_has_a_place_in_the_menu() -> None:
    menu = YAML(typ="safe", pure=True).load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(entries(menu)) == sorted(it.relative_to(DOCS).as_posix() for it in DOCS.rglob("*.md"))


def entries(menu: object) -> Iterator[str]:
    match menu:
        case str():
            yield menu
        case list():
            for it in menu:
                yield from entries(it)
        case dict():
            for it in menu.values():
                yield from entries(it)


@pytest.mark.parametrize("page", all_pages(), ids=lambda it: it.relative_to(ROOT).as_posix())
def test_links_lead_somewhere_on_a_code_host(page: Path) -> None:
    """A code host names the places of a page in its own way; and the site has nothing that lies outside of docs."""
    dead = []
    for link in _LINK.findall(_BLOCK.sub("", page.read_text())):
        path, place = urldefrag(link)
        target = (page.parent / unquote(path)).resolve() if path else page
        if not target.exists() or (place and place not in places(target)):
            dead.append(link)
        if page.is_relative_to(DOCS) and not target.is_relative_to(DOCS):
            dead.append(f"{link} (outside of docs)")
    assert dead == []


def places(page: Path) -> set[str]:
    """The anchors that a code host makes of headings: small letters, hyphens for spaces, nothing else but digits and
    `_`; a heading that comes again gets a number."""
    found: set[str] = set()
    for heading in _HEADING.findall(_BLOCK.sub("", page.read_text())):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(name if name not in found else f"{name}-{sum(it.startswith(name) for it in found)}")
    return found


def test_the_reference_is_what_the_code_says(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "scripts/reference", str(tmp_path)], cwd=ROOT, check=True, timeout=60)
    made = sorted(tmp_path.iterdir())
    assert [it.name for it in made] == ["configuration.md", "sdk.md"]
    for page in made:
        assert (DOCS / page.name).read_text() == page.read_text(), f"{page.name} is old; make docs writes it anew"


def test_messages_name_pages_that_there_are() -> None:
    named = [
        (path, it)
        for path in sorted((ROOT / "src").rglob("*.py"))
        for it in re.findall(r"\bdocs/[a-z/-]+\.md\b", path.read_text())
    ]
    assert named
    assert [f"{path}: {it}" for path, it in named if not (ROOT / it).exists()] == []
