"""One command runs every bench: one that fails does not end the others."""

from pathlib import Path

import everything
import pytest


def test_a_program_that_fails_or_hangs_ends_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = {"fails": "raise SystemExit('oh')", "hangs": "import time; time.sleep(600)", "ends": "print('measured')"}
    for name, text in {**texts, "figures_page": "print('written')"}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(everything, "HERE", tmp_path)
    monkeypatch.setattr(everything, "PROGRAMS", {"fails": 60.0, "hangs": 0.5, "ends": 60.0})
    monkeypatch.setattr("sys.argv", ["everything.py"])
    assert everything.main() == 1
    out = capfd.readouterr().out
    assert "measured" in out
    assert "written" in out
    endings = {line.split()[0]: line.split(" s  ")[-1] for line in out.splitlines()[-5:]}
    assert endings["ends"] == endings["figures_page"] == "ok"
    assert endings["hangs"] == "did not end within 0.5 s"
    assert endings["fails"] != "ok"


def test_every_program_has_its_file() -> None:
    assert [name for name in everything.PROGRAMS if not (everything.HERE / f"{name}.py").exists()] == []
