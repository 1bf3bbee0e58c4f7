"""A real browser, and reports in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from chromium import chromium_driver
from report_tables import Cluster, fleet, state
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from kproto.report import write_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa
    from selenium import webdriver
    from selenium.webdriver.remote.webelement import WebElement

SECONDS = 60


@dataclass
class Page:
    """A report in Chromium."""

    driver: webdriver.Chrome

    def open(self, path: Path) -> None:
        self.driver.get(path.as_uri())
        self.until("return document.documentElement.dataset.drawn")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, *arguments: Any) -> Any:
        return WebDriverWait(self.driver, SECONDS, 0.05).until(lambda driver: driver.execute_script(script, *arguments))

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def fill(self, selector: str, value: str) -> None:
        """Set a field's value as a user would."""
        script = """
            arguments[0].value = arguments[1];
            for (const name of ["input", "change"]) arguments[0].dispatchEvent(new Event(name));
        """
        self.run(script, self.find(selector), value)

    def complaints(self) -> list[dict[str, Any]]:
        """What the browser's console was told, forbidden scripts and requests among it."""
        return list(self.driver.get_log("browser"))

    def light(self, scheme: str) -> None:
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


@pytest.fixture(scope="session")
def chromium() -> Iterator[webdriver.Chrome]:
    with chromium_driver() as driver:
        yield driver


@pytest.fixture
def browser(chromium: webdriver.Chrome) -> Iterator[Page]:
    """A page that must have left the console silent when the test ends."""
    page = Page(chromium)
    page.complaints()
    yield page
    page.light("light")
    assert page.complaints() == []


@pytest.fixture
def show(browser: Page, tmp_path: Path) -> Callable[[Mapping[str, pa.Table]], Page]:
    """Opens the report on some tables."""

    def opened(tables: Mapping[str, pa.Table]) -> Page:
        write_report(tables, tmp_path / "report.html")
        browser.open(tmp_path / "report.html")
        return browser

    return opened


@pytest.fixture(scope="session")
def big() -> dict[str, pa.Table]:
    """A cluster of 10,000 partitions."""
    return fleet(10_000).tables()


@pytest.fixture
def incident() -> Cluster:
    """A leader changes, another is lost, replicas leave the ISR, a zombie is fenced, a broker falls silent."""
    cluster = Cluster()
    for broker in (0, 1, 2):
        cluster.send(broker / 1000, broker, [state("orders", 0), state("orders", 1, leader=2), state("payments", 0)])
    for broker in (0, 1):
        cluster.send(10 + broker / 10, broker, [state("orders", 0, 2, 1, (0, 2)), state("payments", 0, -1, 1, (1,))])
    cluster.send(15, 0, [state("orders", 0, 1, 0)], controller=99, epoch=1, error=11, client_id="99")
    cluster.send(20, 2, [state("orders", 1, 2, 0)], error=None)
    return cluster
