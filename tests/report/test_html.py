"""The page is opened in a real browser where there is one (Debian: chromium, chromium-driver), else read as text."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autostream.cost.model import Machine
from autostream.report.document import Document
from autostream.report.html import page
from autostream.report.html.data import layer_of
from autostream.report.schema import RegionRow, WhatIfRow
from tests.report import samples

MACHINE = Machine(name="910B2", aic=24, aiv=48, sync=500, sync_error=1.0)


@pytest.fixture(scope="module")
def document() -> Document:
    return samples.document(machine=MACHINE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no chromium and chromedriver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1366,900", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield running
    running.quit()


@pytest.fixture
def opened(browser: Any, document: Document, tmp_path: Path) -> Any:
    """The page of the sample in the browser; whatever a test does there must leave no error in the console."""
    return open_page(browser, document, tmp_path)


def open_page(browser: Any, document: Document, folder: Path) -> Any:
    file = folder / "report.html"
    file.write_text(page(document), encoding="utf-8")
    browser.get_log("browser")
    browser.get(file.as_uri())
    return browser


def cells(browser: Any, column: int) -> list[str]:
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[arguments[0]].innerText.trim())", column
    )
    return [text.removesuffix("●").strip() for text in found]


def errors(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_same_document_same_page(document: Document) -> None:
    assert page(document) == page(Document.from_json(document.to_json()))


def test_nothing_is_fetched(document: Document) -> None:
    text = page(document)
    assert "http://" not in text and "https://" not in text and "@import" not in text
    assert "src=" not in text.replace("data:", "")


def test_names_cannot_break_out_of_the_page() -> None:
    document = samples.document(name="</script><script>alert(1)</script>", notes=("<img src=x onerror=alert(1)>",))
    text = page(document)
    assert "<script>alert" not in text and "<img" not in text


def test_the_verdict_is_there_without_a_script(document: Document) -> None:
    text = page(document)
    assert "Accepted" in text and "-45.0 %" in text and "210.0 us" in text
    assert document.provenance.basis in text


def test_a_document_without_a_timeline(browser: Any, tmp_path: Path) -> None:
    document = samples.document(verdict=samples.declined(serial_ns=0), before=None, after=None, program=None, costs={})
    opened = open_page(browser, document, tmp_path)
    assert not opened.find_elements("css selector", "#chart")
    assert "Declined" in opened.find_element("id", "verdict").text
    assert errors(opened) == []


def test_a_declined_graph_shows_its_own_timeline(browser: Any, tmp_path: Path) -> None:
    opened = open_page(browser, samples.document(verdict=samples.declined(), after=None, program=None, machine=MACHINE), tmp_path)
    assert opened.find_element("id", "chart").size["height"] > 60
    assert cells(opened, 3) == ["default"] * 5
    assert errors(opened) == []


def test_elements_are_there(opened: Any) -> None:
    for name in ("verdict", "timeline", "why", "overlap", "operators", "price", "provenance"):
        assert opened.find_element("id", name).is_displayed()
    assert opened.find_element("id", "chart").size["width"] > 1000
    assert len(cells(opened, 0)) == 5
    drawn = opened.execute_script(
        "const c = document.getElementById('chart'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "return new Set(Array.from({length: d.length / 4}, (_, i) => d.slice(4 * i, 4 * i + 3).join())).size"
    )
    assert drawn > 5
    assert errors(opened) == []


def test_what_if_and_regions_have_sections_that_the_head_leads_to(document: Document, browser: Any, tmp_path: Path) -> None:
    variant = WhatIfRow(
        label="4 side streams", changed={"side_streams": 4}, accepted=False, code="no-gain", serial_ns=400_000,
        scheduled_ns=399_000, gain=0.0025, gain_low=-0.1, side_streams=4, cross_edges=3,
    )  # fmt: skip
    region = RegionRow(
        number=0, name="mm to add", ops=5, serial_ns=400_000, scheduled_ns=220_000, lower_bound_ns=210_000, status="optimal",
        side_streams=1, cross_edges=1, reason="no schedule is shorter",
    )  # fmt: skip
    opened = open_page(browser, document.model_copy(update={"what_if": (variant,), "regions": (region,)}), tmp_path)
    links = {link.text: link.get_attribute("href").partition("#")[2] for link in opened.find_elements("css selector", "nav a")}
    assert "declined (no-gain)" in opened.find_element("id", links["What if"]).text
    assert "no schedule is shorter" in opened.find_element("id", links["Regions"]).text
    assert errors(opened) == []


def test_a_column_that_says_nothing_is_left_out(opened: Any) -> None:
    heads = [head.text.split("\n")[0] for head in opened.find_elements("css selector", "#table th")]
    assert "Module" in heads and "Source" not in heads  # the operators of the sample have no source line


def test_sorting(opened: Any) -> None:
    assert cells(opened, 0) == ["mm", "mul", "exp", "mm_1", "add"]  # by start
    heads = opened.find_elements("css selector", "#table th")
    heads[5].click()
    assert cells(opened, 5) == ["20.0 us", "60.0 us", "100.0 us", "100.0 us", "120.0 us"]
    assert heads[5].get_attribute("aria-sort") == "ascending"
    heads[5].click()
    assert cells(opened, 5)[0] == "120.0 us" and heads[5].get_attribute("aria-sort") == "descending"
    heads[0].click()
    assert cells(opened, 0) == ["add", "exp", "mm", "mm_1", "mul"]
    assert errors(opened) == []


def test_searching(opened: Any) -> None:
    search = opened.find_element("id", "search")
    search.send_keys("aten.mm")
    assert cells(opened, 0) == ["mm", "mm_1"]
    assert opened.find_element("id", "found").text == "2 of 5 operators"
    search.send_keys(" no such thing")
    assert cells(opened, 0) == []
    assert errors(opened) == []


def test_filtering_by_unit_and_layer(opened: Any) -> None:
    opened.find_element("css selector", "#units input[data-unit=cube]").click()
    assert cells(opened, 0) == ["mul", "exp", "add"]
    opened.find_element("css selector", "#units input[data-unit=cube]").click()
    layers = [option.text for option in opened.find_elements("css selector", "#layer option")]
    assert layers == ["all", "layers.0"]
    assert errors(opened) == []


def test_hover_tells_about_an_operator_and_a_click_finds_it_in_the_table(opened: Any) -> None:
    from selenium.webdriver import ActionChains

    chart = opened.find_element("id", "chart")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    first_lane = 24 + 13  # below the title of the upper panel
    ActionChains(opened).move_to_element_with_offset(
        chart, -chart.size["width"] // 2 + 150, first_lane - chart.size["height"] // 2
    ).perform()
    tip = opened.find_element("id", "tip")
    assert tip.is_displayed() and "aten.mm" in tip.text and "24 AIC" in tip.text
    assert "slack" not in tip.text  # that of the plan, not of the graph as given
    ActionChains(opened).click().perform()
    assert opened.find_element("css selector", "tr.chosen td").text.startswith("mm")
    assert errors(opened) == []


def test_zooming_and_back(opened: Any) -> None:
    picture = "return document.getElementById('chart').toDataURL()"
    whole = opened.execute_script(picture)
    opened.find_element("id", "chart").send_keys("+")
    closer = opened.execute_script(picture)
    assert closer != whole
    opened.find_element("id", "reset").click()
    assert opened.execute_script(picture) == whole
    assert errors(opened) == []


def test_dark_and_light(opened: Any) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    first = opened.execute_script(background)
    opened.find_element("id", "theme").click()
    second = opened.execute_script(background)
    assert first != second
    opened.find_element("id", "theme").click()
    assert opened.execute_script(background) == first


@pytest.mark.parametrize(
    ("path", "layer"),
    [("model.layers.12.mlp.gate", "model.layers.12"), ("head.norm", "head"), ("", ""), ("3.conv", "3")],
)
def test_layer_of_a_module(path: str, layer: str) -> None:
    assert layer_of(path) == layer
