"""A headless Chromium that a test drives."""

from collections.abc import Iterator
from contextlib import contextmanager

from commands import program
from selenium import webdriver
from selenium.webdriver.chrome.service import Service


@contextmanager
def chromium_driver() -> Iterator[webdriver.Chrome]:
    """Start Chromium, whose console is kept, and end it."""
    driver_path = program("chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program("chromium")
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
    driver = webdriver.Chrome(options=options, service=Service(driver_path))
    try:
        yield driver
    finally:
        driver.quit()
