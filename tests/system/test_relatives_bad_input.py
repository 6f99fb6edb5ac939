"""Bad input of models before and after the Transformer: one clear message with all faults, exit code 2, no traceback."""

import numpy as np
import pytest

from samples import sentences, write_lines, write_pairs
from undivided.data.images import write_idx


@pytest.fixture
def pairs(tmp_path):
    return write_pairs(tmp_path, "train", sentences(20))


def images(tmp_path, height, width, labels):
    write_idx(tmp_path / "images.idx", np.zeros((len(labels), height, width), dtype=np.uint8))
    write_idx(tmp_path / "labels.idx", np.array(labels))
    return [str(tmp_path / "images.idx"), str(tmp_path / "labels.idx")]


def refused(ran, *messages):
    assert ran.code == 2
    assert "Traceback" not in ran.err
    for message in messages:
        assert message in ran.err, ran.err


def test_a_cell_that_is_not_there_and_feeding_without_attention(tmp_path, pairs, run):
    common = ["train", "--train", *pairs, "--out", tmp_path / "m", "--model.kind", "recurrent"]
    refused(run(*common, "--model.cell", "ltsm"), "model.cell: 'ltsm' is none of rnn, lstm, gru; did you mean 'lstm'?")
    fed = ["--model.attention", "none", "--model.input_feeding"]
    refused(run(*common, *fed), "model.input_feeding: there is nothing to feed without model.attention")
    ran = run(*common, *fed, "--model.cell", "ltsm", "--model.patch", "3", "--train.mask", "2")
    refused(ran, "model.cell", "model.input_feeding", "model.patch: a setting of vision and drawing models", "train.mask")
    refused(run(*common, "--data.rows", "lines"), "data.rows: a setting of decoder_only models; model.kind is recurrent")
    assert not (tmp_path / "m").exists()


def test_patches_that_do_not_divide_an_image(tmp_path, run):
    files = images(tmp_path, 8, 10, [0, 1])
    common = ["train", "--model.kind", "vision", "--train", *files, "--out", tmp_path / "m"]
    refused(
        run(*common, "--model.patch", "3"),
        "patches of 3 × 3 do not divide a height of 8 pixels",
        "patches of 3 × 3 do not divide a width of 10 pixels",
    )
    said = ["--model.image_height", "9", "--model.image_width", "7", "--model.patch", "2"]
    refused(run(*common, *said), "image_height: patches of 2 × 2 (model.patch) do not divide 9", "image_width: patches of 2 × 2")
    refused(run(*common, "--model.image_height", "4"), "images of 8 × 10 × 1, not 4 × 10 × 1")
    large = ["--model.image_height", "1024", "--model.image_width", "1024", "--model.patch", "2"]
    refused(run(*common, *large), "model.patch: 262,144 patches per image are more than 16,384")


def test_classes_that_do_not_match_the_labels(tmp_path, run):
    files = images(tmp_path, 8, 8, [0, 1, 2])
    common = ["train", "--model.kind", "vision", "--train", *files, "--out", tmp_path / "m"]
    refused(run(*common, "--data.classes", "a", "b"), "labels.idx: '2' not in data.classes")
    refused(run(*common, "--data.classes", "a", "b", "c", "d"), "data.classes: no training label is 'd'")
    refused(run(*common, "--data.classes", "a", "b", "b"), "data.classes: named twice: b")
    ran = run(*common, "--data.classes", "a", "b", "--model.patch", "3")
    refused(ran, "labels.idx: '2' not in data.classes", "do not divide a height of 8")
    text = write_pairs(tmp_path, "texts", [("good", "yes"), ("bad", "no"), ("so so", "maybe")])
    common = ["train", "--model.kind", "encoder_only", "--train", *text, "--out", tmp_path / "m"]
    refused(run(*common, "--data.classes", "yes", "no", "never"), "'maybe' not in data.classes", "no training label is 'never'")
    refused(run(*common, "--valid", text[0]), "some texts have labels and some do not")


def test_files_of_another_kind_than_the_model_learns_from(tmp_path, pairs, run):
    out = ["--out", tmp_path / "m"]
    refused(
        run("train", "--model.kind", "decoder_only", "--train", *pairs, *out), "decoder_only models read text without a second side"
    )
    refused(run("train", "--train", pairs[0], *out), "has no target file and is not a .tsv file")
    refused(run("train", "--model.kind", "vision", "--train", *pairs, *out), "not an IDX file")
    refused(run("train", "--model.kind", "decoder_only", *out), "what should it learn from? Name text: --train FILE")
    (tmp_path / "short.idx").write_bytes(b"\0\0\x08\x03\0\0\0\x02\0\0\0\x08\0\0\0\x08abc")
    files = [str(tmp_path / "short.idx"), pairs[1]]
    refused(
        run("train", "--model.kind", "vision", "--train", *files, *out), "damaged: its header announces 128 values, but it has 3"
    )
    files = [images(tmp_path, 8, 8, [0, 1])[0], pairs[1]]
    refused(run("train", "--model.kind", "drawing", "--train", *files, *out), "holds 2 images, but", "20 labels")
    refused(run("plan", "--model.kind", "vision"), "plan counts sequence-to-sequence models")
    refused(
        run("train", "--model.kind", "decoder_only", "--model.positions", "learned", "--data.max_length", "2000"), "2000 are needed"
    )


def test_a_prompt_longer_than_the_context(tmp_path, run):
    text = write_lines(tmp_path / "text", [source for source, _ in sentences(40)])
    settings = {"d_model": 16, "d_ff": 16, "n_heads": 2, "decoder_layers": 1, "kind": "decoder_only"}
    flags = [part for name, value in settings.items() for part in (f"--model.{name}", str(value))]
    flags += ["--data.max_length", "12", "--vocab-size", "300", "--max-steps", "2", "--batch-tokens", "100", "--threads", "1"]
    assert run("train", "--train", text, "--out", tmp_path / "m", *flags).code == 0
    ran = run("generate", tmp_path / "m", "the dog " * 40, "a cat", "my bird " * 40)
    refused(ran, "prompt 1 has", "prompt 3 has", "but the context of this model has 12")
    assert ran.err.count("\n") == 1
    ran = run("generate", tmp_path / "m", "the", "--temperature", "0", "--top-p", "-1", "--scale", "0")
    assert ran.code == 2
    refused(run("generate", tmp_path / "m", "the", "--temperature", "0", "--top-p", "-1"), "temperature: 0", "top-p: -1")
