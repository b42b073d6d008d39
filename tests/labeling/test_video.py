"""A folder of videos is labelled frame by frame, also as a project."""

import numpy as np
import pytest

from fewlabels import export_labels
from fewlabels.errors import InputError
from fewlabels.features.store import FeatureStore
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.label import label_folder
from fewlabels.labeling.session import open_session
from fewlabels.labeling.thumbnails import Thumbnails

av = pytest.importorskip("av")

COLORS = {"apple": (200, 40, 40), "leek": (40, 170, 60)}


@pytest.fixture
def videos(tmp_path, monkeypatch):
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "videos").mkdir()
    for name, tone in COLORS.items():
        with av.open(str(tmp_path / "videos" / f"{name}.mp4"), "w") as container:
            stream = container.add_stream("mpeg4", rate=2)
            stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
            rng = np.random.default_rng(len(name))
            for _ in range(12):
                pixels = np.clip(tone + rng.normal(scale=18, size=(32, 32, 3)), 0, 255)
                frame = av.VideoFrame.from_ndarray(pixels.astype(np.uint8), format="rgb24")
                for packet in stream.encode(frame):
                    container.mux(packet)
            for packet in stream.encode():
                container.mux(packet)
    few = tmp_path / "few.csv"
    few.write_text("path,label\n" + "".join(f"{n}.mp4#{i},{n}\n" for n in COLORS for i in (0, 3)))
    return tmp_path / "videos"


def test_frames_are_labelled_and_kept_in_a_project(videos, tmp_path, encoder):
    outcome = label_folder(
        videos,
        tmp_path / "few.csv",
        every=1,
        backbone=encoder,
        device="cpu",
        n_workers=0,
        output=tmp_path / "labels.csv",
    )
    assert len(outcome.rows) == 12
    assert all(row.path.startswith(row.label) for row in outcome.rows)
    how = Extraction(backbone=encoder, device="cpu", n_workers=0, store=FeatureStore())
    labels = tmp_path / "few.csv"
    session = open_session(tmp_path / "p", photos=videos, labels=labels, every=1, extraction=how)
    session.close()
    with pytest.raises(InputError, match=r"every must be left out for .*, got 2"):
        open_session(tmp_path / "p", every=2, extraction=how)
    session = open_session(tmp_path / "p", every=1, extraction=how)
    try:
        assert len(session.collection) == 12
        assert len(session.state.given) == 4
        thumbnails = Thumbnails(session.collection, tmp_path / "thumbnails")
        assert thumbnails.get(5) != thumbnails.get(6)
    finally:
        session.close()
    done = export_labels(
        videos, labels=tmp_path / "labels.csv", every=1, to="imagefolder", output=tmp_path / "o"
    )
    assert done.counts == {"": 12}
    assert len(list((tmp_path / "o" / "apple").glob("*.jpg"))) == 6
