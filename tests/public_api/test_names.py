"""The lazily loaded packages list their public names, and all can be had."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize("name", ["channel", "kproto", "kproto.columns", "kproto.messages", "kproto.tables"])
def test_dir_lists_the_public_names_and_each_is_there(name: str) -> None:
    module = importlib.import_module(name)
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)
