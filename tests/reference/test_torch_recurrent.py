"""Cells, encoders and convolutions equal torch's own layers with the same weights."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from undivided.config import ModelConfig
from undivided.core.ids import EOS, PAD
from undivided.models import make_model
from undivided.models.cells import CELLS, Recurrence, Weights
from undivided.models.convolutional import GatedConvolution

CELL = pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
FUSED = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
ONE = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}
SRC = torch.tensor([[5, 6, 7, 8, 9, 10, EOS], [11, 12, EOS, PAD, PAD, PAD, PAD], [13, 14, 15, 16, EOS, PAD, PAD]])


def begin(cell, batch, width):
    return tuple(torch.randn(batch, width) for _ in range(CELLS[cell].parts))


def written_out(layer, x, state):
    """A whole sequence by the written-out cell: outputs `B T D` and the last state."""
    outputs = []
    for token in x.unbind(1):
        state = layer.step(token, state)
        outputs.append(state[0])
    return torch.stack(outputs, dim=1), state


def parts_of(state):
    return state if isinstance(state, tuple) else (state,)


@CELL
def test_a_written_out_cell_equals_torchs_cell(cell):
    torch.manual_seed(0)
    theirs = ONE[cell](5, 7)
    x, state = torch.randn(3, 5), begin(cell, 3, 7)
    ours = CELLS[cell].written_out(x, state, Weights(*theirs.parameters()))
    wanted = parts_of(theirs(x, state if cell == "lstm" else state[0]))
    torch.testing.assert_close(ours, wanted, atol=1e-6, rtol=0)


@CELL
def test_a_written_out_sequence_equals_torchs_fused_layer(cell):
    """Outputs, last states, and the gradients of inputs, of first states and of every weight."""
    torch.manual_seed(0)
    theirs, layer = FUSED[cell](5, 7, batch_first=True), Recurrence(cell, 5, 7)
    layer.fused.load_state_dict(theirs.state_dict())
    x, first = torch.randn(3, 11, 5, requires_grad=True), [part.requires_grad_() for part in begin(cell, 3, 7)]
    outputs, last = written_out(layer, x, tuple(first))
    stacked = tuple(part[None] for part in first)
    wanted, wanted_last = theirs(x, stacked if cell == "lstm" else stacked[0])
    torch.testing.assert_close(outputs, wanted, atol=1e-6, rtol=0)
    torch.testing.assert_close(last, tuple(part[0] for part in parts_of(wanted_last)), atol=1e-6, rtol=0)
    ours = torch.autograd.grad(outputs.pow(3).sum(), [x, *first, *layer.fused.parameters()])
    grads = torch.autograd.grad(wanted.pow(3).sum(), [x, *first, *theirs.parameters()])
    torch.testing.assert_close(ours, grads, atol=1e-5, rtol=1e-4)


@CELL
def test_our_own_fused_path_equals_the_written_out_one(cell):
    torch.manual_seed(0)
    layer = Recurrence(cell, 5, 7)
    layer.initialise()
    x, first = torch.randn(3, 11, 5), begin(cell, 3, 7)
    torch.testing.assert_close(layer(x, first), written_out(layer, x, first)[0], atol=1e-6, rtol=0)
    zero = tuple(torch.zeros(3, 7) for _ in first)
    torch.testing.assert_close(layer(x), written_out(layer, x, zero)[0], atol=1e-6, rtol=0)


@CELL
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
def test_the_encoder_equals_torchs_deep_layer_over_packed_sequences(cell, bidirectional, layers):
    """Sentences of three lengths: states, and the final state of each sentence, which torch gives for each direction."""
    torch.manual_seed(0)
    changes = {"cell": cell, "bidirectional": bidirectional, "encoder_layers": layers, "decoder_layers": 1}
    ours = make_model(ModelConfig(kind="recurrent", d_model=6, d_hidden=8, **changes), 20, 20).eval()
    width = 4 if bidirectional else 8
    theirs = FUSED[cell](6, width, num_layers=layers, bidirectional=bidirectional, batch_first=True)
    for number, layer in enumerate(ours.encoder):
        for way, end in ((layer.ahead, ""), (getattr(layer, "back", None), "_reverse")):
            for name, weight in way.fused.named_parameters() if way is not None else ():
                getattr(theirs, name.replace("l0", f"l{number}{end}")).data.copy_(weight)
    real = SRC != PAD
    packed = pack_padded_sequence(ours.source_embedding(SRC), real.sum(dim=1), batch_first=True, enforce_sorted=False)
    with torch.no_grad():
        memory = ours.encode(SRC, real)
        outputs, last = theirs(packed)
    wanted, _ = pad_packed_sequence(outputs, batch_first=True)
    torch.testing.assert_close(memory.states[real], wanted[real], atol=1e-6, rtol=0)
    h = parts_of(last)[0].view(layers, -1, len(SRC), width)[-1]
    torch.testing.assert_close(ours.final_state(memory), torch.cat(list(h), dim=-1), atol=1e-6, rtol=0)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("causal", [False, True])
def test_a_gated_convolution_equals_torchs(k, causal):
    torch.manual_seed(0)
    layer = GatedConvolution(ModelConfig(kind="convolutional", d_model=6, kernel_width=k)).eval()
    before = k - 1 if causal else (k - 1) // 2
    x = torch.randn(2, 9, 6)
    weight = layer.both.weight.view(12, k, 6).transpose(1, 2)
    padded = F.pad(x.transpose(1, 2), (before, k - 1 - before))
    wanted = F.glu(F.conv1d(padded, weight, layer.both.bias), dim=1).transpose(1, 2)
    torch.testing.assert_close(layer(x, before), wanted, atol=1e-6, rtol=0)
