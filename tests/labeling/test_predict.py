"""A saved model and later images."""

from pathlib import Path

import numpy as np
import pytest

from fewlabels.errors import FileFormatError, InputError
from fewlabels.fitting import Fitted
from fewlabels.labeling.inputs import read_inputs
from fewlabels.labeling.outcome import label_inputs
from fewlabels.labeling.predict import predict_images, save_model


def test_a_model_for_later_images(photos, few, tmp_path, extraction):
    outcome = label_inputs(read_inputs(photos, labels=few, extraction=extraction))
    save_model(tmp_path / "m.safetensors", outcome)
    one, _ = predict_images(tmp_path / "m.safetensors", [photos / "leek-6.png"], device="cpu")
    assert [(row.path, row.label) for row in one] == [((photos / "leek-6.png").as_posix(), "leek")]
    rows, _ = predict_images(tmp_path / "m.safetensors", [photos], device="cpu")
    assert sum(row.label == row.path.split("/")[-1].split("-")[0] for row in rows) >= 22
    with pytest.raises(FileFormatError, match="does not exist"):
        predict_images(tmp_path / "m.safetensors", [photos / "no.png"], device="cpu")


def test_later_images_count_once_and_other_forms_are_named(
    photos, few, tmp_path, extraction, monkeypatch
):
    model = tmp_path / "m.safetensors"
    save_model(model, label_inputs(read_inputs(photos, labels=few, extraction=extraction)))
    monkeypatch.chdir(photos)
    again = [
        Path("leek-6.png"),
        Path("leek-6.png"),
        photos / "leek-6.png",
        Path("../photos/leek-6.png"),
    ]
    rows, remarks = predict_images(model, again, device="cpu")
    assert [row.path for row in rows] == ["leek-6.png"]
    assert remarks == []
    rows, _ = predict_images(model, [Path("leek-6.png"), photos], device="cpu")
    assert len(rows) == 24
    (tmp_path / "phone").mkdir()
    for name in ("a.jxl", "phone/b.JXL"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(
        FileFormatError, match=r"no image to label. Not read: 1 \.jxl file; export them as JPEG"
    ):
        predict_images(model, [tmp_path / "a.jxl"], device="cpu")
    with pytest.raises(
        FileFormatError, match=r"must hold images.*1 \.jxl file; export them as JPEG"
    ):
        predict_images(model, [tmp_path / "phone"], device="cpu")
    (photos / "empty.png").touch()
    rows, remarks = predict_images(model, [photos, tmp_path / "a.jxl"], device="cpu")
    assert len(rows) == 24
    assert "1 .jxl" in remarks[0]
    assert "empty.png" in remarks[1]


def test_a_model_of_features_agrees_with_the_labelling(tmp_path, blobs, hide, extraction):
    np.savez(
        tmp_path / "f.npz",
        features=blobs.features,
        labels=hide(blobs.labels, 3),
        class_names=np.array(blobs.class_names),
    )
    outcome = label_inputs(read_inputs(tmp_path / "f.npz"))
    save_model(tmp_path / "m.safetensors", outcome)
    rows, _ = predict_images(tmp_path / "m.safetensors", [tmp_path / "f.npz"])
    same = [
        a.label == b.label for a, b in zip(rows, outcome.rows, strict=True) if b.origin == "model"
    ]
    assert np.mean(same) > 0.99
    with pytest.raises(InputError, match="can only predict features"):
        predict_images(tmp_path / "m.safetensors", [tmp_path])
    with pytest.raises(InputError, match=rf"shape \(N, {blobs.features.shape[1]}\)"):
        Fitted.load(tmp_path / "m.safetensors")[0].predict(np.ones((1, 3)))


def test_models_that_are_none(tmp_path, blobs, hide, extraction):
    (tmp_path / "m.safetensors").write_bytes(b"nonsense")
    with pytest.raises(FileFormatError, match="cannot be read"):
        Fitted.load(tmp_path / "m.safetensors")
    blobs.save(tmp_path / "f.safetensors")
    with pytest.raises(FileFormatError, match="does not hold a model of fewlabels"):
        Fitted.load(tmp_path / "f.safetensors")
    (tmp_path / "few.csv").write_text("path,label\n")
    for path in (tmp_path / "few.csv", tmp_path):
        with pytest.raises(
            InputError, match=r"model must be a \.safetensors file .* or a labelling"
        ):
            predict_images(path, [tmp_path / "f.safetensors"])
