"""The demo set as two tasks of mteb, with the real mteb, and an encoder through the adapter.

    pip install 'provico[mteb]'
    provico demo --out demo
    python benchmarks/mveb.py demo

Both tasks are of the kinds that MVEB is made of: a linear classifier on embeddings, and clustering. Nothing
is fetched. `untrained` is an encoder of the same settings that has learnt nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import mteb
from datasets import Dataset, DatasetDict, Features, Value, Video
from mteb.abstasks.classification import AbsTaskClassification
from mteb.abstasks.clustering import AbsTaskClustering
from mteb.abstasks.task_metadata import TaskMetadata

from provico import Encoder, open_catalog, open_encoder
from provico.evaluation.mteb_adapter import MtebEncoder

COMMON: dict[str, Any] = {
    "description": "The demo set of ProViCo: small videos whose classes differ in motion alone.",
    "dataset": {"path": "none/none", "revision": "1"},
    "category": "v2c",
    "eval_splits": ["test"],
    "eval_langs": ["eng-Latn"],
    "modalities": ["video"],
    "bibtex_citation": "",
}


def rows(data: Path, subset: str) -> Dataset:
    catalog = open_catalog(data, subset=subset)
    numbers = {name: number for number, name in enumerate(catalog.classes)}
    features = Features({"video": Video(decode=False), "label": Value("int64")})
    columns = {
        "video": [str(video.path) for video in catalog],
        "label": [numbers[str(video.label)] for video in catalog],
    }
    return Dataset.from_dict(columns, features=features)


class DemoClassification(AbsTaskClassification):
    """Logistic regression on the means of 16 videos a class."""

    metadata = TaskMetadata(
        name="DemoClassification", type="VideoClassification", main_score="accuracy", **COMMON
    )
    input_column_name = "video"
    samples_per_label = 16


class DemoClustering(AbsTaskClustering):
    """k-means of the means of the test videos."""

    metadata = TaskMetadata(name="DemoClustering", type="VideoClustering", main_score="v_measure", **COMMON)
    input_column_name = "video"
    label_column_name = "label"
    max_fraction_of_documents_to_embed = None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("demo", type=Path, help="what `provico demo` wrote")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "mveb.json")
    args = parser.parse_args()
    trained = open_encoder(args.demo / "run")
    tasks = [DemoClassification(), DemoClustering()]
    for task in tasks:
        task.dataset = DatasetDict({part: rows(args.demo / "data", part) for part in ("train", "test")})
        task.data_loaded = True
    found: dict[str, dict[str, float]] = {}
    for name, encoder in (("untrained", Encoder(trained.config).eval()), ("trained", trained)):
        model = MtebEncoder(encoder, f"provico/demo-{name}")
        results = mteb.evaluate(model, tasks, cache=None)
        found[name] = {one.task_name: round(one.get_score(), 4) for one in results}
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
