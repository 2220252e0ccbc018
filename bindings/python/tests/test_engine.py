import threading

import numpy
import pytest

import avocet


def answer(session, ids, **options):
    return [token.id for token in session.generate(ids, max_tokens=12, ignore_end=True,
                                                   **options).tokens]


def test_logits_are_not_copied_and_right(model, engine):
    ids = model.tokenize("once upon a time", begin=True)
    with engine.session() as whole, engine.session() as parts, engine.batch() as batch:
        batch.add(whole, ids, logits=len(ids))
        batch.add(parts, ids[:3], logits=0)
        engine.step(batch)
        view = batch.logits(whole)
        assert view.shape == (len(ids), model.info.vocabulary)
        assert not view.flags.writeable and not view.flags.owndata
        with pytest.raises(LookupError):
            batch.logits(parts)
        expected = view.copy()
        batch.clear()
        batch.add(parts, numpy.array(ids[3:], dtype=numpy.int32), logits=len(ids) - 3)
        engine.step(batch)
        assert (batch.logits(parts) == expected[3:]).all()  # bit for bit
        assert whole.tokens == ids and len(parts) == len(ids)


def test_generation_fork_and_truncation(model, engine):
    ids = model.tokenize("once upon", begin=True)
    with engine.session() as session:
        first = session.generate(ids, max_tokens=12, ignore_end=True)
        assert first.finish == "length" and len(first.tokens) == first.new_tokens == 12
        session.truncate(len(ids))
        with session.fork() as fork:
            session.truncate(len(ids) - 1)
            assert answer(session, ids[-1:]) == [token.id for token in first.tokens]
            fork.truncate(len(ids) - 1)
            assert answer(fork, ids[-1:]) == [token.id for token in first.tokens]


def test_results_name_their_stop(model, engine):
    ids = model.tokenize("once upon", begin=True)
    with engine.session() as session:
        whole = session.generate(ids, max_tokens=12, ignore_end=True)
        assert whole.stop_token is whole.stop_index is whole.stop_string is None
        session.truncate(0)
        last = whole.tokens[5].id
        stopped = session.generate(ids, max_tokens=12, ignore_end=True, stop_tokens=[last])
        assert stopped.finish == "stop_token" and stopped.stop_token == last
        session.truncate(0)
        text = next((token.text for token in whole.tokens if token.text.strip("\ufffd")), None)
        if text is not None:
            stopped = session.generate(ids, max_tokens=12, ignore_end=True,
                                       stop=["never in it", text])
            assert stopped.finish == "stop_string" and stopped.stop_token is None
            assert (stopped.stop_index, stopped.stop_string) == (1, text)


def test_save_and_restore(model, engine, tmp_path):
    ids = model.tokenize("once upon a time once upon a time", begin=True)
    with engine.session() as session, engine.session() as restored:
        session.generate(ids, max_tokens=5, ignore_end=True)
        session.save(tmp_path / "session")
        restored.restore(tmp_path / "session")
        assert restored.tokens == session.tokens
        assert answer(restored, ()) == answer(session, ())
    (tmp_path / "session").write_bytes((tmp_path / "session").read_bytes()[:-9])
    with engine.session() as broken, pytest.raises(avocet.AvocetError):
        broken.restore(tmp_path / "session")


def test_on_token_ends_and_raises(model, engine):
    ids = model.tokenize("once", begin=True)
    with engine.session() as session:
        seen = []
        result = session.generate(ids, max_tokens=9, ignore_end=True,
                                  on_token=lambda token: seen.append(token) or len(seen) < 3)
        assert result.finish == "cancelled" and len(seen) == 3
    with engine.session() as session, pytest.raises(KeyError):
        session.generate(ids, max_tokens=9, on_token=lambda token: {}["no"])


def test_wrong_arguments(model, engine):
    with engine.session() as session, engine.batch() as batch:
        with pytest.raises(avocet.ArgumentError, match="must be 0 to"):
            batch.add(session, [-1])
        with pytest.raises(avocet.ContextError):
            session.generate([5] * 500)
        with pytest.raises(avocet.ArgumentError, match="temperature"):
            session.generate([5], sampling=avocet.Sampling(temperature=float("nan")))


def test_threads_share_an_engine(model, engine):
    ids = model.tokenize("once upon", begin=True)
    with engine.session() as session:
        expected = answer(session, ids)
    results = []

    def work():
        with engine.session() as own:
            results.append(answer(own, ids))
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 6


