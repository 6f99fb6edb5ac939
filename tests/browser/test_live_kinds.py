"""Live pages of other kinds of model in a real browser: tensors and searches are those of PyTorch, and the views follow."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from live_pages import check_with_axe, settings, wait_for
from waiting import wait_until

from samples import sentences
from undivided.artifact import Artifact, SingleStackArtifact
from undivided.config import build_recipe
from undivided.core.ids import BOS, EOS, UNK
from undivided.data.images import fit_images
from undivided.data.subwords import to_one_line
from undivided.inference.classify import to_values
from undivided.inference.generate import Generator
from undivided.inference.search import search
from undivided.look.live import render_live
from undivided.models import make_model, make_single_stack
from undivided.models.vision import cut_patches
from undivided.nn.attention import attention_hook

LINES = [source for source, _ in sentences(12, seed=9)]
CPU = torch.device("cpu")
SIZES = {"d_model": 16, "d_ff": 24, "n_heads": 2}


def shaken(model):
    """Weights large enough that predictions differ."""
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model.eval()


def single_stack(tokenizer, kind, classes=(), **model):
    torch.manual_seed(5)
    depth = "decoder_layers" if kind == "decoder_only" else "encoder_layers"
    settings = SIZES | {"kind": kind, depth: 2} | model
    data = {"max_length": 48, "classes": list(classes)}
    recipe = build_recipe({"model": settings, "data": data, "search": {"max_extra": 12, "beam_size": 4}})
    made = make_single_stack(recipe.model, len(tokenizer.source) if tokenizer else 0, len(classes))
    return SingleStackArtifact(recipe, tokenizer, shaken(made))


def recurrent(tokenizer, **model):
    torch.manual_seed(5)
    sizes = {"kind": "recurrent", "d_model": 16, "encoder_layers": 2, "decoder_layers": 2}
    recipe = build_recipe({"model": sizes | model, "search": {"beam_size": 4, "max_extra": 8}})
    return Artifact(recipe, tokenizer, shaken(make_model(recipe.model, len(tokenizer.source), len(tokenizer.target))))


@pytest.fixture(scope="module")
def tokenizer(translator):
    return translator.artifact.tokenizer


def watch(modules, run):
    """What modules give during a pass, by our names, with the weights of every attention by its module."""
    found, weights = {}, {}

    def keep(name):
        return lambda module, inputs, output: found.__setitem__(name, output[0].detach().numpy())

    def record(owner, values):
        weights.setdefault(owner, []).append(values[0].numpy())
        return values

    hooks = [module.register_forward_hook(keep(name)) for name, module in modules.items()]
    with torch.inference_mode(), attention_hook(record):
        found |= run()
    for hook in hooks:
        hook.remove()
    return found, weights


def stack_modules(stack, use):
    """The modules of a single stack by the names that a page has for what they give."""
    modules = {}
    for number, layer in enumerate(stack.layers):
        here = f"{use}.{number}"
        modules[f"{here}.self.result"], modules[f"{here}.feed.result"] = layer.residuals
        modules[f"{here}.self.out"], modules[f"{here}.feed.out"] = layer.self_attention, layer.feed_forward
        modules[f"{here}.qkv"] = layer.self_attention.qkv
        modules[f"{here}.feed.hidden"] = layer.feed_forward.inner
    return modules


def check_tensors(ask, artifact, use, run):
    """Every tensor that the page wrote down in its last pass is that of PyTorch."""
    [[_, ours]] = ask("tensors")
    theirs, weights = watch(stack_modules(artifact.model.stack, use), run)
    for number, layer in enumerate(artifact.model.stack.layers):
        theirs[f"{use}.{number}.self.weights"] = np.concatenate(weights[layer.self_attention], axis=-2)
        rows = zip(*(ours[f"{use}.{number}.self.{part}"] for part in ("queries", "keys", "values")))
        ours[f"{use}.{number}.qkv"] = [[number for part in row for number in part] for row in rows]
    for key, value in theirs.items():
        # `relu` layers are computed by one kernel, without the module of their first half.
        mine = np.array(ours[key])
        assert np.abs(mine.reshape(value.shape) - value).max() < 1e-4, key
    assert len(theirs) > 10


# GPT.


LANGUAGE = {
    "paper": {},
    "GPT-2": {
        "norm": "pre", "activation": "gelu_tanh", "positions": "learned", "max_positions": 48, "scale_embeddings": False,
        "attention_bias": True,
    },
    "swiglu, marian, untied": {"activation": "swiglu", "positions": "marian", "tie": "none", "norm_epsilon": 0.1},
    "window, concatenated": {"window": 6, "join_positions": "concatenate", "norm": "pre", "d_k": 5, "d_v": 3},
}  # fmt: skip


@pytest.mark.parametrize("name", LANGUAGE)
def test_a_language_model_continues_as_in_pytorch(engine, tokenizer, name):
    artifact = single_stack(tokenizer, "decoder_only", **LANGUAGE[name])
    ask, generator, model = engine(artifact), Generator(artifact), artifact.model
    for text in (LINES[0][:25], ""):
        parts = dict(ask("look", text=text, settings=settings(artifact.recipe.search)))
        tokens = parts["translation"]["tokens"] + ([EOS] if parts["translation"]["finished"] else [])
        tgt_in = torch.tensor([[BOS, *tokens[:-1]]])

        def run(tgt_in=tgt_in):
            states = model(tgt_in)
            return {"states": states[0].numpy(), "logits": model.logits(states)[0].numpy()} | {
                "target.embedded": model.embedding(tgt_in)[0].numpy()
            }

        check_tensors(ask, artifact, "decoder", run)
        with torch.inference_mode():
            chances = model.logits(model(tgt_in))[0].softmax(dim=-1)
        for step, row in zip(parts["look"]["steps"], chances, strict=True):
            best = row.topk(10)
            assert [each["id"] for each in step["candidates"]] == best.indices.tolist()
            assert [each["probability"] for each in step["candidates"]] == pytest.approx(best.values.tolist(), abs=1e-5)
    prompts = [line[: 5 * number] for number, line in enumerate(LINES)]
    for beam in (1, 4):
        config = dataclasses.replace(artifact.recipe.search, beam_size=beam)
        rows = [row for _, row in ask("translate", texts=prompts, settings=settings(config))]
        wanted = [best for (best, *_) in generator.text(prompts, beam_size=beam)]
        assert [row["text"] for row in rows] == [to_one_line(each.text) for each in wanted]
        assert [row["score"] for row in rows] == pytest.approx([each.score for each in wanted], abs=1e-4)
    # A prompt of as many subwords as the context leaves no place for another.
    long = " ".join(LINES)
    assert ask("look", text=long, settings=settings(artifact.recipe.search))[0][1]["reason"] == "long"


def test_sampling_follows_the_temperature(engine, tokenizer):
    artifact = single_stack(tokenizer, "decoder_only")
    ask = engine(artifact)

    def draw(seed, temperature):
        asked = settings(artifact.recipe.search) | {"sample": True, "seed": seed, "temperature": temperature}
        return dict(ask("look", text="A", settings=asked))["translation"]["text"]

    assert draw(1, 1.0) == draw(1, 1.0)
    assert len({draw(seed, 2.0) for seed in range(6)}) > 3
    greedy = settings(artifact.recipe.search) | {"beam_size": 1}
    assert {draw(seed, 1e-4) for seed in range(3)} == {dict(ask("look", text="A", settings=greedy))["translation"]["text"]}


def test_heads_and_positions_of_a_language_model_can_be_switched_off(engine, tokenizer):
    artifact = single_stack(tokenizer, "decoder_only")
    ask, model = engine(artifact), artifact.model
    plain = dict(ask("look", text=LINES[0][:20], settings=settings(artifact.recipe.search)))["look"]
    lost = {(each["layer"], each["head"]): each["lost"] for _, each in ask("heads")}
    tgt = torch.tensor([[step["written"]["id"] for step in plain["steps"]]])
    tgt_in = torch.tensor([[step["read"]["id"] for step in plain["steps"]]])

    def total():
        with torch.inference_mode():
            return float(model.logits(model(tgt_in)).log_softmax(dim=-1).gather(2, tgt[..., None]).sum())

    before = total()
    for layer, owner in enumerate(each.self_attention for each in model.stack.layers):
        for head in range(2):

            def without(found, weights, owner=owner, head=head):
                keep = torch.ones(2, 1, 1)
                keep[head] = float(found is not owner)
                return weights * keep

            with attention_hook(without):
                assert lost[layer, head] == pytest.approx(before - total(), abs=1e-3)
    for change in ("mask", "positions", "scale"):
        changed = dict(ask("look", text=LINES[0][:20], settings=settings(artifact.recipe.search), changes={change: False}))["look"]
        assert changed["decoder"]["data"] != plain["decoder"]["data"], change
    [[_, saliency]] = ask("saliency")
    assert np.abs(saliency["target"]["data"]).max() > 0


# BERT.


@pytest.mark.parametrize("name", ["paper", "BERT"])
@pytest.mark.parametrize("classes", [(), ("noun", "verb", "other")])
def test_an_encoder_guesses_hidden_words_and_classes_as_in_pytorch(engine, tokenizer, name, classes):
    bert = {
        "activation": "gelu", "positions": "learned", "max_positions": 60, "attention_bias": True, "norm_epsilon": 1e-12,
        "scale_embeddings": False,
    }  # fmt: skip
    artifact = single_stack(tokenizer, "encoder_only", classes, **(bert if name == "BERT" else {"norm": "pre"}))
    ask, model = engine(artifact), artifact.model
    for text in LINES[:3]:
        found = dict(ask("look", text=text, hidden=[1, 3]))["look"]
        ids = [BOS, *tokenizer.source.encode([text])[0]]
        assert [each["id"] for each in found["tokens"]] == ids
        words = [piece for piece in tokenizer.source.pieces(ids) if piece.startswith("\u2581")]
        assert len(found["words"]) == len(words)
        assert found["hidden"] == [*found["words"][1], *found["words"][3]]
        tokens = torch.tensor([[UNK if place in found["hidden"] else token for place, token in enumerate(ids)]])

        def run(tokens=tokens):
            return {"logits": model(tokens, None)[0].numpy()}

        check_tensors(ask, artifact, "encoder", run)
        with torch.inference_mode():
            chances = model(tokens, None)[0].softmax(dim=-1)
        if classes:
            shown = {each["name"]: each["probability"] for each in found["classes"]}
            assert shown == pytest.approx(dict(zip(classes, chances.tolist())), abs=1e-5)
            continue
        for place, (step, row) in enumerate(zip(found["steps"], chances, strict=True)):
            assert [each["id"] for each in step["candidates"]] == row.topk(10).indices.tolist()
            assert step["probability"] == pytest.approx(float(row[ids[place]]), abs=1e-5)
            assert step["read"]["piece"] == ("[MASK]" if place in found["hidden"] else tokenizer.source.pieces([ids[place]])[0])
            assert step["lens"][-1]["probability"] == pytest.approx(step["probability"], abs=1e-6)
    refused = ask("look", text=" ".join(LINES), hidden=[])
    assert refused[0][1]["reason"] == "long"


# ViT.


def viewer(**model):
    sizes = {"image_height": 8, "image_width": 12, "patch": 2}
    return single_stack(None, "vision", [str(digit) for digit in range(10)], **(sizes | model))


@pytest.mark.parametrize("model", [{}, {"channels": 3, "positions": "learned", "max_positions": 25, "norm": "pre", "patch": 4}])
@pytest.mark.parametrize("size", [(1, 8, 12), (1, 64, 96), (3, 31, 50), (1, 5, 7)])
def test_an_image_is_classified_as_in_pytorch(engine, model, size):
    artifact = viewer(**model)
    ask, config = engine(artifact), artifact.recipe.model
    image = np.random.default_rng(3).integers(0, 256, size, dtype=np.uint8)
    given = {"pixels": image.ravel().tolist(), "channels": size[0], "height": size[1], "width": size[2]}
    found = dict(ask("look", image=given))["look"]
    fitted = fit_images(image[None], config.channels, config.image_height, config.image_width)
    assert found["pixels"] == fitted.ravel().tolist()
    values = to_values(fitted)

    def run():
        return {
            "patches": cut_patches(values, config.patch)[0].numpy(),
            "states": artifact.model.stack(embedded(artifact.model, values), None)[0, 0].numpy(),
            "source.embedded": embedded(artifact.model, values)[0].numpy(),
            "logits": artifact.model(values)[0].numpy(),
        }

    [[_, ours]] = ask("tensors")
    assert set(ours) >= {"patches", "memory"}
    theirs, weights = watch(stack_modules(artifact.model.stack, "encoder"), lambda: {"logits": artifact.model(values)[0].numpy()})
    assert np.abs(np.array(ours["logits"]) - theirs["logits"]).max() < 1e-4
    for number, layer in enumerate(artifact.model.stack.layers):
        [wanted] = weights[layer.self_attention]
        assert np.abs(np.array(ours[f"encoder.{number}.self.weights"]).reshape(wanted.shape) - wanted).max() < 1e-4
        for part in ("self.result", "feed.result"):
            wanted = theirs[f"encoder.{number}.{part}"]
            assert np.abs(np.array(ours[f"encoder.{number}.{part}"]).reshape(wanted.shape) - wanted).max() < 1e-4
    with torch.inference_mode():
        for key, value in run().items():
            assert np.abs(np.array(ours[key]).reshape(value.shape) - value).max() < 1e-4, key
    chances = torch.tensor(theirs["logits"]).softmax(dim=-1).tolist()
    assert [each["probability"] for each in found["classes"]] == pytest.approx(chances, abs=1e-5)


def embedded(model, values):
    x = model.project(cut_patches(values, model.config.patch))
    return model.positions(torch.cat([model.first.expand(len(x), 1, -1), x], dim=1))


# Recurrent.


RECURRENT = {
    "lstm, multiplicative": {"cell": "lstm", "attention": "multiplicative"},
    "gru, additive, fed, wide": {"cell": "gru", "attention": "additive", "input_feeding": True, "d_hidden": 12},
    "rnn, none": {"cell": "rnn", "attention": "none", "bidirectional": False},
    "lstm, none, biases": {"cell": "lstm", "attention": "none", "d_hidden": 20, "output_bias": True, "tie": "none"},
    "gru, multiplicative, one way": {"cell": "gru", "attention": "multiplicative", "bidirectional": False, "tie": "target"},
}


def gates_of(recurrence, x, state):
    """Every gate of a cell along `T …`, written out from its weights; and the states that its own step gives."""
    weights, width, rows = recurrence.weights(), recurrence.fused.hidden_size, []
    for token in x:
        of_x = torch.nn.functional.linear(token, weights.x, weights.x_bias)
        of_h = torch.nn.functional.linear(state[0], weights.h, weights.h_bias)
        after = recurrence.step(token, state)
        row = dict(zip("hc", after))
        if isinstance(recurrence.fused, torch.nn.LSTM):
            both = (of_x + of_h).split(width)
            row |= {name: part.sigmoid() for name, part in zip("if_o", both)} | {"g": both[2].tanh()}
        if isinstance(recurrence.fused, torch.nn.GRU):
            (r, z, n), (r_h, z_h, n_h) = of_x.split(width), of_h.split(width)
            row |= {"r": (r + r_h).sigmoid(), "z": (z + z_h).sigmoid()}
            row["n"] = (n + row["r"] * n_h).tanh()
        rows.append(row)
        state = after
    return {name: torch.stack([row[name] for row in rows]).numpy() for name in rows[0] if name != "_"}


def encoder_gates(model, src):
    """The gates of every layer of the encoder, by the names of the page."""
    x, found = model.source_embedding(torch.tensor([src])), {}
    for number, layer in enumerate(model.encoder):
        ways = {"ahead": (layer.ahead, x[0])} | ({"back": (layer.back, x[0].flip(0))} if layer.bidirectional else {})
        for way, (recurrence, given) in ways.items():
            zero = torch.zeros(recurrence.fused.hidden_size)
            tables = gates_of(recurrence, given, (zero,) * recurrence.cell.parts)
            found |= {f"encoder.{number}.{way}.{name}": table[::-1] if way == "back" else table for name, table in tables.items()}
        x = layer(x, None)
    return found


@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_translator_is_that_of_pytorch(engine, tokenizer, name):
    artifact = recurrent(tokenizer, **RECURRENT[name])
    ask, model, config = engine(artifact), artifact.model, artifact.recipe.search
    for text in LINES[:3]:
        parts = dict(ask("look", text=text, settings=settings(config)))
        [[_, ours]] = ask("tensors")
        [src] = tokenizer.source.encode([text])
        best = search(model, [src], config, CPU)[0][0]
        assert parts["translation"]["tokens"] == best.tokens
        tgt = [*best.tokens, *([EOS] if best.finished else [])]
        tgt_in = torch.tensor([[BOS, *tgt[:-1]]])

        def run(src=src, tgt_in=tgt_in):
            memory = model.encode(torch.tensor([src]), None)
            states = model.decode(memory, tgt_in)
            return {"memory": memory.states[0].numpy(), "states": states[0].numpy(), "logits": model.logits(states)[0].numpy()}

        theirs, weights = watch({}, run)
        with torch.inference_mode():
            theirs |= encoder_gates(model, src)
            theirs |= decoder_states(model, src, tgt_in)
            lenses = [
                model.logits(layer)[0].softmax(dim=-1)
                for layer in model.decode_layers(model.encode(torch.tensor([src]), None), tgt_in)
            ]
        if weights:
            [rows] = weights.values()
            theirs["decoder.0.cross.weights"] = np.concatenate(rows, axis=-2)
        assert ("decoder.0.cross.weights" in ours) == bool(weights)
        for key, value in theirs.items():
            assert np.abs(np.array(ours[key]).reshape(value.shape) - value).max() < 1e-4, key
        for place, step in enumerate(parts["look"]["steps"]):
            wanted = [float(layer[place, tgt[place]]) for layer in lenses]
            assert [each["probability"] for each in step["lens"]] == pytest.approx(wanted, abs=1e-5)
        [[_, gates]] = ask("gates", place="encoder.1.ahead")
        assert set(gates["tables"]) == {"rnn": set("h"), "lstm": set("ifgoch"), "gru": set("rznh")}[model.config.cell]
        for gate, table in gates["tables"].items():
            assert np.abs(np.array(table) - theirs[f"encoder.1.ahead.{gate}"].ravel()).max() < 1e-4
    for beam in (1, 4):
        searched = dataclasses.replace(config, beam_size=beam)
        rows = [row for _, row in ask("translate", texts=LINES, settings=settings(searched))]
        wanted = [search(model, [src], searched, CPU)[0][0] for src in tokenizer.source.encode(LINES)]
        assert [row["tokens"] for row in rows] == [each.tokens for each in wanted]
        assert [row["score"] for row in rows] == pytest.approx([each.score for each in wanted], abs=1e-4)


def decoder_states(model, src, tgt_in):
    """The state of every layer of the decoder after every step."""
    state = model.start(model.encode(torch.tensor([src]), None))
    rows = []
    for token in model.target_embedding(tgt_in).split(1, dim=1):
        model.advance(state, token)
        rows.append([layer[0][0, 0] for layer in state.layers])
    return {f"decoder.{number}.h": torch.stack(layer).numpy() for number, layer in enumerate(zip(*rows, strict=True))}


# The pages.


@pytest.fixture(scope="module")
def pages(tokenizer):
    """A page of each kind, and what is there once it is ready."""
    made = {
        "decoder_only": (single_stack(tokenizer, "decoder_only"), LINES[0][:20], "[data-step=end]"),
        "encoder_only": (single_stack(tokenizer, "encoder_only"), LINES[0], "[data-step=end]"),
        "classes": (single_stack(tokenizer, "encoder_only", ("noun", "verb")), LINES[0], ".bars.classes li"),
        "vision": (viewer(), "", ".bars.classes li"),
        "recurrent": (recurrent(tokenizer), LINES[0], ".gate-detail canvas"),
        "no attention": (recurrent(tokenizer, attention="none", cell="gru"), LINES[0], ".gate-detail canvas"),
    }
    return {name: (render_live(artifact, text, "float32"), ready) for name, (artifact, text, ready) in made.items()}


KINDS = ["decoder_only", "encoder_only", "classes", "vision", "recurrent", "no attention"]


def wait_for_views(tab):
    """Every section has its content."""
    wait_until(tab, "[...document.querySelectorAll('.part .content')].every((each) => each.children.length)")


@pytest.mark.parametrize(("width", "dark", "language"), [(1280, False, "en"), (390, True, "ko")])
@pytest.mark.parametrize("kind", KINDS)
def test_every_page_in_both_languages_widths_and_colours(show, pages, kind, width, dark, language):
    text, ready = pages[kind]
    tab = show(text, width, dark)
    tab.wait_for_selector(ready)
    english = tab.locator("nav").text_content()
    if language == "ko":
        tab.locator(".top-line input[value=ko]").check()
        tab.wait_for_selector(ready)
        assert tab.locator("html").get_attribute("lang") == "ko"
        assert tab.locator("nav").text_content() != english
    wait_for_views(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    check_with_axe(tab)


def test_a_prompt_is_continued_as_it_is_typed(show, tokenizer):
    artifact = single_stack(tokenizer, "decoder_only")
    tab, generator = show(render_live(artifact, "", "float32")), Generator(artifact)
    for text in ("A", LINES[1][:15]):
        tab.locator("#live-text").fill(text)
        [[best]] = generator.text([text], beam_size=1, max_extra=12)
        wait_for(tab, ".continued bdi", [to_one_line(best.text)])
        assert tab.locator(".continued .given").text_content() == tab.locator("#live-text").input_value()
    wait_for_views(tab)
    assert tab.locator(".attention .choice.heads").count() == 1
    tab.locator(".box[data-name=linear]").click()
    tab.locator(".off-grid button").first.click()
    tab.wait_for_selector(".changed .chip")
    tab.locator(".changes > button").click()
    wait_for(tab, ".continued bdi", [to_one_line(best.text)])


def test_a_clicked_word_is_hidden_and_guessed(show, tokenizer):
    artifact = single_stack(tokenizer, "encoder_only")
    tab = show(render_live(artifact, LINES[0], "float32"))
    tab.wait_for_selector(".words-to-hide button")
    words = tab.locator(".words-to-hide button")
    assert words.nth(1).text_content() == "[MASK]"
    words.nth(1).click()
    wait_for(tab, "header .status", ["No word is hidden."])
    words.nth(2).focus()
    tab.keyboard.press("Enter")
    wait_for(tab, ".words-to-hide button[aria-pressed=true]", ["[MASK]"])
    ids = [BOS, *tokenizer.source.encode([LINES[0]])[0]]
    starts = [place for place, piece in enumerate(tokenizer.source.pieces(ids)) if piece.startswith("\u2581")]
    places = range(starts[2], starts[3])
    tokens = torch.tensor([[UNK if place in places else token for place, token in enumerate(ids)]])
    with torch.inference_mode():
        best = artifact.model(tokens, None)[0, starts[2]].topk(10).indices.tolist()
    wanted = tokenizer.source.pieces(best)
    wanted += [tokenizer.source.pieces([ids[starts[2]]])[0]] * (ids[starts[2]] not in best)
    wait_for(tab, ".part:first-of-type .stacked .bars .token", wanted, "each => each.title")


def test_what_is_drawn_is_classified(show):
    """With a sample, with the pointer, with the keys: the classes are PyTorch's for the pixels of the drawing."""
    artifact = viewer()
    tab = show(render_live(artifact, "", "float32"))
    tab.wait_for_selector(".bars.classes li")

    def expected():
        shown = tab.evaluate("""() => { const canvas = document.querySelector('canvas.drawing');
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            return [canvas.height, canvas.width, Array.from(data).filter((_, at) => at % 4 === 0)]; }""")
        image = np.array(shown[2], dtype=np.uint8).reshape(1, 1, *shown[:2])
        config = artifact.recipe.model
        with torch.inference_mode():
            logits = artifact.model(to_values(fit_images(image, 1, config.image_height, config.image_width)))[0]
        return [str(int(each)) for each in logits.argsort(descending=True)], image

    for digit in range(10):
        tab.locator(f".drawing-tools button[aria-label='draw the digit {digit}']").click()
        wanted, image = expected()
        assert 0.03 < (image > 128).mean() < 0.3
        wait_for(tab, ".bars.classes .token", wanted, "each => each.title")
    tab.locator(".drawing-tools button", has_text="clear").click()
    assert not expected()[1].any()
    box = tab.locator("canvas.drawing").bounding_box()
    tab.mouse.move(box["x"] + 30, box["y"] + 20)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 180, box["y"] + 130, steps=12)
    tab.mouse.up()
    wanted, drawn = expected()
    assert drawn.any()
    wait_for(tab, ".bars.classes .token", wanted, "each => each.title")
    tab.locator("canvas.drawing").focus()
    for key in ("Space", *["ArrowLeft"] * 9, "Space", *["ArrowUp"] * 3):
        tab.keyboard.press(key)
    wanted, more = expected()
    assert (more > 128).sum() > (drawn > 128).sum()
    wait_for(tab, ".bars.classes .token", wanted, "each => each.title")
    tab.locator("canvas.overlay").focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert tab.locator(".patch-frame").is_visible()
    tab.locator(".multiples button").nth(1).click()
    assert tab.locator(".multiples button").nth(1).get_attribute("aria-pressed") == "true"


