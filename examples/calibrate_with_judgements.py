"""Calibrate an index with fifty judgements. Each further hit then states how often such hits are right.

    python examples/calibrate_with_judgements.py

Here labels provide the judgements. On the page (`provico serve`) two keys do; `provico judge` imports a csv.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from prepared import index, videos
from provico import Index, open_catalog
from provico.search.judgements import Judgement


def main() -> None:
    """Judge hits, calibrate, and search again."""
    labels = {video.id: video.label for video in open_catalog(videos())}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(index().path, Path(folder) / "index")
        opened = Index.open(Path(folder) / "index")
        judged = []
        for name in opened.ids:
            for hit in opened.search(name, k=3, exclude_same="group", max_chance=None).hits:
                verdict = "right" if labels[hit.id] == labels[name] else "wrong"
                judged.append(Judgement(query=name, hit=hit.id, verdict=verdict))
        opened.judge(judged[:: max(1, len(judged) // 50)][:50])
        found = opened.calibrate(source="judgements")
        print(f"{found.num_pairs} judgements, {found.num_matches} of them right")
        answer = opened.search(opened.ids[0], k=3, exclude_same="group", max_chance=None)
        for hit in answer.hits:
            said = "unknown" if hit.calibrated_probability is None else f"{hit.calibrated_probability:.0%}"
            print(
                f"  {hit.id}: right in {said} of such cases; it is {labels[hit.id] == labels[opened.ids[0]]}"
            )


if __name__ == "__main__":
    main()
