"""A process that `test_finetune.py` starts, kills or lets torchrun start twice.

finetune_worker.py VIDEOS ENCODER OUT SETTINGS, where settings are JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from provico.config.evaluation import FinetuneSettings
from provico.evaluation.recognition import finetune
from provico.evaluation.sets import open_sets
from provico.models.encoder import Encoder
from provico.processes import join

if __name__ == "__main__":
    videos, encoder, out = map(Path, sys.argv[1:4])
    settings = FinetuneSettings(**json.loads(sys.argv[4]))
    with join(settings.device) as processes:
        result = finetune(
            Encoder.from_pretrained(encoder),
            open_sets(videos / "train", test_data=videos / "test"),
            settings=settings,
            out=out,
        )
        (out / f"result-{processes.rank}.json").write_text(
            json.dumps(result.to_dict() | {"scored": [guess.score for guess in result.predictions]})
        )
