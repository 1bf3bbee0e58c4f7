"""Builds the documentation site: ``make docs`` writes it to ``out/docs``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import kproto

if TYPE_CHECKING:
    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

project = "kproto"
author = "The kproto developers"
copyright = "the kproto developers"  # noqa: A001
version = release = kproto.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["README.md"]
html_theme = "furo"
html_title = f"kproto {version}"
html_static_path = ["static"]
html_css_files = ["kproto.css"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
myst_fence_as_directive: list[str] = []
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_use_ivar = True
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
suppress_warnings = [
    "misc.highlighting_failure",  # output beside a command is no shell
    "ref.python",  # a class that two modules offer is documented with both
]


def add_age_of_figures(_app: Sphinx, page: str, source: list[str]) -> None:
    """Say how many commits ago each table of the page of figures was measured, where there is a git clone."""

    def with_age(commit: re.Match[str]) -> str:
        command = ["git", "-C", str(Path(__file__).parent), "rev-list", "--count", f"{commit[1]}..HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        return f"{commit[0]} ({done.stdout.strip()} commits ago)" if done.returncode == 0 else commit[0]

    if page == "figures":
        source[0] = re.sub(r"\bcommit ([0-9a-f]{10})\b", with_age, source[0])


def setup(app: Sphinx) -> None:
    """Write the pages that are made from code before the others are read."""
    app.connect("source-read", add_age_of_figures)
    from wire_reference import pages  # of this folder

    generated = Path(__file__).parent / "generated"
    generated.mkdir(exist_ok=True)
    for name, text in pages().items():
        page = generated / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
