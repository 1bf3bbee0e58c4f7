"""The report's page in Chromium: it draws, searches, zooms and opens requests, and runs nothing that data says."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commands import kproto_prints
from report_tables import Cluster, state
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from kproto.report import write_report
from kproto.tables import read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    import pyarrow as pa
    from conftest import Page

    Show = Callable[[Mapping[str, pa.Table]], Page]

CAPTURES = Path(__file__).parent.parent / "data" / "captures"
CANVAS = "#timeline-lanes canvas"
MOST_MS = 30_000
"""A busy machine draws within this time, but not where the work grows with the square of the partitions."""


def opened(page: Page) -> dict[str, Any]:
    """The request that the sheet shows as JSON."""
    page.until("return document.getElementById('request').open")
    shown = json.loads(page.text("#request pre.json"))
    assert isinstance(shown, dict)
    return shown


@pytest.mark.slow
def test_ten_thousand_partitions_draw_and_search_in_time(show: Show, big: Mapping[str, pa.Table]) -> None:
    page = show(big)
    assert page.text("#shown") == "10,000 of 10,000 partitions"
    (drawn,) = page.run("return performance.getEntriesByName('kproto-drawn').map((entry) => entry.duration)")
    assert drawn < MOST_MS
    page.find("#search").send_keys("topic-00003-1")
    assert page.text("#shown") == "11 of 10,000 partitions"
    page.find("#search").clear()
    page.find("#search").send_keys("topic-00003 leader:2")
    assert page.text("#shown") == "50 of 10,000 partitions"


@pytest.mark.slow
def test_rows_far_below_are_drawn_when_they_are_scrolled_to(show: Show, big: Mapping[str, pa.Table]) -> None:
    page = show(big)
    before = page.run("return document.querySelector(arguments[0]).toDataURL()", CANVAS)
    page.run("document.querySelector('#timeline-lanes .lanes').scrollTop = 1e9")
    page.until("return document.querySelector(arguments[0]).toDataURL() !== arguments[1]", CANVAS, before)
    assert page.run("return document.querySelector(arguments[0]).height", CANVAS) < 3000


def test_a_drag_zooms_every_chart_and_all_brings_the_whole_back(show: Show, incident: Cluster) -> None:
    page = show(incident.tables())
    whole = page.text("#range")
    controllers = page.run("return document.querySelector('#controllers-lanes canvas').toDataURL()")
    canvas = page.find(CANVAS)
    page.run("arguments[0].scrollIntoView({block: 'center'})", canvas)
    ActionChains(page.driver).move_to_element(canvas).click_and_hold().move_by_offset(150, 0).release().perform()
    page.until("return document.getElementById('range').textContent !== arguments[0]", whole)
    page.until("return document.querySelector('#controllers-lanes canvas').toDataURL() !== arguments[0]", controllers)
    zoomed = page.text("#range")
    page.find("#closer").click()
    assert page.text("#range") != zoomed
    page.find("#whole").click()
    assert page.text("#range") == whole


def test_the_keyboard_reaches_every_state_and_opens_its_request(show: Show, incident: Cluster) -> None:
    page = show(incident.tables())
    page.find("#search").send_keys("payments")
    page.find("#order").send_keys(Keys.TAB)
    assert page.run("return document.activeElement === document.querySelector(arguments[0])", CANVAS)
    keys = ActionChains(page.driver).send_keys(Keys.ARROW_DOWN)
    keys.perform()
    assert "leader 1 → none, epoch 1" in page.text("#spoken")
    ActionChains(page.driver).send_keys(Keys.ARROW_LEFT).perform()
    assert "leader 1, epoch 0" in page.text("#spoken")
    ActionChains(page.driver).send_keys(Keys.ARROW_RIGHT, Keys.ENTER).perform()
    request = opened(page)
    assert request["time"] == "2026-11-21T06:00:10.000000Z"
    states = {topic["topicName"]: topic["partitionStates"] for topic in request["request"]["topicStates"]}
    assert [row["leader"] for row in states["payments"]] == [-1]
    page.find("#request .steps button").click()
    assert opened(page)["time"] == "2026-11-21T06:00:00.000000Z"
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    page.until("return !document.getElementById('request').open")


def test_a_click_on_a_band_opens_the_request_that_told_it(show: Show, incident: Cluster) -> None:
    page = show(incident.tables())
    canvas = page.find(CANVAS)
    page.run("arguments[0].scrollIntoView({block: 'center'})", canvas)
    width, height = canvas.size["width"], canvas.size["height"]
    first_row = 24 + 12 - height / 2
    ActionChains(page.driver).move_to_element_with_offset(
        canvas, round(width / 2 - 20), round(first_row)
    ).click().perform()
    request = opened(page)
    assert (request["controller_id"], request["error_name"]) == (100, "NONE")
    assert page.text("#request h3") == "orders-0"


def test_a_fenced_zombie_is_marked_and_leads_to_its_request(show: Show, incident: Cluster) -> None:
    page = show(incident.tables())
    assert "refused 1 request of controller 99 with epoch 1" in page.text("#findings")
    assert "refused: STALE_CONTROLLER_EPOCH" in page.text("#stale")
    lanes = page.find("#controllers-lanes canvas")
    page.run("arguments[0].focus()", lanes)
    ActionChains(page.driver).send_keys(Keys.ARROW_DOWN, Keys.ENTER).perform()
    request = opened(page)
    assert (request["controller_id"], request["controller_epoch"], request["error_code"]) == (99, 1, 11)
    assert request["request"]["controllerId"] == 99


@pytest.mark.slow
def test_krafts_quorum_without_a_leader_and_late_metadata_have_lanes(show: Show) -> None:
    page = show(read(str(CAPTURES.parent / "kraft" / "kraft-4.1-b.pcap.gz")))
    page.run("arguments[0].focus()", page.find("#controllers-lanes canvas"))
    ActionChains(page.driver).send_keys(Keys.END).perform()
    assert page.text("#spoken").startswith(
        "broker 2 metadata lag: broker 2 had not applied for 17.9 s what was committed"
    )
    ActionChains(page.driver).send_keys(Keys.ARROW_UP).perform()
    assert page.text("#spoken").startswith("no quorum leader: no leader of the quorum answered for 2.12 s: ")
    ActionChains(page.driver).send_keys(Keys.ARROW_LEFT).perform()
    said = page.text("#spoken")
    assert said.startswith("no quorum leader: no leader of the quorum answered for 10.3 s: ")
    assert "fetches in vain by nodes 0, 1, 2, 1000" in said


HOSTILE = (
    "</script><script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 2'>",
    "--></style><svg onload='window.hurt = 3'>",
    "{facts}{script}",
    "a\u2028b\u2029c\x00\x1b[2J\"'`$(touch hurt)",
    "\N{RIGHT-TO-LEFT OVERRIDE}desrever",
)


@pytest.mark.slow
def test_tables_of_several_days_show_the_worst_brokers_of_each_week(show: Show, incident: Cluster) -> None:
    assert show(incident.tables()).text("#weeks") == ""
    incident.send(8 * 86_400, 0, [state("orders", 0, 1, 2)])
    page = show(incident.tables())
    rows = page.run(
        "return [...document.querySelectorAll('#weeks tbody tr')].map((row) => [...row.cells].map((c) => c.innerText))"
    )
    worst = [row[1:7] for row in rows if row[1] == "1"]
    assert worst == [["1", "1", "0.2", "0.2", "2", "1"], ["1", "1", "11,519.7", "11,519.7", "0", "0"]]
    assert rows[0][0] < rows[1][0]


def test_hostile_names_are_text(show: Show) -> None:
    cluster = Cluster(capture="<b onclick='window.hurt = 4'>'; touch hurt.pcap")
    for number, name in enumerate(HOSTILE):
        cluster.send(number, 0, [state(name, 0)], client_id=name)
        for change in range(4):
            cluster.send(10 + change, 0, [state(name, 0, change % 2, change + 1)], client_id=name)
    page = show(cluster.tables())
    assert page.find("#captures").text.count("window.hurt = 4")
    for name in HOSTILE:
        buttons = page.run("return [...document.querySelectorAll('#flaps td button')]")
        (button,) = [found for found in buttons if found.get_property("textContent") == f"{name}-0"]
        button.click()
        assert page.find("#search").get_property("value") == f"{name}-0".replace("\n", "")
    page.fill("#search", "")
    page.run("arguments[0].focus()", page.find(CANVAS))
    seen = set()
    for _ in HOSTILE:
        ActionChains(page.driver).send_keys(Keys.ARROW_DOWN, Keys.ENTER).perform()
        seen.add(opened(page)["client_id"])
        command = page.text("#request pre.command")
        assert shlex.split(command)[2] == "<b onclick='window.hurt = 4'>'; touch hurt.pcap"
        ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    assert seen == set(HOSTILE)
    assert page.run("return window.hurt") is None
    assert page.run("return document.querySelectorAll('main img, main script, main svg, main b[onclick]').length") == 0


def test_light_and_dark_follow_the_system(show: Show, incident: Cluster) -> None:
    page = show(incident.tables())
    ground = """
        const pen = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
        pen.drawImage(document.querySelector(arguments[0]), -2, -40);
        const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
        return arguments[1] === "light" ? red + green + blue > 600 : red + green + blue < 150;
    """
    for scheme in ("light", "dark", "light"):
        page.light(scheme)
        page.until(ground, CANVAS, scheme)


def test_the_page_asks_no_network_and_allows_no_script_but_its_own(show: Show, incident: Cluster) -> None:
    page = show(incident.tables())
    assert page.run("return performance.getEntriesByType('resource').length") == 0
    policy = page.run("return document.querySelector('meta[http-equiv]').content")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    page.run("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hurt = 5'}))")
    assert page.run("return window.hurt") is None
    assert any("Content Security Policy" in told["message"] for told in page.complaints())


@pytest.mark.parametrize("name", ["ibp-3.9-a", "external-controller-a", "ibp-0.8.2-a"])
def test_the_command_beside_a_request_finds_it_in_the_capture(browser: Page, tmp_path: Path, name: str) -> None:
    capture = CAPTURES / f"{name}.pcap.gz"
    write_report(read(str(capture)), tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    browser.run("arguments[0].focus()", browser.find(CANVAS))
    for _ in range(4):
        ActionChains(browser.driver).send_keys(*[Keys.ARROW_DOWN] * 5, Keys.ENTER).perform()
        shown = opened(browser)
        words = shlex.split(browser.text("#request pre.command"))
        assert words[:3] == ["kproto", "inspect", capture.name]
        (found,) = map(json.loads, kproto_prints("inspect", capture, *words[3:]).splitlines())
        for key in (
            "api_version",
            "correlation_id",
            "client_id",
            "broker_id",
            "controller_epoch",
            "error_name",
            "server",
        ):
            assert shown[key] == found[key], key
        assert shown["latency_ms"] == pytest.approx(found["latency_ms"], abs=0.002)
        assert shown["request"]["controllerEpoch"] == found["request"]["controllerEpoch"]
        ActionChains(browser.driver).send_keys(Keys.ESCAPE).perform()


def test_several_captures_far_apart_are_shown_one_at_a_time(browser: Page, tmp_path: Path) -> None:
    names = ("ibp-2.8-a", "ibp-3.9-a")
    write_report(read(*(str(CAPTURES / f"{name}.pcap.gz") for name in names)), tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    one = browser.text("#shown")
    browser.fill("#cluster", "-1")
    assert int(browser.text("#shown").split()[0]) > int(one.split()[0])
    assert "ibp-2.8-a.pcap" in browser.text("#span")


WRITTEN = """
window.written = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, ...rest) {
  const width = this.measureText(text).width;
  const left = this.getTransform().e + x - { center: width / 2, right: width, end: width }[this.textAlign] || x;
  window.written.push({ text, left, right: left + width, host: this.canvas.parentElement?.className ?? "" });
  return write.call(this, text, x, ...rest);
};
"""


def test_a_phone_shows_controllers_and_an_axis_that_can_be_read(show: Show, incident: Cluster) -> None:
    driver = show(incident.tables()).driver
    screen = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    spy = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WRITTEN})
    try:
        page = show(incident.tables())
        for last in ("99 e1", "max"):
            page.until("return window.written.some((each) => each.text === arguments[0])", last)
        written = page.run("return window.written")
        assert page.run("return document.documentElement.scrollWidth") <= 400
    finally:
        driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", spy)
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    texts = {each["text"] for each in written}
    assert {"99 e1", "100 e2"} <= texts
    axis = {each["text"]: each for each in written if each["host"] == "u-wrap" and each["text"][:1] in ("p", "m")}
    places = sorted((each["left"], each["right"]) for each in axis.values())
    assert len(places) > 3
    assert all(before[1] < after[0] for before, after in pairwise(places))
