"""How much of kproto's public API has types that every type checker knows alike: ``make lint`` wants 95 in 100."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEAST = 0.95


def main() -> int:
    """Ask pyright, print its score, and list what it does not know if that is too much."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("kproto", "channel"):  # outside the project, whose settings leave the packages out
            Path(folder, name).symlink_to(ROOT / name)
        settings = {"venvPath": str(ROOT), "venv": ".venv", "pythonVersion": "3.11"}
        Path(folder, "pyrightconfig.json").write_text(json.dumps(settings))
        command = [str(Path(sys.executable).parent / "pyright"), "--verifytypes", "kproto", "--ignoreexternal"]
        environment = {**os.environ, "PYTHONPATH": folder}
        told = subprocess.run(
            [*command, "--outputjson"], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    found = json.loads(told.stdout)["typeCompleteness"]
    score = found["completenessScore"]
    print(f"types of the public API that are known: {score:.1%}, at least {LEAST:.0%}")
    if score < LEAST:
        unknown = [s["name"] for s in found["symbols"] if s["isExported"] and not s["isTypeKnown"]]
        print("not known:", *unknown, sep="\n  ", file=sys.stderr)
    return int(score < LEAST)


if __name__ == "__main__":
    sys.exit(main())
