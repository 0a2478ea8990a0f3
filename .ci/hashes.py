"""Write a list of what an installation would take, each file with its SHA-256, for `--require-hashes`.

    make hashes                                                    resolves, downloads nothing it need not
    pip install --require-hashes --requirement hashes.txt          on every machine
    pip install --no-deps --no-build-isolation .                   ProViCo itself

The list is of one platform, and of the index that pip is configured with, which is not written down.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def pinned(report: dict[str, Any]) -> list[str]:
    """The lines of such a list, from what `pip install --dry-run --report` says."""
    lines = []
    for item in report["install"]:
        about, archive = item["metadata"], item["download_info"].get("archive_info")
        if archive is None:
            continue  # a folder: ProViCo itself
        lines.append(f"{about['name']}=={about['version']} --hash=sha256:{archive['hashes']['sha256']}\n")
    return sorted(lines, key=str.lower)


if __name__ == "__main__":
    sys.stdout.writelines(pinned(json.load(sys.stdin)))
