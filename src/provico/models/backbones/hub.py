"""Networks and encoders of the Hugging Face Hub, as local folders.

`hf:OWNER/NAME` and `hf:OWNER/NAME@REVISION` are downloaded only when they are named, and only once:
afterwards they are in the cache of huggingface_hub, also offline. Only settings (.json) and weights
(.safetensors) at the top of the repository are downloaded: nothing that could run code.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from provico.errors import ConfigError, WeightsError
from provico.extras import require

PREFIX = "hf:"
FETCHED = ("*.json", "*.safetensors")
_NAME = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")


def parse(name: str) -> tuple[str, str | None]:
    """Repository and revision of `hf:OWNER/NAME[@REVISION]`."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise ConfigError(
            f"{name!r} is not the name of a network on the Hugging Face Hub. Write hf:OWNER/NAME, or "
            "hf:OWNER/NAME@REVISION, such as hf:facebook/dinov2-small."
        )
    return found["repo"], found["revision"]


@lru_cache(maxsize=32)
def fetch(name: str) -> Path:
    """The folder of `hf:OWNER/NAME[@REVISION]`, downloaded if it is not in the cache."""
    repo, revision = parse(name)
    require("hf", what=name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        # Only the top level: folders hold the same network in other formats.
        folder = snapshot_download(
            repo, revision=revision, allow_patterns=list(FETCHED), ignore_patterns=["*/*"]
        )
    except RepositoryNotFoundError as error:
        raise ConfigError(
            f"There is no repository {repo} on the Hugging Face Hub, or it needs a login (`hf auth login`)."
        ) from error
    except LocalEntryNotFoundError as error:
        raise ConfigError(
            f"{name} is not in the local cache and cannot be downloaded now. Go online once, or give "
            "a folder that holds it."
        ) from error
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{name} cannot be downloaded: {reason}") from error
    return Path(folder)


def publish(folder: Path, name: str, *, private: bool = False) -> str:
    """Upload the files of a folder to the repository OWNER/NAME, created if needed; return its URL."""
    repo, revision = parse(f"{PREFIX}{name.removeprefix(PREFIX)}")
    if revision is not None:
        raise ConfigError(f"{name} names a revision, but an upload becomes the newest one. Leave out the @.")
    require("hf", what="Publishing on the Hugging Face Hub")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    api = HfApi(library_name="provico")
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo, folder_path=folder, commit_message="Upload an encoder of ProViCo"
        )
    except (HfHubHTTPError, LocalTokenNotFoundError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"{repo} cannot be written on the Hugging Face Hub ({reason}). Log in with `hf auth login` as "
            "a user with write access."
        ) from error
    return str(commit.commit_url)


def check_weights(folder: Path, *, called: str) -> None:
    """Refuse a folder whose weights are missing, or of a format that could run code."""
    if any(folder.glob("*.safetensors")):
        return
    pickles = [path.name for path in (*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth"))]
    found = f"only {', '.join(sorted(pickles))}" if pickles else "no weights"
    raise WeightsError(
        f"{called} has {found}, but weights as .safetensors are needed, since reading a pickle could run any "
        "code. If you trust them, convert them with save_pretrained of their library."
    )
