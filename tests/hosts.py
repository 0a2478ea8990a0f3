"""Hosts with addresses of their own on this machine: network namespaces on one switch."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

INTERFACE = "eth0"


@dataclass(frozen=True)
class Host:
    """One of them."""

    name: str
    """Of its namespace."""
    address: str

    @property
    def enter(self) -> tuple[str, ...]:
        """What a command that runs there begins with."""
        return ("ip", "netns", "exec", self.name)

    def cut_off(self) -> None:
        """Pull the cable: nothing is told to anybody."""
        _ip("-n", self.name, "link", "set", INTERFACE, "down")


@contextmanager
def hosts(number: int) -> Iterator[list[Host]]:
    """So many hosts; the test is skipped where none can be made."""
    prefix = f"provico{os.getpid()}"
    switch = f"{prefix}s"
    made = [Host(f"{prefix}h{place}", f"10.77.0.{place}") for place in range(1, number + 1)]
    if shutil.which("ip") is None:
        pytest.skip("there is no command `ip`, so that no hosts can be made")
    try:
        for name in (switch, *(host.name for host in made)):
            try:
                _ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network namespaces can be made here: {error.stderr.strip()}")
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", switch, "link", "set", "switch", "up")
        for place, host in enumerate(made):
            port = f"port{place}"
            peer = ("peer", "name", INTERFACE, "netns", host.name)
            _ip("-n", switch, "link", "add", port, "type", "veth", *peer)
            _ip("-n", switch, "link", "set", port, "master", "switch", "up")
            _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", INTERFACE)
            _ip("-n", host.name, "link", "set", INTERFACE, "up")
        yield made
    finally:
        for name in (*(host.name for host in made), switch):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
