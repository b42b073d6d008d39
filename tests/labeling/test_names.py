"""Start from class names: with a tiny model of images and words, and with real texts."""

import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

from fewlabels import label_folder
from fewlabels.backbones.encoder import load_encoder
from fewlabels.backbones.image_text import PROMPT, encode_names
from fewlabels.backbones.text import TEXT_ENCODERS
from fewlabels.errors import FileFormatError, InputError
from fewlabels.features.store import FeatureStore
from fewlabels.labeling.answer import prepare, solve
from fewlabels.labeling.collection import Extraction
from fewlabels.labeling.inputs import read_inputs
from fewlabels.labeling.names import NamePrior, knows_words, read_names, solve_named, words_encoder
from fewlabels.labeling.outcome import suggest_next
from fewlabels.labeling.predict import Predictor
from fewlabels.labeling.project import Project
from fewlabels.labeling.session import open_session

from .conftest import COLORS, make_blobs

TINY = "clip:tiny"
VOCABULARY = {name: np.array(color) / 127.5 - 1 for name, color in COLORS.items()}


class TinyClip(nn.Module):
    """Images and words in one space: the mean color of an image, the color that a word means."""

    def __init__(self):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(np.log(10.0)))
        text = types.SimpleNamespace(max_position_embeddings=8)
        self.config = types.SimpleNamespace(text_config=text)

    def get_image_features(self, pixel_values):
        return pixel_values.mean(dim=(2, 3))

    def get_text_features(self, words):
        return words


def tokenize(texts, **_):
    """The colors that the texts mean, in the place of the numbers of their words."""
    before, after = PROMPT.split("{}")
    words = [text.removeprefix(before).removesuffix(after) for text in texts]
    return {
        "words": torch.tensor(np.array([VOCABULARY[word] for word in words]), dtype=torch.float)
    }


@pytest.fixture
def tiny(monkeypatch):
    """A package transformers that has one model."""
    config = {
        "size": {"shortest_edge": 16},
        "crop_size": {"height": 16, "width": 16},
        "do_center_crop": True,
        "resample": 3,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }

    def giving(what):
        return types.SimpleNamespace(from_pretrained=lambda _: what)

    made = types.ModuleType("transformers")
    made.AutoModel = giving(TinyClip())
    made.AutoImageProcessor = giving(types.SimpleNamespace(to_dict=lambda: config))
    made.AutoTokenizer = giving(tokenize)
    monkeypatch.setitem(sys.modules, "transformers", made)


