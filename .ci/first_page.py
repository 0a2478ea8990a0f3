"""Seconds until `provico open FOLDER` shows its first page, and until that page says what is in the folder.

    python .ci/first_page.py FOLDER SECONDS_THAT_THE_INSTALLATION_TOOK

It prints what was measured and judges nothing: how busy the machine is, no test can know.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

LIMIT = 1800.0
"""Seconds after which something must be broken."""


def main() -> None:
    folder, installed = Path(sys.argv[1]), float(sys.argv[2])
    began = time.monotonic()
    command = ["provico", "open", str(folder), "--no-browser", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        address = re.search(r"http://\S+", said)
        if address is None:
            raise SystemExit(f"No address: {said}{process.stderr.read()}")
        answer(address.group())
        page = time.monotonic() - began
        while not has_groups(address.group()):
            if process.poll() is not None or time.monotonic() - began > LIMIT:
                raise SystemExit("The page never said what is in the folder.")
            time.sleep(0.5)
        groups = time.monotonic() - began
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
    videos = sum(path.suffix in (".mp4", ".avi") for path in folder.rglob("*"))
    print(
        f"{videos} videos: installed in {installed:.0f} s, the page {page:.1f} s later, "
        f"groups on it {groups:.1f} s after the command; {installed + groups:.0f} s in all"
    )


def has_groups(address: str) -> bool:
    if json.loads(answer(f"{address}/api/work"))["is_empty"]:
        return False
    return bool(json.loads(answer(f"{address}/api/overview"))["clusters"])


def answer(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=600) as response:
        found: bytes = response.read()
    return found


if __name__ == "__main__":
    main()
