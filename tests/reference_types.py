"""The types that follow from the reference's declarations: of each field, and of what each API decodes to.

``python tests/reference_types.py`` writes the stub ``kproto/_typed_codec.pyi`` anew.
"""

from pathlib import Path
from typing import Final

from kproto import reference
from kproto.api import ApiKey
from kproto.reference.datatypes import ArrayOf, Nullable, StructOf
from kproto.reference.fields import Field, Type

STUB: Final = Path(__file__).parents[1] / "kproto" / "_typed_codec.pyi"

_PLAIN: Final = {
    "_Integer": "int", "_Float64": "float", "_Bool": "bool", "_Uuid": "bytes", "_String": "str", "_Bytes": "bytes",
}  # fmt: skip

_HEAD: Final = '''"""What the functions of kproto.codec give for each API, for type checkers.

Written by tests/reference_types.py from the reference's classes.
"""

from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar, overload

from .api import ApiKey
from .messages import *
from .types import Buffer

_P = ParamSpec("_P")
_T = TypeVar("_T")

def _with_length(decode: Callable[_P, _T]) -> Callable[_P, tuple[_T, int]]: ...

decode_request_from = _with_length(decode_request)
decode_response_from = _with_length(decode_response)
'''


def annotation(field: Field) -> str:
    """The annotation of a field of a struct."""
    text = _type(field.type)
    return text if field.default is not None or text.endswith("| None") else f"{text} | None"


def _type(declared: Type) -> str:
    if isinstance(declared, Nullable):
        return f"{_type(declared.of)} | None"
    if isinstance(declared, StructOf):
        return str(declared.cls.__name__)  # type: ignore[attr-defined]
    if isinstance(declared, ArrayOf):
        item = _type(declared.item)
        return f"list[{item}]" if isinstance(declared.item, StructOf) else f"tuple[{item}, ...]"
    return _PLAIN[type(declared).__name__]


def stub() -> str:
    """The text of the stub."""
    names: dict[str, dict[ApiKey, str]] = {"request": {}, "response": {}}
    for (key, kind), cls in sorted(reference._MESSAGES.items()):
        names[kind][ApiKey(key)] = cls.__name__
    lines = [_HEAD.rstrip()]
    for kind in ("request", "response"):
        lines.append("")
        every = [(f"Literal[ApiKey.{key.name}, {int(key)}]", name) for key, name in names[kind].items()]
        for key, name in [*every, ("int", "Any")]:
            lines += ["@overload", f"def decode_{kind}("]
            lines += [f"    api_key: {key}, version: int, data: Buffer, *, strict: bool = False"]
            lines += [f") -> {name}: ..."]
    lines.append("")
    for kind in ("request", "response"):
        for key, name in names[kind].items():
            lines += ["@overload", "def message_class("]
            lines += [f'    api_key: Literal[ApiKey.{key.name}, {int(key)}], kind: Literal["{kind}"]']
            lines += [f") -> type[{name}]: ..."]
    lines += ["@overload", 'def message_class(api_key: int, kind: Literal["request", "response"]) -> type[Any]: ...']
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
