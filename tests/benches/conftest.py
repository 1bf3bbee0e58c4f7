"""The benches' modules stand outside the packages: their folder is the last place that an import looks into."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benches"))
