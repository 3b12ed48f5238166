"""`pyinfra INVENTORY deploys/image.py`, as a person runs it, on this machine and a stand-in for docker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.image.kits import files, raw
from tests.image.store import BASE, TAG, Store

ROOT = Path(__file__).resolve().parents[2]


def pyinfra(project: Path, *options: str) -> tuple[int, str]:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    words = [sys.executable, "-m", "pyinfra", "inventory.py", "deploys/image.py", *options]
    ended = subprocess.run(
        words, cwd=project, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False
    )
    assert "Traceback" not in ended.stdout + ended.stderr
    return ended.returncode, ended.stdout + ended.stderr


def laid_out(project: Path) -> None:
    """A project whose kit is the small one."""
    for folder in ("checks", "deploys", "templates/image"):
        (project / folder).mkdir(parents=True)
    (project / "deploys" / "image.py").write_bytes((ROOT / "deploys" / "image.py").read_bytes())
    (project / "nearsocket.toml").touch()
    (project / "inventory.py").write_text("hosts = ['@local']\n")
    for name, data in files(raw("1.0", "1.1")).items():
        (project / "templates" / "image" / name).write_bytes(data)
    (project / "templates" / "image" / "Dockerfile").write_bytes((ROOT / "templates" / "image" / "Dockerfile").read_bytes())


def test_the_deploy_builds_once_plans_without_building_and_fails_the_host_where_it_is_refused(store: Store, tmp_path: Path) -> None:
    project = tmp_path / "project"
    laid_out(project)
    store.add("base", digests=(BASE,))
    data = [
        "--data",
        f"nearsocket_image_tag={TAG}",
        "--data",
        f"nearsocket_image_base={BASE}",
        "--data",
        "nearsocket_image_space_gib=0",
    ]
    code, said = pyinfra(project, "--dry", *data)
    assert code == 0 and store.calls("build") == 0 and "1 (@local)" in said
    code, said = pyinfra(project, "-y", *data)
    assert code == 0 and "@local: near:1 built: SGLang 1.1 patched" in said
    first = store.tagged(TAG)
    code, said = pyinfra(project, "-y", *data)
    assert code == 0 and "No changes" in said and store.calls("build") == 1
    store.add("wrong", "0.9", digests=(BASE.replace("ab", "cd"),))
    code, said = pyinfra(project, "-y", *data, "--data", f"nearsocket_image_base={BASE.replace('ab', 'cd')}")
    assert code == 1 and "state.py: expected sha256" in said and store.tagged(TAG) == first
    code, said = pyinfra(project, "-y")
    assert code == 1 and "expected nearsocket_image_tag, found none" in said
