"""Manifests of SageMaker Ground Truth and of Rekognition, as people have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.sources.annotated import objects, packed_objects
from support.sources.becomes import becomes
from support.sources.people import assumed, labels, photos, tags, values, write

import fastpipe
from fastpipe.errors import PackError

CLASS_MAP = {"0": "bus", "1": "truck"}


def line(name: str, **entries: Any) -> dict[str, Any]:
    return {"source-ref": f"s3://bucket/raw/images/{name}", **entries}


def boxes(
    *rows: tuple[int, int, int, int, int], attribute: str = "boxes", date: str = "2024-01-01"
) -> dict[str, Any]:
    """The entries of an object detection job. `rows`: class, left, top, width and height."""
    names = ("class_id", "left", "top", "width", "height")
    annotations = [dict(zip(names, row, strict=True)) for row in rows]
    metadata = {
        "objects": [{"confidence": 0.5} for _ in rows],
        "class-map": CLASS_MAP,
        "type": "groundtruth/object-detection",
        "creation-date": date,
    }
    size = [{"width": 40, "height": 30, "depth": 3}]
    value = {"annotations": annotations, "image_size": size}
    return {attribute: value, f"{attribute}-metadata": metadata}


def one_class(number: int, name: str, attribute: str = "kind") -> dict[str, Any]:
    metadata = {"class-name": name, "type": "groundtruth/image-classification"}
    return {attribute: number, f"{attribute}-metadata": metadata}


def manifest(file: Path, *lines: dict[str, Any]) -> Path:
    return write(file, "".join(json.dumps(entry) + "\n" for entry in lines))


@becomes(
    "SageMaker Ground Truth: `images/`, `manifests/output/output.manifest` of an object detection job",
    "boxes with the names of class-map; `attributes` has the confidence",
)
@becomes(
    "SageMaker Ground Truth: the manifest itself", "boxes; the images are looked for around it"
)
@becomes(
    "SageMaker Ground Truth: the folder of images alone",
    "no boxes; the command that packs them is named",
    "the manifest and --image-root",
)
def test_boxes(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "images/a.jpg", "images/b.jpg")
    first = line("a.jpg", **boxes((1, 5, 6, 20, 15), (0, 1, 2, 3, 4)))
    second = line("b.jpg", **boxes())
    file = manifest(source / "manifests/output/output.manifest", first, second)
    expected = {
        "images/a.jpg": [("truck", [5, 6, 25, 21]), ("bus", [1, 2, 4, 6])],
        "images/b.jpg": [],
    }
    # The manifests of the steps of a job lie beside its output.
    manifest(source / "manifests/intermediate/1/annotations.manifest", first)
    for root in (source, file):
        packed, summary = packed_objects(root, tmp_path / "packed")
        assert packed == expected
        assert assumed(summary) == []
    confidences = values(tmp_path, "attributes")["images/a.jpg"]
    assert confidences == [{"confidence": 0.5}, {"confidence": 0.5}]
    summary = fastpipe.pack(source / "images", tmp_path / "alone")
    (said,) = assumed(summary)
    assert f"{file} has the names of these images: a manifest of SageMaker Ground Truth" in said
    assert f"fastpipe pack {file} DST --image-root {source / 'images'}" in said


@becomes(
    "SageMaker Ground Truth: a class for each image",
    "labels by class-name; numbers that differ are said",
    "--classes-from FILE",
)
@becomes(
    "SageMaker Ground Truth: several classes for each image, Rekognition: an attribute for each class",
    "a field `tags`",
)
def test_classes(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    lines = [line("a.jpg", **one_class(0, "normal")), line("b.jpg", **one_class(1, "anomaly"))]
    manifest(source / "train.manifest", *lines)
    summary = fastpipe.pack(source, tmp_path / "packed")
    assert labels(tmp_path) == {"a.jpg": "normal", "b.jpg": "anomaly"}
    (said,) = assumed(summary)
    assert "anomaly is 0 here, and 1 there" in said
    assert "--classes-from FILE" in said

    metadata = {"class-map": CLASS_MAP, "type": "groundtruth/image-classification-multilabel"}
    several = {"kinds": [0, 1], "kinds-metadata": metadata}
    manifest(
        source / "train.manifest",
        line("a.jpg", **several),
        line("b.jpg", kinds=[], **{"kinds-metadata": metadata}),
    )
    fastpipe.pack(source, tmp_path / "packed", overwrite=True)
    assert tags(tmp_path, "tags") == {"a.jpg": {"bus", "truck"}, "b.jpg": set()}

    sunny = one_class(1, "sunny", "beach_sunny")
    surf = one_class(1, "surf", "beach_surf")
    manifest(source / "train.manifest", line("a.jpg", **surf, **sunny), line("b.jpg", **surf))
    summary = fastpipe.pack(source, tmp_path / "packed", overwrite=True)
    assert tags(tmp_path, "tags") == {"a.jpg": {"sunny", "surf"}, "b.jpg": {"surf"}}
    assert len(assumed(summary)) == 1  # there are no labels


@becomes(
    "SageMaker Ground Truth: boxes of a job and of a later one that adjusts them",
    "the boxes of the later job; this is said",
)
@becomes("SageMaker Ground Truth: an image that the job could not label", "left out and counted")
def test_several_jobs(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    adjusted = boxes((1, 5, 6, 20, 15), attribute="adjusted", date="2024-02-01")
    first = boxes((0, 1, 2, 3, 4))
    failed = {"boxes-metadata": {"failure-reason": "ClientError: too large"}, "boxes": {}}
    manifest(
        source / "output.manifest", line("a.jpg", **adjusted, **first), line("b.jpg", **failed)
    )
    _, summary = packed_objects(source, tmp_path / "packed")
    assert objects(tmp_path / "packed") == {"a.jpg": [("truck", [5, 6, 25, 21])]}
    said = " ".join(assumed(summary))
    assert "several labeling jobs: 1; the boxes of adjusted are packed" in said
    assert "images that nobody has annotated: 1 of 2; they are left out" in said

    # Without dates, the later job is the last one. A job copies the other values of its input.
    del adjusted["adjusted-metadata"]["creation-date"], first["boxes-metadata"]["creation-date"]
    manifest(
        source / "output.manifest",
        line("a.jpg", **first, **adjusted),
        line("b.jpg", place="zoo", **failed),
    )
    _, summary = packed_objects(source, tmp_path / "packed")
    assert objects(tmp_path / "packed") == {"a.jpg": [("truck", [5, 6, 25, 21])]}
    said = " ".join(assumed(summary))
    assert "the boxes of adjusted are packed" in said
    assert "images that nobody has annotated: 1 of 2; they are left out" in said


@becomes(
    "SageMaker Ground Truth: a manifest of masks alone",
    "refused, with what to do",
)
@becomes("SageMaker Ground Truth: other values of an input manifest", "named as not packed")
@becomes("SageMaker Ground Truth: a class that class-map lacks", "the image is rejected")
def test_manifests_that_are_not_read(tmp_path: Path) -> None:
    source = photos(tmp_path / "src", "a.jpg", "b.jpg")
    colours = {"type": "groundtruth/semantic-segmentation", "internal-color-map": {}}
    masks = {"mask-ref": "s3://bucket/a.png", "mask-ref-metadata": colours}
    file = manifest(source / "output.manifest", line("a.jpg", **masks))
    with pytest.raises(PackError, match=r"mask-ref \(semantic-segmentation\), which fastpipe does"):
        fastpipe.pack(source, tmp_path / "none")
    manifest(file, line("a.jpg", place="zoo", **boxes((0, 1, 2, 3, 4))))
    _, summary = packed_objects(source, tmp_path / "packed", unlisted="drop")
    assert assumed(summary)[0] == "values of images that are not packed: place (without metadata)"

    manifest(file, line("a.jpg", **boxes((7, 1, 2, 3, 4))), line("b.jpg", **boxes((0, 1, 2, 3, 4))))
    summary = fastpipe.pack(source, tmp_path / "packed", overwrite=True)
    assert objects(tmp_path / "packed") == {"b.jpg": [("bus", [1, 2, 4, 6])]}
    ((path, reason),) = summary.tally.rejected
    assert path == "a.jpg"
    assert "object 0: expected a class of class-map (0, 1), got 7" in reason
