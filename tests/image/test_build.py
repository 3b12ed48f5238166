"""Building and loading with a stand-in for docker: the tag moves last, a refusal leaves the old image its name."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.image.order import answer, read_answer, read_order
from nearsocket.onhost.image import engine as engines
from nearsocket.onhost.image.build import present
from nearsocket.onhost.image.verify import verify_image
from tests.image.kits import EDITED, RELIED, kit
from tests.image.store import BASE, ROOT, TAG, Store, built, kit_files, order


def refused(store: Store, match: str, **changed: Any) -> None:
    """Refused, and the tag, the images and the containers are what they were."""
    before, images = store.tagged(TAG), sorted(path.name for path in (store.folder / "images").iterdir())
    with pytest.raises(NearsocketError, match=match):
        built(store, **changed)
    assert store.tagged(TAG) == before
    assert sorted(path.name for path in (store.folder / "images").iterdir()) == images
    assert list((store.folder / "containers").iterdir()) == []


def test_an_image_is_built_verified_and_named_and_is_there_the_second_time(store: Store) -> None:
    store.add("base", digests=(BASE,))
    assert present(order(files=kit_files())) is None
    first = built(store)
    assert (first.what, first.release, first.engine, first.tag) == ("built", "1.1", "docker", TAG)
    assert store.tagged(TAG) == first.image
    found = verify_image(engines.find("docker"), TAG, kit())
    assert (found.release, found.package, found.variable, found.doubt) == ("1.1", f"{ROOT}/sglang", None, "")
    again = built(store)
    assert (again.what, again.image) == ("present", first.image)
    assert present(order(files=kit_files())) == again
    assert store.calls("build") == 1
    assert list((store.folder / "containers").iterdir()) == []
    assert "is there already: SGLang 1.1 patched" in str(again)


def test_the_labels_say_base_patch_kit_and_hashes(store: Store, image: str) -> None:
    found = engines.find("docker").image(image)
    assert found is not None and found.user == "0"
    (edit,) = kit().releases[1].edits
    assert found.labels["nearsocket.image.base"] == BASE
    assert found.labels["nearsocket.image.patch"] == "test/1"
    assert found.labels["nearsocket.image.source"] == f"{EDITED}@sha256:{edit.before}"
    assert found.labels["nearsocket.image.patched"] == f"{EDITED}@sha256:{edit.after}"


def test_a_base_that_is_not_here_is_pulled(store: Store) -> None:
    store.add("registry", digests=(BASE,), where="")
    assert built(store).what == "built"
    assert store.calls("pull") == 1


def test_a_wrong_base_is_refused_before_any_build_and_the_old_image_kept(store: Store) -> None:
    store.add("base", "0.9", digests=(BASE,))
    store.add("old", tags=(TAG,))
    refused(store, r"state\.py: expected sha256 .* found sha256")
    assert store.calls("build") == 0


def test_a_failing_build_keeps_the_old_image(store: Store) -> None:
    store.add("base", digests=(BASE,))
    store.add("old", tags=(TAG,))
    (store.folder / "fail-build").write_text("no network")
    refused(store, "docker build: expected it to work, found exit code 125: .*no network")


def test_a_build_whose_files_are_not_the_patch_is_taken_away_again(store: Store) -> None:
    store.add("base", digests=(BASE,))
    store.add("old", tags=(TAG,))
    (store.folder / "spoil").write_text(f"opt/sg/sglang/{EDITED}")
    refused(store, r"ar\.py: expected sha256")


def test_an_image_with_the_right_labels_and_wrong_files_is_made_anew(store: Store, image: str) -> None:
    with (store.folder / "images" / image / "rootfs/opt/sg/sglang" / EDITED).open("ab") as file:
        file.write(b"#\n")
    again = built(store)
    assert again.what == "built" and again.image != image and store.tagged(TAG) == again.image


def test_a_base_without_the_package_is_refused(store: Store) -> None:
    home = store.add("base", digests=(BASE,)).parents[3]
    meta = json.loads((home / "image.json").read_text())
    del meta["config"]["root"]
    (home / "image.json").write_text(json.dumps(meta))
    refused(store, "expected python3 in it to find sglang, found nothing")


def test_too_little_room_is_refused_first(store: Store) -> None:
    store.add("base", digests=(BASE,))
    refused(store, r"expected 1000000000\.0 GiB free for images, found", space_gib=1e9)
    assert store.calls("build") == store.calls("create") == 0


@pytest.mark.parametrize("packed", [False, True])
def test_an_archive_is_loaded_and_is_there_the_second_time(store: Store, image: str, tmp_path: Path, packed: bool) -> None:
    path = store.archive(tmp_path / "near.tar")
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    store.forget()
    loaded = built(store, base=None, archive=str(path))
    assert loaded.what == "loaded" and store.tagged(TAG) == loaded.image
    assert built(store, base=None, archive=str(path)).what == "present"
    assert store.calls("load") == 1


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"manifest": {"RepoTags": ["other:1"]}}, "expected the one tag near:1, found other:1"),
        ({"manifest": {"RepoTags": None}}, "expected the one tag near:1, found no tag"),
        ({"labels": {"nearsocket.image.patch": "test/0"}}, "expected the label nearsocket.image.patch=test/1, found test/0"),
        ({"labels": {"nearsocket.image.kit": "0"}}, "expected the label nearsocket.image.kit="),
        ({"manifest": {"Config": "nothing"}}, "expected an image archive"),
    ],
)
def test_an_archive_of_another_image_is_refused_before_it_is_loaded(
    store: Store, image: str, tmp_path: Path, changed: dict[str, Any], match: str
) -> None:
    path = store.archive(tmp_path / "near.tar", **changed)
    store.forget()
    store.add("old", tags=(TAG,))
    refused(store, match, base=None, archive=str(path))
    assert store.calls("load") == 0


def test_an_archive_whose_files_are_not_the_patch_gives_the_name_back(store: Store, image: str, tmp_path: Path) -> None:
    path = store.archive(tmp_path / "near.tar")
    store.forget()
    store.add("old", tags=(TAG,))
    (store.folder / "spoil").write_text(f"opt/sg/sglang/{RELIED}")
    refused(store, r"state\.py: expected sha256", base=None, archive=str(path))
    assert store.calls("load") == 1


@pytest.mark.parametrize("data", [b"", b"no archive", b"\x1f\x8b broken"])
def test_what_is_no_archive_is_refused(store: Store, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(data)
    refused(store, "expected an image archive", base=None, archive=str(tmp_path / "x.tar"))


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"tag": "Near:1"}, "expected name:tag"),
        ({"tag": "near"}, "expected name:tag"),
        ({"tag": "near:1 --rm"}, "expected name:tag"),
        ({"base": "test/sglang:latest"}, "expected NAME@sha256:DIGEST"),
        ({"base": None}, "expected either a base or an archive"),
        ({"archive": "/x.tar"}, "expected either a base or an archive"),
        ({"base": None, "archive": "x.tar"}, "expected an absolute path"),
        ({"engine": "rkt"}, "expected docker or podman"),
        ({"python": "python3; id"}, "expected a name or path"),
    ],
)
def test_an_order_that_cannot_be_is_wrong_usage(changed: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        order(**changed).checked()


def test_orders_and_answers_travel() -> None:
    assert read_order(order().to_json()) == order()
    with pytest.raises(UsageError, match="expected an image order"):
        read_order('{"tag": 1}')
    assert read_answer("motd\n" + answer(None), TAG) is None
    with pytest.raises(NearsocketError, match="no room") as caught:
        read_answer(answer(None, NearsocketError("no room", "make some")), TAG)
    assert caught.value.hint == "make some"
    with pytest.raises(NearsocketError, match="expected the image builder's answer, found bash: nothing"):
        read_answer("bash: nothing", TAG)
