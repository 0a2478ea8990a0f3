"""The whole journey: a folder of videos is opened with one command, looked at, killed, and cleaned."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

README = Path(__file__).parents[3] / "README.md"
WORKING = "#stages .stage[data-state=running]"


class Opened:
    """`provico open` on a folder, which can be killed and opened again."""

    def __init__(self, fork_server: Any, folder: Path, encoder: Path, home: Path, elsewhere: Path) -> None:
        self.folder, self._fork_server, self._elsewhere = folder, fork_server, elsewhere
        self._command = [
            "-m",
            "provico",
            "open",
            folder,
            "--checkpoint",
            encoder,
            "--no-browser",
            "--port",
            "0",
        ]
        self._environment = {**os.environ, "PROVICO_HOME": str(home)}
        self.process: Any = None

    def start(self) -> str:
        """The address."""
        self.process = self._fork_server.start(
            *self._command, environment=self._environment, folder=self._elsewhere
        )
        while not (found := re.search(r"http://\S+", self.process.stderr)):
            assert self.process.poll() is None, self.process.stderr
            time.sleep(0.05)
        return found.group()

    def end(self, number: signal.Signals) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait()


@pytest.fixture
def opened(fork_server: Any, shaded_encoder: Path, tmp_path: Path, mixed: Any) -> Iterator[Opened]:
    mixed.write_mixed_folder(tmp_path / "videos")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    one = Opened(fork_server, tmp_path / "videos", shaded_encoder, tmp_path / "home", elsewhere)
    yield one
    one.end(signal.SIGINT)
    assert [*elsewhere.iterdir()] == []  # nothing is ever written to the current directory


def ready(page: Page, until: Callable[[Page, str], None]) -> None:
    until(page, "fetch('/api/work').then((r) => r.json()).then((w) => !w.is_working && !w.is_empty)")
    page.reload()


def test_from_a_folder_to_a_clean_copy(
    browser: Any, opened: Opened, until: Callable[[Page, str], None], mixed: Any
) -> None:
    every_name, copies = mixed.every_name, mixed.COPIES
    everything = {*every_name(opened.folder)}
    context = browser.new_context()
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(opened.start())
    expect(page.locator("#stages")).to_contain_text("Reading videos")

    # It is killed in the middle, and goes on.
    until(page, "fetch('/api/work').then((r) => r.json()).then((w) => !w.is_empty)")
    opened.end(signal.SIGKILL)
    address = opened.start()
    page.goto(address)
    ready(page, until)

    # The terminal says what the README prints, but for what was read before it was killed.
    (printed,) = re.findall(r"```console\n\$ provico open VIDEOS\n(.*?)```", README.read_text(), re.DOTALL)
    first, *rest_of_it = printed.splitlines()
    while not opened.process.stderr.rstrip().endswith(rest_of_it[-1]):
        assert opened.process.poll() is None, opened.process.stderr
        time.sleep(0.05)
    said = opened.process.stderr.splitlines()
    assert said[0].replace(str(opened.folder), "VIDEOS") == first.replace("http://127.0.0.1:8420", address)
    ends = [re.sub(r", \d+ of them new", "", line) for line in said[-len(rest_of_it) :]]
    assert ends == rest_of_it

    # The first view says what there is.
    expect(page.locator(".cluster").first).to_be_visible()
    sizes = page.locator(".cluster .cluster-foot .note").all_inner_texts()
    assert sum(int(size.split()[0]) for size in sizes) == len(everything) - len(mixed.JUNK)
    for group in page.locator(".cluster").all():
        title, _, _ = group.get_by_role("heading").inner_text().partition(" · ")
        assert title in mixed.KINDS or re.fullmatch(r"Group \d", title)
    expect(page.locator("#twice")).to_contain_text(f"{len(copies)} copies")
    for kind in {*mixed.JUNK.values()} - {"unreadable"}:
        expect(page.locator(f".junk-kind[data-kind={kind}]")).to_contain_text("1 ")
    expect(page.locator(".unreadable summary")).to_contain_text("1 file")

    # What a phone has turned is upright, and ten minutes are ten minutes.
    page.goto(f"{address}/browse?text={mixed.PHONE}")
    picture = page.locator(f".card[data-id='{mixed.PHONE}'] img")
    until(page, "document.querySelector('.card img')?.naturalWidth > 0")
    assert picture.evaluate("image => image.naturalHeight > image.naturalWidth")
    page.goto(f"{address}/browse?text={mixed.LONG}")
    expect(page.locator(f".card[data-id='{mixed.LONG}'] .time")).to_have_text("10:00.0")

    # Duplicates, side by side: one pair is said not to be the same, which outlives everything.
    page.goto(f"{address}/duplicates")
    for copy, original in copies.items():
        group = page.locator(f"section.group[aria-label='Copies of {original}']")
        expect(group.locator(".is-kept")).to_have_attribute("data-id", original)
        expect(group.locator(f".copy[data-id='{copy}'] .edit")).not_to_be_empty()
    expect(page.locator("#part-list")).to_contain_text("kitchen 1 cut out.mp4")
    small = page.locator(".copy[data-id='street 0 small.mp4']")
    small.get_by_role("button", name="Not the same").click()
    expect(page.locator("#count")).to_contain_text("1 pair rejected")
    page.locator("#trash-copies").click()
    expect(page.locator("#toast")).to_contain_text("3 videos moved to the trash")
    expect(page.locator("#groups")).to_contain_text("No duplicates")
    rest = copies.keys() - {"street 0 small.mp4"}
    assert {*every_name(opened.folder)} == everything - rest

    # Undo brings them back, in another tab, and the first tab is told when it comes too late.
    other = context.new_page()
    other.goto(address)
    ready(other, until)
    other.get_by_role("button", name=re.compile("^Undo: 3 videos")).click()
    expect(other.locator("#toast")).to_contain_text("Undone: 3 videos")
    assert {*every_name(opened.folder)} == everything
    page.goto(f"{address}/duplicates")
    page.locator("#trash-copies").click()
    expect(page.locator("#toast")).to_contain_text("3 videos moved to the trash")

    # Junk goes with one press; what is selected can be tagged, on whichever page.
    page.goto(address)
    ready(page, until)
    for kind in ("black", "noise"):
        page.locator(f".junk-kind[data-kind={kind}]").get_by_role("button", name="Move to trash").click()
        expect(page.locator(f".junk-kind[data-kind={kind}]")).to_have_count(0)
    page.locator(".junk-kind[data-kind=screen]").get_by_role("button", name="Keep").click()
    expect(page.locator(".junk-kind[data-kind=screen]")).to_have_count(0)
    page.goto(f"{address}/browse?text=garden")
    expect(page.locator(".card")).to_have_count(4)
    for card in page.locator(".card").all():
        card.locator(".select-box").check()
    expect(page.locator("#selection-count")).to_have_text("4 videos selected")
    page.get_by_role("button", name="Tag…").click()
    page.get_by_label("Tag").first.fill("outside")
    page.keyboard.press("Enter")
    expect(page.locator("#toast")).to_contain_text("4 videos tagged “outside”")

    # Ctrl-C, another start: all of it was kept. The clean copy has what is left, and takes no room.
    opened.end(signal.SIGINT)
    address = opened.start()
    page.goto(f"{address}/browse?tag=outside")
    expect(page.locator(".card")).to_have_count(4)
    page.goto(address)
    ready(page, until)
    page.locator("#clean-copy").click()
    expect(page.locator("#toast")).to_contain_text("linked to the clean copy")
    clean = opened.folder / ".provico" / "clean"
    gone = {*rest, "black.mp4", "snow.mp4", "frozen.mp4", "broken.mp4"}
    assert {*every_name(clean)} == everything - gone
    assert (clean / "garden 0.mp4").samefile(opened.folder / "garden 0.mp4")
    assert problems == []
    context.close()