@pytest.fixture
def names(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("apple\nleek\n\nplum\n")
    return path


@pytest.fixture
def how(tmp_path):
    return Extraction(TINY, "cpu", n_workers=0, store=FeatureStore(tmp_path / "store"))


def of_its_name(path, label):
    return path.startswith(label)


def test_names_alone_label_a_folder(tiny, photos, names, monkeypatch, tmp_path):
    monkeypatch.setenv("FEWLABELS_CACHE", str(tmp_path / "cache"))
    outcome = label_folder(
        photos, classes=names, backbone=TINY, report=tmp_path / "r.html", n_workers=0
    )
    assert all(of_its_name(row.path, row.label) for row in outcome.rows)
    assert len(outcome.rows) == 24
    assert outcome.estimate is None
    assert any("No label yet for apple, leek, plum" in each for each in outcome.remarks)
    assert all(row.origin == "model" for row in outcome.rows)
    model = tmp_path / "m.safetensors"
    with pytest.raises(InputError, match="model needs a label of every class, got none of apple"):
        label_folder(photos, classes=names, backbone=TINY, model=model, n_workers=0)
    assert not model.exists()


def test_the_image_side_is_an_encoder_and_names_lie_in_its_space(tiny):
    encoder = load_encoder(TINY)
    vectors, scale = encode_names("tiny", ["plum", "apple"])
    assert encoder.feature_dim == vectors.shape[1] == 3
    assert scale == pytest.approx(10)
    np.testing.assert_allclose(vectors[1], VOCABULARY["apple"], rtol=1e-6)


def test_labels_of_some_classes_and_new_ones_join_the_names(tiny, photos, names, how, tmp_path):
    few = tmp_path / "few.csv"
    few.write_text("path,label\napple-0.png,apple\napple-1.png,apple\nplum-3.png,violet\n")
    inputs = read_inputs(photos, labels=few, extraction=how, classes=names)
    found, advice = suggest_next(inputs, n=4)
    assert len(found) == 4
    assert advice
    with inputs.begin_project(tmp_path / "p") as project:
        assert project.prior.names == ("apple", "leek", "plum")
        again = project.prior.log_probabilities(inputs.collection.features, ["leek", "violet"])
    with pytest.raises(InputError, match="model needs a label of every class, got none of leek"):
        Predictor.load(tmp_path / "p")
    one = inputs.prior.log_probabilities(inputs.collection.features, ["leek", "violet"])
    np.testing.assert_allclose(again, one, rtol=1e-6)
    assert np.exp(one).sum(axis=1) == pytest.approx(1)


def test_a_session_without_any_label_has_an_answer(tiny, photos, names, how, monkeypatch):
    session = open_session(photos, extraction=how, classes=names)
    folder = session.project.folder
    assert session.state.active == ("apple", "leek", "plum")
    assert all(of_its_name(row.path, row.label) for row in session.rows())
    assert session.state.estimate is None
    state = session.decide([0, 1], "cabbage")  # a class of its own, which no name told
    assert state.active == ("cabbage", "apple", "leek", "plum")
    assert state.answer.labels[0] == 0
    for row in range(2, 24):
        state = session.decide([row], session.collection.names[row].split("-")[0])
    assert state.answer.probabilities.shape == (24, 4)
    session.close()
    monkeypatch.setitem(sys.modules, "transformers", None)  # not needed any more
    again = open_session(folder)
    assert again.state.active == state.active
    again.close()
    open_session(folder, classes=names).close()  # the command that began it, once more
    names.write_text("apple\nleek\ngrape\n")
    with pytest.raises(InputError, match="classes must be left out for"):
        open_session(folder, classes=names)


def test_frames_of_videos_are_read_beside_class_names(tiny, photos, names, how):
    """They were forgotten without a word."""
    pytest.importorskip("av")
    with pytest.raises(InputError, match="every must be seconds between two frames"):
        read_inputs(photos, classes=names, every=0, extraction=how)
    found = read_inputs(photos, classes=names, every=1, extraction=how)
    assert found.every == 1
    assert found.prior is not None


def test_words_find_items(tiny, photos, names, how):
    session = open_session(photos, extraction=how, classes=names)
    rows, cosines = session.search("plum")
    assert [session.collection.names[row][:4] for row in rows[:8]] == ["plum"] * 8
    assert len(rows) == 24
    assert (np.diff(cosines) <= 0).all()
    session.close()
    assert [knows_words(each) for each in ("clip:a/b", "minilm", "wordllama", "st:a/b")] == [
        True
    ] * 4
    others = ("", "tfidf", "efficientnet-lite0", "minilm+wordllama", "clip:a/b+clip:c/d")
    assert not any(map(knows_words, others))
    with pytest.raises(InputError, match=r"a search needs an encoder that knows words.*got tfidf"):
        words_encoder("tfidf")


def blobs_and_prior(sharpness, seed=0):
    """Overlapping classes, and what names tell about them: nothing, or the true classes."""
    blobs = make_blobs(spread=1.6, seed=seed)
    rng = np.random.default_rng(seed)
    scores = sharpness * np.eye(4)[blobs.labels] + rng.normal(size=(len(blobs), 4))
    told = torch.as_tensor(scores).log_softmax(dim=1).float().numpy()
    return blobs, prepare(blobs.features), told


def draw(truth, n_shot, seed):
    labels, rng = np.full(len(truth), -1), np.random.default_rng(seed)
    for way in range(4):
        labels[rng.choice(np.flatnonzero(truth == way), n_shot, replace=False)] = way
    return labels


def test_names_that_tell_nothing_change_nothing():
    blobs, rows, told = blobs_and_prior(0)
    labels = draw(blobs.labels, 3, 0)
    even = np.full_like(told, np.log(0.25))
    plain, named = solve(rows, labels, n_way=4), solve_named(rows, labels, even)
    np.testing.assert_allclose(named.probabilities, plain.probabilities, atol=2e-5)
    np.testing.assert_allclose(
        named.fitted.assignment.held_out, plain.fitted.assignment.held_out, atol=2e-5
    )


def test_good_names_help_and_labels_outweigh_bad_ones():
    helped, misled = [], []
    for seed in range(4):
        blobs, rows, good = blobs_and_prior(2.0, seed)
        truth = blobs.labels
        bad = good[:, [1, 2, 3, 0]]  # every name means another class
        for n_shot, found in ((1, helped), (1, misled), (20, misled)):
            labels = draw(truth, n_shot, seed)
            rest = labels < 0
            told = good if found is helped else bad
            plain = solve(rows, labels, n_way=4).labels
            named = solve_named(rows, labels, told).labels
            found.append([(each == truth)[rest].mean() for each in (plain, named)])
    plain, named = np.mean(helped, axis=0)
    assert named > plain + 0.05
    plain, named = np.mean(misled[1::2], axis=0)  # with 20 labels per class
    assert named > plain - 0.04
    plain, named = np.mean(misled[::2], axis=0)  # with one
    assert named < plain - 0.1


def test_without_labels_the_surest_items_stand_for_a_class():
    blobs, rows, told = blobs_and_prior(2.0)
    none = np.full(len(blobs), -1)
    answer = solve_named(rows, none, told, none_of_these=True)
    assert (answer.labels == blobs.labels).mean() > (told.argmax(axis=1) == blobs.labels).mean()
    assert answer.none_of_these is None
    assert answer.probabilities.sum(axis=1) == pytest.approx(1, abs=1e-5)
    # as many classes as items: each gets one, and one more is refused
    few = prepare(blobs.features[::30])
    assert len(solve_named(few, none[:4], told[::30]).labels) == 4
    with pytest.raises(InputError, match="classes must not be more than the items, 4, got 5"):
        solve_named(few, none[:4], np.log(np.full((4, 5), 0.2, np.float32)))


def test_bad_names_are_refused_before_the_work(photos, names, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"classes needs a backbone of images and texts.*clip:"):
        label_folder(photos, classes=names)
    with pytest.raises(InputError, match=r"got hf:x/y"):
        label_folder(photos, classes=names, backbone="hf:x/y")
    features = tmp_path / "f.safetensors"
    make_blobs().save(features)
    with pytest.raises(InputError, match="classes needs images or texts, got the features in"):
        label_folder(features, classes=names)
    texts = tmp_path / "t.csv"
    texts.write_text("id,text\na,one\nb,two\n")
    with pytest.raises(InputError, match=r"classes needs a text encoder .*got tfidf"):
        label_folder(texts, classes=names, backbone="tfidf")
    with pytest.raises(InputError, match=r"must not be .*which is classes already"):
        label_folder(photos, classes=names, backbone=TINY, report=names)
    for content, words in ((b"one\n", "at least two, got 1"), ("ä\nö".encode("latin-1"), "UTF-8")):
        names.write_bytes(content)
        with pytest.raises(FileFormatError, match=words):
            read_names(names)
    with pytest.raises(FileFormatError, match="does not exist"):
        read_names(tmp_path / "gone.txt")


def test_a_damaged_file_of_names_is_said(tiny, photos, names, how, tmp_path):
    inputs = read_inputs(photos, extraction=how, classes=names)
    inputs.begin_project(tmp_path / "p").close()
    (tmp_path / "p" / "classes.json").write_text("{")
    with (
        Project.open(tmp_path / "p") as project,
        pytest.raises(FileFormatError, match=r"classes\.json cannot be read"),
    ):
        _ = project.prior


def test_names_must_have_the_features_of_the_items():
    prior = NamePrior(("a", "b"), np.eye(2, 3, dtype=np.float32), 10.0)
    with pytest.raises(InputError, match="names of 4 features as the items, got 3"):
        prior.log_probabilities(np.ones((5, 4), np.float32), ["a", "b"])


def test_a_real_model_of_transformers(tmp_path):
    """A CLIP of random weights: both sides give vectors of one length."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers", reason="a text encoder is not installed")
    side = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    side["num_attention_heads"] = 2
    text = {**side, "vocab_size": 9, "max_position_embeddings": 12}
    text |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = transformers.CLIPConfig(
        text_config=text,
        vision_config={**side, "image_size": 16, "patch_size": 8},
        projection_dim=8,
    )
    transformers.CLIPModel(config).save_pretrained(tmp_path)
    size = {"shortest_edge": 16}
    crop = {"height": 16, "width": 16}
    transformers.CLIPImageProcessor(size=size, crop_size=crop).save_pretrained(tmp_path)
    known = ("<pad>", "<s>", "</s>", "<unk>", "a", "photo", "of", "leek", "plum")
    words = {word: number for number, word in enumerate(known)}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(tmp_path)
    encoder = load_encoder(f"clip:{tmp_path}")
    vectors, scale = encode_names(str(tmp_path), ["leek", "plum"])
    assert vectors.shape == (2, encoder.feature_dim) == (2, 8)
    assert scale > 1
    assert not np.allclose(vectors[0], vectors[1])


def test_names_of_texts(tmp_path):
    if not TEXT_ENCODERS["minilm"].is_installed():
        pytest.skip("a text encoder is not installed")
    texts = {
        "sport": ["The striker scored twice", "A tennis final in five sets", "They lost the match"],
        "cooking": ["Simmer the onions in butter", "Bake at 180 degrees", "Whisk eggs and sugar"],
        "astronomy": ["The comet is near Jupiter", "A telescope saw a galaxy", "Light from stars"],
    }
    rows = [f"{label},{text}" for label, group in texts.items() for text in group]
    path, names = tmp_path / "t.csv", tmp_path / "n.txt"
    path.write_text("\n".join(["true,text", *rows]))
    names.write_text("\n".join(texts))
    outcome = label_folder(path, classes=names, backbone="minilm", none_of_these=False)
    truth = [label for label, group in texts.items() for _ in group]
    assert [row.label for row in outcome.rows] == truth
