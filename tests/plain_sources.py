"""Imports modules that are compiled too as the Python that they are."""

import sys
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from types import ModuleType

__all__ = ["from_sources", "prefer_sources"]


def prefer_sources(folder: str) -> None:
    """Import the modules of a folder, those that were not imported yet, from their Python sources."""
    sys.path_importer_cache[folder] = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


def from_sources(package: str, *modules: str) -> list[ModuleType]:
    """Modules of a package that run as Python; ``import`` goes on giving the compiled ones.

    Args:
        package: The package's name.
        modules: Names of its modules.
    """
    first = import_module(package)
    (folder,) = first.__path__
    parent, _, name = package.rpartition(".")

    def take_out() -> dict[str, ModuleType]:
        names = [each for each in sys.modules if each == package or each.startswith(f"{package}.")]
        return {each: sys.modules.pop(each) for each in names}

    usual = sys.path_importer_cache.get(folder)
    compiled = take_out()
    prefer_sources(folder)
    try:
        return [import_module(f"{package}.{module}") for module in modules]
    finally:
        take_out()
        sys.modules.update(compiled)
        sys.path_importer_cache[folder] = usual
        setattr(sys.modules[parent], name, first)
