"""A headless Chromium that a test drives."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.chrome.service import Service


@contextmanager
def chromium_driver() -> Iterator[webdriver.Chrome]:
    """Start Chromium, whose console is kept, and end it."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    assert all(programs), "Chromium is missing; tools/setup test chromium installs it"
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1400,1000",
        "--force-prefers-reduced-motion",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(programs[1])))
    try:
        yield driver
    finally:
        driver.quit()
