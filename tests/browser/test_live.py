"""The live page in a real browser: subwords, every tensor, searches and views are those of PyTorch and sentencepiece."""

import dataclasses
import io
import random
import time
import unicodedata

import numpy as np
import pytest
import sentencepiece
import torch
from live_pages import check_with_axe, settings, wait_for
from waiting import wait_until

from samples import sentences
from undivided.artifact import Artifact
from undivided.config import TokensConfig, build_recipe
from undivided.core.ids import BOS, EOS
from undivided.data.subwords import Subwords, Tokenizer, learn_subwords, to_one_line
from undivided.inference.search import search
from undivided.look import look, run_what_if
from undivided.look.live import render_live
from undivided.models import make_model

LINES = [source for source, _ in sentences(20, seed=9)]
CPU = torch.device("cpu")


def variant(tokenizer, **model):
    """An untrained model with weights large enough that its predictions differ."""
    torch.manual_seed(3)
    sizes = {"d_model": 16, "d_ff": 24, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    recipe = build_recipe({"model": sizes | model, "search": {"beam_size": 4, "max_extra": 8}})
    made = make_model(recipe.model, len(tokenizer.source), len(tokenizer.target)).eval()
    for parameter in made.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return Artifact(recipe, tokenizer, made)


# Subwords.


POOLS = [
    (0x20, 0x7E), (0, 0x1F), (0x7F, 0x17F), (0x300, 0x36F), (0x370, 0x6FF), (0x900, 0x97F), (0x1100, 0x11FF), (0x2000, 0x218F),
    (0x2460, 0x24FF), (0x2580, 0x259F), (0x3000, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xAD00), (0xFB00, 0xFDFF), (0xFE00, 0xFFEF),
    (0x1D400, 0x1D7FF), (0x1F300, 0x1F6FF), (0xE0000, 0xE007F), (0x10FFF0, 0x10FFFF),
]  # fmt: skip


def odd_lines(count, lines, seed=5):
    """Lines of random Unicode, and sentences with odd letters, spaces and forms in them."""
    chance = random.Random(seed)

    def letter():
        return chr(chance.randint(*chance.choice(POOLS)))

    for number in range(count):
        line = chance.choice(lines)
        match number % 4:
            case 0:
                yield "".join(letter() for _ in range(chance.randint(0, 40)))
            case 1:
                at = chance.randint(0, len(line))
                yield line[:at] + letter() + letter() + line[at:]
            case 2:
                form = unicodedata.normalize(chance.choice(["NFD", "NFKD", "NFC"]), line)
                yield form.replace(" ", chance.choice(["  ", "\u3000", "\u00a0", "\t", " \u2581"]))
            case _:
                yield " " * chance.randint(0, 3) + line + " " * chance.randint(0, 2)


def foreign_model(lines, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=340, hard_vocab_limit=False, pad_id=0, unk_id=1, bos_id=2,
        eos_id=3, minloglevel=2, **options,
    )  # fmt: skip
    return model.getvalue()


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("rules", ["ours", "nmt_nfkc", "nmt_nfkc_cf with bytes", "symbols"])
def test_subwords_are_those_of_sentencepiece(engine, kind, rules):
    pairs = sentences(200)
    lines = [f"{text} ﬁne ½ Ⅷ Straße caffè 안녕" for pair in pairs for text in pair]
    if rules == "ours":
        model = learn_subwords(lines, TokensConfig(kind=kind), 400, 1)
    elif rules == "symbols":
        symbols = {"user_defined_symbols": ["⟦0⟧", "⟦1⟧", "<br>", "in"], "normalization_rule_name": "identity"}
        model = foreign_model(lines, model_type=kind, byte_fallback=True, remove_extra_whitespaces=False, **symbols)
    else:
        name, _, fallback = rules.partition(" ")
        model = foreign_model(lines, model_type=kind, normalization_rule_name=name, byte_fallback=bool(fallback))
    subwords = Subwords(model)
    ask = engine(variant(Tokenizer(subwords)))
    count = 10_000 if rules == "ours" else 1_500
    made = [line.replace("\n", " ") for line in odd_lines(count, lines)]
    texts = ["", " ", "▁", "▁▁ a▁b", "a ⟦0⟧ in <br>⟦1⟧in", ">>deu<< a", *made]
    [[_, rows]] = ask("encode", texts=texts)
    wanted = subwords.encode(texts)
    assert [(text, row) for text, row, right in zip(texts, rows, wanted) if row != right] == []
    chance = random.Random(1)
    ids = [[chance.randrange(len(subwords)) for _ in range(12)] for _ in range(300)] + wanted[:300]
    [[_, decoded]] = ask("decode", rows=ids)
    assert decoded == [to_one_line(text) for text in subwords.decode(ids)]


# Numbers.


VARIANTS = {
    "paper": {},
    "pre, gelu, learned": {"norm": "pre", "activation": "gelu", "positions": "learned", "max_positions": 64},
    "swiglu, halves, biases": {"activation": "swiglu", "positions": "halves", "attention_bias": True, "output_bias": True},
    "concatenated, widths": {"join_positions": "concatenate", "d_k": 5, "d_v": 3, "tie": "target", "activation": "swish"},
    "window, index, untied": {"window": 4, "positions": "index", "tie": "none", "norm": "pre", "activation": "gelu_tanh"},
    "no positions, no scale": {"positions": "none", "scale_embeddings": False},
}


def record_torch(artifact, src, tgt):
    """Outputs of the modules of a model in one pass, by our names."""
    model, found = artifact.model, {}

    def keep(name):
        return lambda module, inputs, output: found.__setitem__(name, output[0].detach().numpy())

    hooks = []
    for stack in ("encoder", "decoder"):
        names = ("self", "feed") if stack == "encoder" else ("self", "cross", "feed")
        for number, layer in enumerate(getattr(model, stack)):
            here = f"{stack}.{number}"
            hooks += [layer.residuals[at].register_forward_hook(keep(f"{here}.{name}.result")) for at, name in enumerate(names)]
            hooks.append(layer.self_attention.register_forward_hook(keep(f"{here}.self.out")))
            hooks.append(layer.self_attention.qkv.register_forward_hook(keep(f"{here}.self.qkv")))
            hooks.append(layer.feed_forward.register_forward_hook(keep(f"{here}.feed.out")))
            if stack == "decoder":
                hooks.append(layer.cross_attention.query.register_forward_hook(keep(f"{here}.cross.queries")))
                hooks.append(layer.cross_attention.output.register_forward_hook(keep(f"{here}.cross.out")))
    with torch.inference_mode():
        memory = model.encode(torch.tensor([src]), None)
        states = model.decode(memory, torch.tensor([[BOS, *tgt[:-1]]]))
        found |= {"memory": memory.states[0].numpy(), "states": states[0].numpy(), "logits": model.logits(states)[0].numpy()}
        found["source.embedded"] = model.source_embedding(torch.tensor([src]))[0].numpy()
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize("name", VARIANTS)
def test_every_tensor_and_both_searches_equal_pytorchs(engine, translator, name):
    artifact = variant(translator.artifact.tokenizer, **VARIANTS[name])
    ask, config = engine(artifact), artifact.recipe.search
    for text in LINES[:3]:
        parts = dict(ask("look", text=text, settings=settings(config)))
        [src] = artifact.tokenizer.source.encode([text])
        best = search(artifact.model, [src], config, CPU)[0][0]
        assert parts["translation"]["tokens"] == best.tokens
        assert parts["translation"]["score"] == pytest.approx(best.score, abs=1e-4)
        [[_, ours]] = ask("tensors")
        tgt = [*best.tokens, *([EOS] if best.finished else [])]
        theirs = record_torch(artifact, src, tgt)
        for key, value in theirs.items():
            if key.endswith("qkv"):
                rows = zip(*(ours[key.replace("qkv", part)] for part in ("queries", "keys", "values")))
                mine = np.array([[number for part in row for number in part] for row in rows])
            else:
                mine = np.array(ours[key]).reshape(value.shape)
            assert np.abs(mine - value).max() < 1e-4, key
        assert len(theirs) > 20
    greedy = dataclasses.replace(config, beam_size=1)
    rows = ask("translate", texts=LINES[:5], settings=settings(greedy))
    wanted = [search(artifact.model, [src], greedy, CPU)[0][0] for src in artifact.tokenizer.source.encode(LINES[:5])]
    assert [row["tokens"] for _, row in rows] == [best.tokens for best in wanted]


@pytest.fixture(scope="module")
def trained(translator):
    return translator.artifact


@pytest.mark.parametrize("beam", [1, 4])
def test_held_out_sentences_are_translated_alike(engine, trained, beam):
    config = dataclasses.replace(trained.recipe.search, beam_size=beam)
    rows = engine(trained)("translate", texts=LINES, settings=settings(config))
    wanted = [search(trained.model, [src], config, CPU)[0][0] for src in trained.tokenizer.source.encode(LINES)]
    assert [row["tokens"] for _, row in rows] == [best.tokens for best in wanted]
    assert [row["text"] for _, row in rows] == [to_one_line(trained.tokenizer.target.decode([best.tokens])[0]) for best in wanted]


def test_a_look_is_that_of_python(engine, trained):
    """Attention, candidates, lens, tree, embeddings; what heads are worth, and gradient × input by differences."""
    ask, config = engine(trained), trained.recipe.search
    seen = run_what_if(trained, look(trained, LINES[0]))
    ours = dict(ask("look", text=LINES[0], settings=settings(config)))["look"]
    for use in ("encoder", "decoder", "cross"):
        wanted = seen.attention(use)
        assert ours[use]["shape"] == list(wanted.shape)
        assert np.abs(np.array(ours[use]["data"]).reshape(wanted.shape) - wanted).max() < 1e-4
    assert ours["translation"] == seen.translation
    for mine, step in zip(ours["steps"], seen.steps, strict=True):
        assert [each["id"] for each in mine["candidates"]] == [each.id for each in step.candidates]
        assert mine["rank"] == step.rank
        assert mine["probability"] == pytest.approx(step.probability, abs=1e-5)
        assert [each["probability"] for each in mine["lens"]] == pytest.approx([each.probability for each in step.lens], abs=1e-5)
    tree = [(branch.parent, branch.step, branch.id, branch.fate, branch.best) for branch in seen.beam]
    assert [(each["parent"], each["step"], each["id"], each["fate"], each["best"]) for each in ours["beam"]] == tree
    for name in ("positions", "source", "target", "memory", "across"):
        wanted = getattr(seen.space, name)
        assert np.abs(np.array(ours["space"][name]["data"]).reshape(wanted.shape) - wanted).max() < 1e-4
    near = [[each["piece"] for each in row] for row in ours["space"]["source_neighbours"]]
    assert near == [[each.piece for each in row] for row in seen.space.source_neighbours]
    lost = {(each["use"], each["layer"], each["head"]): each["lost"] for _, each in ask("heads")}
    assert lost == pytest.approx({(each.use, each.layer, each.head): each.lost for each in seen.heads_off}, abs=1e-3)
    [[_, saliency]] = ask("saliency")
    for side, wanted in (("source", seen.saliency_source), ("target", seen.saliency_target)):
        assert np.abs(np.array(saliency[side]["data"]).reshape(wanted.shape) - wanted).max() < 0.01


def test_what_is_changed_changes_what_pytorch_would(engine, trained):
    ask, config = engine(trained), trained.recipe.search
    seen = run_what_if(trained, look(trained, LINES[0]))
    for off in seen.heads_off[:4]:
        changes = {"off": [f"{off.use} {off.layer} {off.head}"]}
        parts = dict(ask("look", text=LINES[0], settings=settings(config), changes=changes))
        assert (parts["translation"]["text"], parts["baseline"]["text"]) == (off.translation, seen.translation)
    written = [token.id for token in seen.tgt_out]
    for other in seen.alternatives[:4]:
        prefix = [*written[: other.step], other.id]
        parts = dict(ask("look", text=LINES[0], settings=settings(config), prefix=prefix))
        assert parts["translation"]["text"] == other.translation
    plain = dict(ask("look", text=LINES[0], settings=settings(config)))["look"]
    for change in ("mask", "positions", "scale"):
        changed = dict(ask("look", text=LINES[0], settings=settings(config), changes={change: False}))["look"]
        use = "encoder" if change != "mask" else "decoder"
        assert changed[use]["data"] != plain[use]["data"], change
    unmasked = dict(ask("look", text=LINES[0], settings=settings(config), changes={"mask": False}))["look"]["decoder"]
    assert min(unmasked["data"]) > 0


def test_one_head_step_by_step(engine, trained):
    """q, k, v, scores and weights of one head, the sums around it, and the prediction: those of PyTorch."""
    ask = engine(trained)
    seen, model = look(trained, LINES[0]), trained.recipe.model
    ask("look", text=LINES[0], settings=settings(trained.recipe.search))
    src, tgt = [token.id for token in seen.source], [token.id for token in seen.tgt_out]
    theirs = record_torch(trained, src, tgt)
    width, head, place = model.key_width, 1, 2
    for use, name in (("encoder", "encoder.0.self"), ("decoder", "decoder.0.self"), ("cross", "decoder.0.cross")):
        [[_, trace]] = ask("trace", use=use, layer=0, head=head, position=place)
        queries = theirs[f"{name}.qkv" if use != "cross" else f"{name}.queries"]
        query = queries[place, head * width : (head + 1) * width]
        assert trace["query"] == pytest.approx(query.tolist(), abs=1e-4)
        assert trace["dots"] == pytest.approx((np.array(trace["keys"]) @ query).tolist(), abs=1e-3)
        allowed = [column <= place or use != "decoder" for column in range(len(trace["dots"]))]
        assert trace["allowed"] == allowed
        scores = torch.tensor(trace["dots"]) / width**0.5
        assert trace["scores"] == pytest.approx(scores.tolist(), abs=1e-3)
        weights = scores.masked_fill(~torch.tensor(allowed), -torch.inf).softmax(dim=0)
        assert trace["weights"] == pytest.approx(weights.tolist(), abs=1e-4)
        assert trace["weights"] == pytest.approx(seen.attention(use)[0, head, place].tolist(), abs=1e-4)
        assert trace["headOut"] == pytest.approx((weights.numpy() @ np.array(trace["values"])).tolist(), abs=1e-4)
        assert trace["result"] == pytest.approx(theirs[f"{name}.result"][place].tolist(), abs=1e-4)
        assert trace["feed"]["result"] == pytest.approx(theirs[f"{name.split('.')[0]}.0.feed.result"][place].tolist(), abs=1e-4)
        normed = np.array(trace["x"] if model.norm == "pre" else trace["sum"])
        assert trace["moments"] == pytest.approx({"mean": normed.mean(), "deviation": (normed.var() + 1e-5) ** 0.5}, abs=1e-4)
    best = [each.probability for each in seen.steps[place].candidates]
    assert [each["probability"] for each in trace["end"]["likely"][:10]] == pytest.approx(best, abs=1e-4)
    [[_, stream]] = ask("stream", stack="decoder", position=place)
    assert stream["points"][-1]["vector"] == pytest.approx(
        theirs[f"decoder.{model.decoder_layers - 1}.feed.result"][place].tolist(), abs=1e-4
    )


@pytest.mark.parametrize(("stored", "close"), [("float32", 1e-4), ("float16", 0.05), ("int8", 1.0)])
def test_weights_in_fewer_bits_are_close(engine, trained, stored, close):
    parts = dict(engine(trained, stored)("look", text=LINES[0], settings=settings(trained.recipe.search)))
    assert parts["look"]["log_probability"] == pytest.approx(look(trained, LINES[0]).log_probability, abs=close)


# The page.


def wait_for_translation(tab, text):
    wait_for(tab, ".sentence.target bdi", [text])


def test_a_sentence_is_translated_as_it_is_typed_and_the_views_follow(show, trained):
    tab = show(render_live(trained, LINES[0], "float32"))
    for text in LINES[:3]:
        tab.locator("#live-text").fill(text)
        seen = look(trained, text)
        wait_for_translation(tab, seen.translation)
        wait_for(tab, ".words.right .token", [token.piece for token in seen.source], "each => each.title")
    tab.locator("#live-text").fill("   ")
    wait_for(tab, "header .status", ["Type a sentence; it is translated as you type."])


def test_switches_change_the_translation_and_can_be_taken_back(show, trained):
    seen = run_what_if(trained, look(trained, LINES[0]))
    tab = show(render_live(trained, LINES[0], "float32"))
    wait_for_translation(tab, seen.translation)
    changed = next((each for each in seen.alternatives if each.translation != seen.translation), None)
    assert changed is not None
    tab.wait_for_selector(".others li")
    tab.locator(".positions").first.locator("button").nth(changed.step).click()
    tab.locator(f".others button:has(bdi[title='{changed.piece}'])").click()
    wait_for_translation(tab, changed.translation)
    assert tab.locator(".sentence.own bdi").text_content() == seen.translation
    tab.locator(".off-grid button").first.click()
    tab.wait_for_selector(".changed .chip >> nth=1")
    assert tab.locator(".off-grid button").first.get_attribute("aria-pressed") == "true"
    tab.locator(".changes > button").click()
    wait_for_translation(tab, seen.translation)
    assert tab.locator(".sentence.own").is_hidden()
    assert tab.locator(".changed .chip").count() == 0


def percent(value):
    return f"{100 * value:.0f} %" if value >= 0.0995 else f"{100 * value:.1f} %" if value >= 0.00095 else "< 0.1 %"


def test_a_box_of_the_picture_leads_to_its_numbers(show, trained):
    tab = show(render_live(trained, LINES[0], "float32"))
    seen = look(trained, LINES[0])
    tab.wait_for_selector("[data-step=end]")
    tab.locator(".box[data-name=encoder]").focus()
    tab.keyboard.press("Enter")
    wait_for(tab, "[data-step]:focus", [True], "() => true")
    tab.locator(".one-head .controls fieldset").nth(2).locator("input[value='1']").check()
    tab.locator(".one-head .controls fieldset").nth(1).locator("input[value='0']").check()
    wait_for(tab, ".one-head .keys tbody td:nth-child(6)", [percent(weight) for weight in seen.encoder[0, 1, 0]])
    assert tab.locator(".one-head [data-step=end] .bars").count() == 0
    tab.locator(".box[data-name=decoder-feed]").click()
    tab.wait_for_selector(".one-head [data-step=end] .bars")
    # The box leads to its step, which gets the focus once the numbers are there.
    wait_for(tab, "[data-step=hidden]:focus", [True], "() => true")
    tab.locator("[data-step=hidden] canvas.strip").focus()
    tab.keyboard.press("ArrowRight")
    assert tab.locator("[data-step=hidden] output").text_content().startswith("2: ")
    tab.locator("[data-step=hidden] summary").click()
    wait_for(
        tab,
        "[data-step=hidden] .strip-numbers",
        [trained.recipe.model.d_ff],
        "each => each.textContent.trim().split(/\\s+/).length",
    )


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_in_korean_and_back_at_every_width(show, trained, width, dark):
    tab = show(render_live(trained, LINES[0]), width, dark)
    tab.wait_for_selector(".embeddings .heat")
    english = tab.locator("nav").text_content()
    tab.locator(".top-line input[value=ko]").check()
    tab.wait_for_selector(".embeddings .heat")
    assert tab.locator("html").get_attribute("lang") == "ko"
    assert "어텐션" in tab.locator("nav").text_content()
    assert tab.evaluate("document.activeElement.value") == "ko"
    assert tab.locator("#live-text").input_value() == LINES[0]
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.locator(".top-line input[value=en]").check()
    assert tab.locator("nav").text_content() == english


@pytest.mark.parametrize(("width", "dark", "language"), [(1280, False, "en"), (390, True, "ko")])
def test_axe_finds_nothing_serious(show, trained, width, dark, language):
    tab = show(render_live(trained, LINES[0]), width, dark)
    tab.locator(f".top-line input[value={language}]").check()
    tab.wait_for_selector(".embeddings .heat")
    tab.wait_for_selector("[data-step=end]")
    check_with_axe(tab)


STOPS = """() => {
    const stops = [...document.querySelectorAll('button, input, select, textarea, summary, [tabindex]')].filter(
        (each) => each.tabIndex >= 0 && !each.disabled && each.checkVisibility({ visibilityProperty: true }));
    // Of the radio buttons of a group, Tab stops at the chosen one.
    return stops.filter((each) => each.type !== 'radio' || each.checked);
}"""


def test_everything_can_be_reached_and_used_with_keys_alone(show, trained):
    tab = show(render_live(trained, LINES[0]))
    tab.wait_for_selector("[data-step=end]")
    wait_until(tab, "[...document.querySelectorAll('.part .content')].every((each) => each.children.length)")
    tab.evaluate(f"() => {{ window.stops = ({STOPS})(); window.visited = new Set(); }}")
    count = tab.evaluate("stops.length")
    assert count > 50
    for _ in range(count + 200):  # More may come while it goes on.
        tab.keyboard.press("Tab")
        if tab.evaluate("visited.size > 1 && document.activeElement === document.body"):
            break
        tab.evaluate("visited.add(document.activeElement)")
    missed = tab.evaluate(
        "stops.filter((each) => each.isConnected && !visited.has(each)).map((each) => each.outerHTML.slice(0, 150))"
    )
    assert missed == []
    tab.locator("#live-text").focus()
    tab.keyboard.press("ControlOrMeta+A")
    tab.keyboard.type(LINES[1])
    wait_for_translation(tab, look(trained, LINES[1]).translation)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_navigation_leads_to_a_section_though_those_before_it_are_not_laid_out(show, trained, width):
    tab = show(render_live(trained, LINES[0]), width)
    tab.wait_for_selector(".embeddings .heat")
    for number in (8, 3, 6):
        tab.locator("nav button").nth(number).click()
        for _ in range(50):
            top = tab.locator(".part h2").nth(number).evaluate("each => each.getBoundingClientRect().top")
            end = tab.evaluate("scrollY + innerHeight > document.documentElement.scrollHeight - 2")
            if 0 <= top < 200 or (end and top < 900):
                break
            time.sleep(0.1)
        assert 0 <= top < 200 or (end and top < 900), (number, top)
        assert tab.evaluate("document.activeElement.textContent") == tab.locator("nav button").nth(number).text_content()


def test_a_view_that_was_not_on_the_screen_is_of_the_new_sentence_when_it_comes_there(show, trained):
    tab = show(render_live(trained, LINES[0], "float32"))
    tab.wait_for_selector(".embeddings .heat")
    tab.locator("#live-text").fill(LINES[1])
    seen = look(trained, LINES[1])
    wait_for_translation(tab, seen.translation)
    tab.locator(".embeddings").scroll_into_view_if_needed()
    wait_for(tab, ".embeddings .heat .side .token", [token.piece for token in seen.source], "each => each.title")
    wait_for(tab, ".decoding .strip tr:nth-child(3) td .token", [step.written.piece for step in seen.steps], "each => each.title")
