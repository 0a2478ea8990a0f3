"""ProViCo: probabilistic representations for video contrastive learning.

Packages in the order in which data flows through them: `errors`, `defaults`, `config`; `data` (video file ->
clips); `probability` (Gaussian -> mixture -> samples -> pairs -> loss); `models` (clips -> Gaussian);
`embedding` (video -> embedding); `training` (clips -> encoder); `search` (video -> index -> hits);
`evaluation` (embeddings -> scores); `cli` (one function per verb).

The public names are listed once, in `__init__.pyi`, for type checkers and for this module. They are imported
on first use, so that `import provico` and `provico --help` do not import torch.
"""


def _read_homes() -> dict[str, str]:
    """Map public names to modules, from lines such as `from provico.module import Name as Name`."""
    stub = __loader__.get_data(f"{__file__}i").decode()
    imports = (line.split() for line in stub.splitlines() if line.startswith("from "))
    return {name: home for _, home, _, name, *_ in imports}


_HOMES = _read_homes()
__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"provico has no attribute {name!r}; its names are {', '.join(__all__)}")
    if name == "__version__":
        from importlib.metadata import version

        return version("provico")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
