"""The API is as it is documented: what schemathesis makes of the schema is answered as the schema says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

HEADERS = {"X-ProViCo": "1"}
EXAMPLES = 12
"""For each route, of requests that are right and again of requests that are wrong."""
ROUTES = [
    ("GET", "/api/work"),
    ("POST", "/api/work"),
    ("GET", "/api/overview"),
    ("GET", "/api/stats"),
    ("GET", "/api/videos"),
    ("GET", "/api/video"),
    ("GET", "/api/duplicates"),
    ("POST", "/api/duplicates/rejections"),
    ("GET", "/api/actions"),
    ("POST", "/api/actions"),
    ("POST", "/api/actions/undo"),
    ("GET", "/api/search"),
    ("GET", "/api/search/words"),
    ("POST", "/api/search"),
    ("GET", "/api/map"),
    ("GET", "/api/runs"),
    ("GET", "/api/runs/{name}/metrics"),
    ("GET", "/api/reports"),
    ("GET", "/api/judgements"),
    ("POST", "/api/judgements"),
    ("POST", "/api/judgements/undo"),
    ("GET", "/api/judgements/first"),
    ("GET", "/api/curation"),
    ("POST", "/api/curation/decisions"),
    ("POST", "/api/curation/undo"),
    ("GET", "/media/thumbnail"),
    ("GET", "/media/preview"),
    ("GET", "/media/source"),
    ("GET", "/media/frame"),
    ("GET", "/media/cut"),
    ("GET", "/reports/{name}/{path}"),
]


@pytest.fixture(scope="module")
def operations(server):
    """What the server says that it can do, by method and path."""
    import schemathesis  # here, since it takes seconds and only one test process needs it

    schema = schemathesis.openapi.from_url(f"{server.url}/api/openapi.json")
    found = (result.ok() for result in schema.get_all_operations())
    yield {(operation.method.upper(), operation.path): operation for operation in found}
    server.reset_curation()
    server.reset_judgements()


def test_the_routes_are_known(operations):
    assert sorted(operations) == sorted(ROUTES)


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("route", ROUTES, ids="{0[0]} {0[1]}".format)
def test_every_answer_is_as_documented(operations, route, mode):
    from schemathesis import Case, GenerationMode
    from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

    operation = operations[route]
    if mode == "negative" and not (operation.query or operation.body):
        pytest.skip("there is nothing that could be wrong")
    excluded = []
    if operation.method.upper() == "GET":
        # A query is text: a list that is empty, or null, looks like a value that was left out.
        excluded.append(negative_data_rejection)
    if operation.path in ("/api/search", "/api/actions"):
        # No schema can say that an end comes after a start, that bytes are a video, or what a tag is.
        excluded.append(positive_data_acceptance)

    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Case) -> None:
        case.call_and_validate(headers=HEADERS, excluded_checks=excluded, timeout=300)

    check()


def test_every_route_is_described(client):
    found = client.get("/api/openapi.json").json()
    for path, methods in found["paths"].items():
        for method, route in methods.items():
            assert route["summary"], (path, method)
            assert route.get("description"), (path, method)
            assert "500" in route["responses"], (path, method)
            assert route["responses"]["200"]["content"], (path, method)
    described = {name for name, model in found["components"]["schemas"].items() if model.get("description")}
    theirs = ("Body_", "HTTPValidation", "Validation")
    assert {name for name in found["components"]["schemas"] if not name.startswith(theirs)} <= described


def test_the_docs_name_every_route():
    text = (Path(__file__).parents[2] / "docs" / "explorer.md").read_text()
    for method, path in ROUTES:
        assert f"{method} {path}" in text
