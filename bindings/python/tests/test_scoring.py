"""Prompts that are scored and embedded."""
import math

import pytest

import avocet

numpy = pytest.importorskip("numpy")

TEXT = "once upon a time there is the part of it"


def alone(model, engine, ids):
    """By logits of every position, one session."""
    with engine.session() as session, engine.batch() as batch:
        batch.add(session, ids, logits=len(ids))
        engine.step(batch)
        rows = numpy.array(batch.logits(session))
    rows = rows.astype(numpy.float64)
    rows -= rows.max(axis=1, keepdims=True)
    return rows - numpy.log(numpy.exp(rows).sum(axis=1, keepdims=True))


def test_prompt_logprobs(model_path):
    with avocet.Model(model_path) as model:
        ids = model.tokenize(TEXT, begin=True)
        with avocet.Engine(model, context_max=128, logits_max=len(ids)) as engine:
            wanted = alone(model, engine, ids)
        with avocet.Engine(model, context_max=128, sessions_max=3) as engine, \
                avocet.Scheduler(engine) as scheduler:
            result = scheduler.generate(prompt=TEXT, max_tokens=4, ignore_end=True,
                                        prompt_logprobs=True,
                                        sampling=avocet.Sampling(top_logprobs=2))
            plain = scheduler.generate(prompt=TEXT, max_tokens=4, ignore_end=True,
                                       sampling=avocet.Sampling(top_logprobs=2))
            assert plain.prompt == [] and plain.embedding is None
            assert [token.id for token in result.tokens] == [token.id for token in plain.tokens]
            assert [token.id for token in result.prompt] == ids
            assert "".join(token.text for token in result.prompt).strip() == TEXT
            assert math.isnan(result.prompt[0].logprob) and result.prompt[0].top == ()
            for i in range(1, len(ids)):
                token = result.prompt[i]
                assert abs(token.logprob - wanted[i - 1, ids[i]]) < 1e-4
                assert token.top[0][0] == wanted[i - 1].argmax() and len(token.top) == 2
            only = scheduler.generate(prompt=TEXT, answer=False, prompt_logprobs=True)
            assert only.finish == "length" and only.tokens == [] and only.new_tokens == 0
            assert [token.logprob for token in only.prompt[1:]] == \
                [token.logprob for token in result.prompt[1:]]


def test_embeddings(scheduler):
    width = scheduler.engine.model.info.width
    one = scheduler.embed(TEXT)
    assert one.shape == (width,) and one.dtype == numpy.float32
    many = scheduler.embed([TEXT, "again", TEXT], pooling="mean")
    assert many.shape == (3, width)
    assert (many[0] == one).all() and (many[2] == one).all() and (many[1] != one).any()
    last = scheduler.embed([TEXT], pooling="last")
    assert last.shape == (1, width) and (last[0] != one).any()
    ids = scheduler.engine.model.tokenize(TEXT, begin=True)
    assert (scheduler.embed(ids) == one).all()
    assert (scheduler.embed(ids[:1], pooling="last") == scheduler.embed(ids[:1])).all()
    unit = scheduler.embed([TEXT, "again"], normalise=True)
    assert numpy.allclose(numpy.linalg.norm(unit, axis=1), 1)
    assert scheduler.embed([]).shape == (0, width)


def test_wrong_wishes(scheduler):
    with pytest.raises(ValueError, match="pooling"):
        scheduler.embed("once", pooling="max")
    with pytest.raises(ValueError, match="pooling"):
        scheduler.generate(prompt="once", pooling="sum")
    with pytest.raises(avocet.ArgumentError, match="no_answer"):
        scheduler.generate(prompt="once", pooling="mean")
    with pytest.raises(avocet.AvocetError):
        scheduler.embed(["once", "word " * 5000])
