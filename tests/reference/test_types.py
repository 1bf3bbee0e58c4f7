"""Type checkers know the fields of every message, and what every API decodes to, as the declarations say."""

import importlib
import inspect
from pathlib import Path
from typing import Any

from reference_types import STUB, annotation, stub

from kproto import reference
from kproto.metadata_log import records
from kproto.reference.struct import Struct


def structs() -> list[type[Any]]:
    modules = [importlib.import_module(f"kproto.reference.{path.stem}") for path in FILES]
    found = [cls for module in [*modules, records] for cls in vars(module).values() if isinstance(cls, type)]
    return [cls for cls in dict.fromkeys(found) if issubclass(cls, Struct)]


FILES = [path for path in sorted(Path(reference.__file__).parent.glob("*.py")) if path.stem != "__init__"]
STRUCTS = [cls for cls in structs() if "fields" in vars(cls)]


def test_each_field_has_the_type_that_its_declaration_gives() -> None:
    for cls in STRUCTS:
        declared = {name: annotation(field) for name, field in cls.fields.all.items()}
        written = {name: text for name, text in inspect.get_annotations(cls).items() if name in declared}
        assert written == declared, cls


def test_what_each_api_decodes_to_is_the_stubs() -> None:
    assert len(STRUCTS) > 200
    assert STUB.read_text(encoding="utf-8") == stub(), "write it anew: python tests/reference_types.py"