def test_an_image_file_is_read_in_its_own_size(show, tmp_path):
    from undivided.data.images import encode_png

    artifact = viewer()
    image = np.random.default_rng(1).integers(0, 256, (16, 24, 3), dtype=np.uint8)
    (tmp_path / "image.png").write_bytes(encode_png(image))
    (tmp_path / "other.png").write_text("no image", encoding="utf-8")
    tab = show(render_live(artifact, "", "float32"))
    tab.locator("#image-file").set_input_files(tmp_path / "image.png")
    config = artifact.recipe.model
    values = to_values(fit_images(image.transpose(2, 0, 1)[None], 1, config.image_height, config.image_width))
    with torch.inference_mode():
        wanted = [str(int(each)) for each in artifact.model(values)[0].argsort(descending=True)]
    wait_for(tab, ".bars.classes .token", wanted, "each => each.title")
    tab.locator("#image-file").set_input_files(tmp_path / "other.png")
    wait_for(tab, ".drawing-tools [role=status]", ["This file is not an image that the browser can read."])


def test_gates_follow_the_chosen_layer_and_step(show, tokenizer):
    artifact = recurrent(tokenizer)
    tab = show(render_live(artifact, LINES[0], "float32"))
    tab.wait_for_selector(".gate-detail canvas")
    [src] = tokenizer.source.encode([LINES[0]])
    best = search(artifact.model, [src], artifact.recipe.search, CPU)[0][0]
    wait_for(tab, ".sentence.target bdi", [to_one_line(tokenizer.target.decode([best.tokens])[0])])
    tab.locator(".choice input[value='encoder.0.back']").check()
    pieces = tokenizer.source.pieces(src)
    wait_for(tab, ".gates tbody .token", pieces, "each => each.title")
    tab.locator(".gates tbody button").nth(1).click()
    with torch.inference_mode():
        tables = encoder_gates(artifact.model, src)
    forget = tab.locator(".gate-detail .strip-line", has_text="forget gate")
    forget.locator("summary").click()
    wanted = [f"{value:.3f}".replace("-", "\u2212") for value in tables["encoder.0.back.f"][1]]
    wait_for(tab, ".gate-detail .strip-line:nth-child(2) .strip-numbers", [wanted], "each => each.textContent.split(/\\s+/)")


def test_no_text_of_a_model_is_anything_but_text(show):
    """Names of classes come with a model, which may be a stranger's."""
    hostile = ['<img src=x onerror="alert(1)">', "</script><script>alert(1)</script>"]
    artifact = single_stack(None, "vision", hostile, image_height=8, image_width=8, patch=2)
    tab = show(render_live(artifact, "", "float32"))
    tab.wait_for_selector(".bars.classes li")
    assert sorted(tab.locator(".bars.classes .token").all_text_contents()) == sorted(hostile)
    assert tab.locator(".bars.classes img").count() == 0
    about = tab.evaluate("JSON.parse(document.getElementById('live-about').textContent).classes")
    assert json.dumps(about) == json.dumps(hostile)
