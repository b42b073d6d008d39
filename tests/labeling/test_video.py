"""A folder of videos is labelled frame by frame, also as a project."""

import struct

import numpy as np
import pytest

from fewlabels.data.video import read_frames
from fewlabels.errors import InputError
from fewlabels.features.store import FeatureStore
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.exports import export_labels
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


def test_frames_between_seconds_are_exported(videos, tmp_path, encoder):
    """The name clip.mp4#0.5 seems to end in the suffix .5, which no program writes."""
    how = Extraction(backbone=encoder, device="cpu", n_workers=0, store=FeatureStore())
    labels = tmp_path / "few.csv"
    labels.write_text(labels.read_text() + "apple.mp4#0.5,apple\n")
    session = open_session(tmp_path / "p", photos=videos, labels=labels, every=0.5, extraction=how)
    session.keep_answer()
    session.close()
    for name in ("imagefolder", "coco", "fiftyone"):
        export_labels(tmp_path / "p", to=name, output=tmp_path / name)
        (found,) = (tmp_path / name).rglob("apple.mp4-0.5.jpg")
        assert found.read_bytes().startswith(b"\xff\xd8")


def test_a_video_of_endless_length_is_left_out_with_words(videos):
    """The length is a number in the file; a frame was listed for every second of it."""
    path = videos / "long.mkv"
    with av.open(str(videos / "leek.mp4")) as source, av.open(str(path), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    data = bytearray(path.read_bytes())
    place = data.index(b"\x44\x89\x88") + 3  # Matroska's Duration, a number of 8 bytes
    data[place : place + 8] = struct.pack(">d", 1e12)
    path.write_bytes(data)
    found = read_frames(videos, every=0.5)
    assert {name.partition("#")[0] for name in found.names} == {"apple.mp4", "leek.mp4"}
    (problem,) = found.problems
    assert "would give more than 100,000 frames" in problem.reason
