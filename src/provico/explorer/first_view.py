"""The first view as it was answered last: a collection that is opened again shows it before torch is there.

With a collection lies `first-view.zip`: the answers that the first view asks for, and its pictures. They are
given as long as nothing is known to have changed since. What has changed all the same, such as an index that
grew, the page finds when the application is there: it then asks again.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import zipfile
from collections.abc import Mapping
from importlib.metadata import version

from starlette.responses import Response
from starlette.types import Scope

from provico.explorer.settings import PICTURE_CACHING, ExplorerSettings
from provico.files import ARCHIVE_ERRORS, Signature, replacing
from provico.locations import COLLECTION_NAME
from provico.workspace.status import STATUS_NAME

NAME = "first-view.zip"
PATHS = ("/api/work", "/api/overview", "/api/actions")
MOST_BYTES = 2**26
log = logging.getLogger("provico.explorer")


class FirstView:
    """What was kept."""

    def __init__(self, answers: Mapping[str, bytes], pictures: Mapping[str, bytes]) -> None:
        self._answers, self._pictures = answers, pictures

    @classmethod
    def read(cls, settings: ExplorerSettings) -> FirstView | None:
        """That of a collection; None if there is none, or if anything is another by now."""
        if settings.workspace is None:
            return None
        path = settings.workspace.path / NAME
        try:
            if path.stat().st_size > MOST_BYTES:
                return None
            with zipfile.ZipFile(path) as file:
                if any(one.compress_type != zipfile.ZIP_STORED for one in file.infolist()):
                    return None
                if file.read("state").decode() != state_of(settings):
                    return None
                names = json.loads(file.read("pictures"))
                pictures = {str(name): file.read(f"{number}.jpg") for number, name in enumerate(names)}
                return cls({one: file.read(one.strip("/")) for one in PATHS}, pictures)
        except FileNotFoundError:
            return None
        except (*ARCHIVE_ERRORS, RecursionError) as error:
            log.warning("%s is damaged (%r), and is made again.", path, error)
            return None

    def answer(self, scope: Scope) -> Response | None:
        """The answer to a request, if it is kept."""
        if scope["type"] != "http" or scope["method"] != "GET":
            return None
        path, query = scope["path"], scope["query_string"].decode("latin-1")
        if path in self._answers and not query:
            return Response(self._answers[path], media_type="application/json")
        if (picture := self._pictures.get(f"{path}?{query}")) is not None:
            headers = {"Cache-Control": PICTURE_CACHING}
            return Response(picture, media_type="image/jpeg", headers=headers)
        return None


def state_of(settings: ExplorerSettings) -> str:
    """What the first view depends on, as far as that is known without opening the index."""
    assert settings.workspace is not None
    folder = settings.workspace.path
    files = [
        path
        for place in (folder, settings.curation_folder)
        for path in sorted([*place.glob("*.json*"), *place.glob("*.csv")])
        if path.name not in (STATUS_NAME, COLLECTION_NAME)
    ]
    return json.dumps(
        [
            version("provico"),
            dataclasses.asdict(settings.workspace.settings),
            settings.words,
            [(path.name, *Signature.of(path)) for path in files],
        ]
    )


def keep(
    settings: ExplorerSettings, state: str, answers: Mapping[str, str], pictures: Mapping[str, bytes]
) -> None:
    """Keep answers by their paths, and pictures by their addresses, which are those of this state."""
    assert settings.workspace is not None
    with (
        replacing(settings.workspace.path / NAME) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as file,
    ):
        file.writestr("state", state)
        file.writestr("pictures", json.dumps([*pictures]))
        for path in PATHS:
            file.writestr(path.strip("/"), answers[path])
        for number, picture in enumerate(pictures.values()):
            file.writestr(f"{number}.jpg", picture)
