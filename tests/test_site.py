"""The documentation site is built without a warning, and Chromium shows it at the widths of a desk and a hand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chromium import chromium_driver
from selenium.webdriver.support.wait import WebDriverWait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium import webdriver

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow  # Sphinx and a browser: CI has both, make docs the first


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site that is built of the committed pages; a warning fails the build.

    ``KPROTO_SITE`` names one that ``make docs`` has built of these pages just before.
    """
    if built := os.environ.get("KPROTO_SITE"):
        return Path(built)
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    with chromium_driver() as driver:
        yield driver


def test_every_field_of_every_version_is_in_the_wire_reference(site: Path) -> None:
    page = (site / "generated" / "updatemetadata.html").read_text(encoding="utf-8")
    for words in ("versions 0 to 8", "offline_replicas", "is_kraft_controller", "int8, tag 0"):
        assert words in page


def test_every_version_is_in_the_wire_reference_with_what_it_brought(site: Path) -> None:
    page = (site / "generated" / "leaderandisr.html").read_text(encoding="utf-8")
    table = page.partition("</table>")[0]
    rows = re.findall(r"<td><p>(\d)</p></td>\s*<td><p>(.*?)</p></td>", table)
    assert [version for version, _ in rows] == list("01234567")
    assert all(change for _, change in rows)
    assert "``" not in page


def test_the_page_of_figures_says_how_many_commits_ago_each_was_measured(site: Path) -> None:
    shown = (site / "figures.html").read_text(encoding="utf-8")
    ages = re.findall(r"\bcommit [0-9a-f]{10} \(\d+ commits ago\)", shown)
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"]
    whole = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == "false"
    assert len(ages) == (len(re.findall(r"\bcommit [0-9a-f]{10}\b", shown)) if whole else 0)
    assert ages or not whole


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("page", ["index", "quickstart", "generated/leaderandisr", "api/kproto", "genindex"])
def test_a_page_needs_no_sideways_scrolling(site: Path, driver: webdriver.Chrome, page: str, width: int) -> None:
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    driver.get((site / f"{page}.html").as_uri())
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width


def test_search_works_without_a_server(site: Path, driver: webdriver.Chrome) -> None:
    driver.get((site / "search.html").as_uri() + "?q=zombie")
    found = WebDriverWait(driver, 60).until(
        lambda d: d.execute_script("return [...document.querySelectorAll('ul.search li a')].map(a => a.textContent)")
    )
    assert found
