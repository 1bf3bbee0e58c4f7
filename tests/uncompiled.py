"""A pytest plugin, ``-p uncompiled``: the modules that are compiled too are imported as the Python that they are."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader


class SourcesFirst(MetaPathFinder):
    """Imports modules of ``channel`` and ``kproto.capture`` from their sources.

    Coverage sees no compiled line, and no attribute of a compiled class can be watched.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if path is None or not name.startswith(("channel.", "kproto.capture.")):
            return None
        finders = (FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)) for folder in path)
        found = (finder.find_spec(name) for finder in finders)
        return next((spec for spec in found if spec is not None and spec.loader is not None), None)


def pytest_configure() -> None:
    sys.meta_path.insert(0, SourcesFirst())
