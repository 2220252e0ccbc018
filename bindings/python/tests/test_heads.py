"""Draft heads: they save steps and change no token, and fit one model only."""
import numpy
import pytest

import avocet
from conftest import ROOT

BASE = ROOT / "tests/fixtures/models/smollm2"
TINY = ROOT / "tests/fixtures/heads/tiny"
KINDS = {"f32-medusa": "medusa", "q8-medusa": "medusa", "f32-eagle": "eagle",
         "deep-eagle": "eagle", "f32-layers": "layers", "q4-layers": "layers"}


def answer(model, temperature=0.0, **options):
    prompt = [int(id) for id in numpy.load(BASE / "ids.npy").ravel()][:12]
    with avocet.Engine(model, context_max=64, threads=1, device="ref", **options) as engine, \
            engine.session() as session:
        return session.generate(prompt, max_tokens=24, ignore_end=True,
                                sampling=avocet.Sampling(temperature=temperature, seed=7))


def ids_of(result):
    return [token.id for token in result.tokens]


@pytest.mark.parametrize("name", KINDS)
def test_the_same_ids_as_without(name):
    with avocet.Model(BASE) as model, \
            avocet.Heads(model, TINY / f"{name}.safetensors") as heads:
        for temperature in (0.0, 1.0):
            without = answer(model, temperature, speculate="off")
            drafted = answer(model, temperature, speculate=KINDS[name], draft_controller="fixed",
                             draft_heads=[heads])
            assert without.drafted_tokens == 0 and drafted.drafted_tokens > 0
            assert len(ids_of(without)) == 24 and ids_of(drafted) == ids_of(without)


def test_several_kinds_and_auto():
    with avocet.Model(BASE) as model, \
            avocet.Heads(model, TINY / "q8-medusa.safetensors") as medusa, \
            avocet.Heads(model, TINY / "q8-eagle.safetensors") as eagle:
        wanted = ids_of(answer(model, speculate="off"))
        assert ids_of(answer(model, draft_heads=[medusa, eagle])) == wanted
        with pytest.raises(avocet.ArgumentError):
            answer(model, draft_heads=[medusa, medusa])


def test_what_is_refused(model, heads):
    with pytest.raises(avocet.ArgumentError, match="another model"):
        avocet.Heads(model, TINY / "q8-medusa.safetensors")
    with pytest.raises(avocet.ArgumentError):
        avocet.Engine(model, context_max=64, threads=1, draft_heads=[heads])
    with pytest.raises(avocet.ArgumentError, match="no such draft heads"):
        avocet.Engine(model, context_max=64, threads=1, speculate="medusa")
    with avocet.Model(BASE) as base:
        with pytest.raises(avocet.FormatError, match="no draft heads"):
            avocet.Heads(base, BASE / "model.safetensors")
        with pytest.raises(avocet.AvocetError, match="nowhere"):
            avocet.Heads(base, "/nowhere.safetensors")
