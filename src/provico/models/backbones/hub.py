"""Networks and encoders of the Hugging Face Hub, as folders on this machine.

`hf:OWNER/NAME` and `hf:OWNER/NAME@REVISION` are fetched when they are named and never otherwise, and only
once: afterwards they are found in the cache of huggingface_hub, also without a network. What is fetched are
settings (.json) and weights (.safetensors) at the top of the repository: nothing that could run code.
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
    """The folder of `hf:OWNER/NAME[@REVISION]`, fetched if it is not in the cache."""
    repo, revision = parse(name)
    require("hf", what=name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        # Nothing below the top: folders hold the same network in other formats.
        folder = snapshot_download(
            repo, revision=revision, allow_patterns=list(FETCHED), ignore_patterns=["*/*"]
        )
    except RepositoryNotFoundError as error:
        raise ConfigError(
            f"There is no repository {repo} on the Hugging Face Hub, or it needs a login (`hf auth login`)."
        ) from error
    except LocalEntryNotFoundError as error:
        raise ConfigError(
            f"{name} is not on this machine and cannot be fetched now. Connect to the network once, or give "
            "a folder that holds it."
        ) from error
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{name} cannot be fetched: {reason}") from error
    return Path(folder)


def publish(folder: Path, name: str, *, private: bool = False) -> str:
    """Put the files of a folder into the repository OWNER/NAME, new or there; gives the address."""
    repo, revision = parse(f"{PREFIX}{name.removeprefix(PREFIX)}")
    if revision is not None:
        raise ConfigError(f"{name} names a revision, but what is published becomes the newest. Leave out @.")
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
            "someone who may write there."
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
        "code. Convert them where you trust them, with save_pretrained of the library they are of."
    )
