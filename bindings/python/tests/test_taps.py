"""Hidden states: taps of any layer, and the rows behind the final norm."""
import json

import numpy
import pytest

import avocet
from conftest import ROOT

FIXTURES = ROOT / "tests/fixtures/models"


def states_of(path, ids, layers, **options):
    """{layer: [rows, width]} and the states after the final norm."""
    with avocet.Model(path) as model, \
            avocet.Engine(model, device="ref", sessions_max=1, context_max=len(ids),
                          rope_context=len(ids), taps=layers, **options) as engine, \
            engine.session() as session, engine.batch() as batch:
        batch.add(session, ids)
        engine.step(batch)
        return {layer: batch.tap(session, layer) for layer in layers}, batch.hidden(session)


def ids_of(path):
    return [int(id) for id in numpy.load(path / "ids.npy").ravel()]


def test_hidden_states_are_those_of_transformers():
    """What transformers computed for the fixture, after the final norm."""
    path = FIXTURES / "llama3"
    ids, wanted = ids_of(path), numpy.load(path / "hidden.npy")
    _, hidden = states_of(path, ids, [])
    assert hidden.shape == wanted.reshape(len(ids), -1).shape
    assert numpy.abs(hidden - wanted.reshape(hidden.shape)).max() < 1e-4


def test_the_last_tap_is_what_the_norm_gets():
    path = FIXTURES / "tinyllama"
    config = json.loads((path / "config.json").read_text())
    layers = config["num_hidden_layers"]
    taps, hidden = states_of(path, ids_of(path), [0, layers])
    last = taps[layers]
    normed = last / numpy.sqrt((last ** 2).mean(axis=1, keepdims=True) + config["rms_norm_eps"])
    ratio = hidden / normed  # the norm's weights: the same in every row
    assert numpy.allclose(ratio, ratio[0], rtol=1e-3)
    assert not numpy.allclose(taps[0], last)


def test_taps_of_rows(engine, model):
    ids = [5, 9, 12, 300]
    with avocet.Engine(model, sessions_max=2, context_max=64, taps=(0, 1, 2)) as tapped:
        with tapped.session() as one, tapped.session() as two, tapped.batch() as batch:
            batch.add(one, ids)
            batch.add(two, ids[:2])
            tapped.step(batch)
            for layer in (0, 1, 2):
                whole = batch.tap(one, layer)
                assert whole.shape == (4, model.info.width) and whole.dtype == numpy.float32
                assert (batch.tap(one, layer, 1, 2) == whole[1:3]).all()
                assert (batch.tap(one, layer, 3) == whole[3:]).all()
                assert (batch.tap(two, layer) == whole[:2]).all()
            assert (batch.hidden(one, 1, 1) == batch.hidden(one)[1:2]).all()
            kept = batch.tap(one, 1)
            before = kept.copy()
            batch.clear()
            batch.add(one, [7])
            tapped.step(batch)
            assert (kept == before).all() and batch.tap(one, 1).shape[0] == 1


def test_wrong_taps(engine, model):
    with engine.session() as session, engine.batch() as batch:
        batch.add(session, [5, 6])
        engine.step(batch)
        with pytest.raises(LookupError, match="layer 1 is not in taps"):
            batch.tap(session, 1)
        with pytest.raises(LookupError):
            batch.hidden(session, 5)
        with pytest.raises(LookupError):
            batch.hidden(session, 0, 99)
        with pytest.raises(ValueError, match="first"):
            batch.hidden(session, -1)
    for taps, kind in ((5, TypeError), ("12", TypeError), ([-1], ValueError), ([1.5], TypeError),
                       ([99], avocet.ArgumentError), ([1, 0], avocet.ArgumentError)):
        with pytest.raises(kind):
            avocet.Engine(model, sessions_max=1, taps=taps)


@pytest.mark.parametrize("name", ["llama2", "llama3", "qwen3", "smollm2", "gpt2", "opt",
                                  "phi3-short", "mistral", "gemma3"])
def test_taps_are_the_hidden_states_of_transformers(name):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    path = FIXTURES / name
    ids = ids_of(path)
    reference = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.no_grad():
        states = reference(torch.tensor([ids]), output_hidden_states=True).hidden_states
    layers = len(states) - 1  # the last one is after the final norm
    taps, hidden = states_of(path, ids, list(range(layers)))
    for layer in range(layers):
        wanted = states[layer][0].numpy()
        bound = 1e-4 * max(1.0, numpy.abs(wanted).max())
        assert numpy.abs(taps[layer] - wanted).max() < bound, layer
    bound = 1e-4 * max(1.0, numpy.abs(hidden).max())
    assert numpy.abs(hidden - states[-1][0].numpy()).max() < bound