def test_logits_outlive_their_engine(model_path):
    with avocet.Model(model_path) as model, avocet.Engine(model) as engine, \
            engine.session() as session, engine.batch() as batch:
        batch.add(session, model.tokenize("once", begin=True))
        engine.step(batch)
        view = batch.logits(session)
        expected = view.copy()
    assert engine.closed and model.closed
    assert (view == expected).all()


def test_the_default_is_several_sessions(model):
    context = model.info.context
    with avocet.Engine(model) as engine:
        sessions = [engine.session() for _ in range(8)]
        assert engine.kv.pages * engine.kv.page_tokens >= min(8 * context, 32768)
        with pytest.raises(avocet.FullError, match="sessions_max"):
            engine.session()
        for session in sessions:
            session.close()
    with avocet.Engine(model, context_max=1024) as engine, avocet.Scheduler(engine) as scheduler:
        results = scheduler.batch(["once"] * 8, max_tokens=800, ignore_end=True)
        assert all(result.new_tokens == 800 for result in results)
        assert scheduler.info.steps < 4 * 800  # together, not one after another
    with avocet.Engine(model, sessions_max=1) as engine, engine.session():
        with pytest.raises(avocet.FullError, match="sessions_max"):
            engine.session()


def test_the_default_fits_the_memory(model):
    """What a small memory has no room for is left out, and never refused."""
    one, many = avocet.plan(model, sessions_max=1), avocet.plan(model)
    assert many.kv_pages > one.kv_pages

    def taken(plan):
        return plan.kv_bytes + plan.scratch_bytes + plan.session_bytes + plan.draft_bytes + \
            plan.repack_bytes
    for room in range(taken(one), taken(many), max((taken(many) - taken(one)) // 8, 1)):
        fitted = avocet.plan(model, memory_max=room)
        assert taken(fitted) - fitted.repack_bytes <= room and fitted.context_max == one.context_max
        with avocet.Engine(model, memory_max=room) as engine, engine.session() as session:
            assert session.generate([5], max_tokens=2, ignore_end=True).new_tokens == 2
    assert avocet.plan(model, context_max=64, kv_tokens=640).kv_pages == \
        avocet.plan(model, context_max=64, kv_tokens=640, sessions_max=8).kv_pages


def test_integers_do_not_wrap(model, engine):
    with engine.session() as session, engine.batch() as batch:
        for ids in ([2 ** 32 + 5], numpy.array([1, 2 ** 32 + 3]), numpy.array([1.5])):
            with pytest.raises(ValueError, match="32-bit"):
                batch.add(session, ids)
        with pytest.raises(ValueError, match="length"):
            session.truncate(2 ** 32)
        with pytest.raises(ValueError, match="max_new_tokens"):
            session.generate([5], max_tokens=-1)
    with pytest.raises(ValueError, match="context_max"):
        avocet.Engine(model, context_max=2 ** 32 + 64)


def test_a_draft_model_changes_no_token(model):
    ids = model.tokenize("once upon a time", begin=True)
    with avocet.Engine(model, speculate="off", context_max=128) as plain:
        with plain.session() as session:
            expected = answer(session, ids)
    with avocet.Engine(model, speculate="model", draft_controller="fixed", draft_model=model,
                       context_max=128) as engine, engine.session() as session:
        result = session.generate(ids, max_tokens=12, ignore_end=True)
        assert [token.id for token in result.tokens] == expected
        assert result.drafted_tokens > 0  # it agrees with itself
        assert result.accepted_tokens == result.drafted_tokens
    with pytest.raises(TypeError):
        avocet.Engine(model, draft_model="a path")


def test_an_early_exit_changes_no_token(model):
    ids = model.tokenize("once upon a time", begin=True)
    with avocet.Engine(model, speculate="off", context_max=128) as plain:
        with plain.session() as session:
            expected = answer(session, ids)
    with avocet.Model("exit:1", draft_of=model) as draft:
        assert draft.info.layers == 1
        with avocet.Engine(model, speculate="model", draft_controller="fixed", draft_model=draft,
                           context_max=128) as engine, engine.session() as session:
            result = session.generate(ids, max_tokens=12, ignore_end=True)
            assert [token.id for token in result.tokens] == expected
            assert result.drafted_tokens > 0
    with pytest.raises(ValueError, match="exit:N"):
        avocet.Model("exit:0", draft_of=model)
    with pytest.raises(TypeError):
        avocet.Model("exit:1", draft_of="a path")
