import threading

import pytest

import avocet
from command import PATIENCE

PROMPTS = ["once upon a time", "the", "a time", "upon", "once", " a the a the"]


def alone(model_path, prompts, **options):
    """The same requests one by one, without a scheduler."""
    texts = []
    with avocet.Model(model_path) as model, avocet.Engine(model, context_max=128) as engine:
        for prompt in prompts:
            with engine.session() as session:
                texts.append(session.generate(model.tokenize(prompt, begin=True), **options).text)
    return texts


def test_batch_equals_one_by_one(model_path, scheduler):
    sampling = avocet.Sampling(temperature=0.9, top_p=0.9, seed=5)
    expected = alone(model_path, PROMPTS, max_tokens=20, sampling=sampling, ignore_end=True)
    results = scheduler.batch(PROMPTS, sampling, max_tokens=20, ignore_end=True)
    assert [result.text for result in results] == expected
    assert all(result.finish == "length" and result.new_tokens == 20 for result in results)


def test_streaming_and_result(scheduler):
    answer = scheduler.submit(prompt="once upon", max_tokens=10, ignore_end=True)
    text = "".join(token.text for token in answer)
    result = answer.result(timeout=PATIENCE)
    assert result.text == text and len(result.tokens) == 10 and answer.done
    assert not answer.cancel()


def test_tokens_of_many_come_as_they_are_made(scheduler):
    texts, ended = {}, {}
    for index, thing in scheduler.stream(PROMPTS, max_tokens=12, ignore_end=True, tokens=True):
        assert index not in ended
        if isinstance(thing, avocet.Token):
            texts[index] = texts.get(index, "") + thing.text
        else:
            ended[index] = thing
    assert {index: result.text for index, result in ended.items()} == texts
    assert sorted(ended) == list(range(len(PROMPTS)))


def test_cancelling(model_path):
    with avocet.Model(model_path) as model, \
            avocet.Engine(model, sessions_max=1, context_max=131072) as engine, \
            avocet.Scheduler(engine) as scheduler:
        first = scheduler.submit(prompt="once", max_tokens=130000, ignore_end=True)  # of minutes
        second, third = (scheduler.submit(prompt="once", max_tokens=9, ignore_end=True)
                         for _ in range(2))
        for answer in (second, first):  # one that waits for the only place, and one that has it
            assert answer.cancel()
            assert answer.result(timeout=PATIENCE).finish == "cancelled"
        assert third.result(timeout=PATIENCE).finish == "length"
        seen = [next(scheduler.stream(["once"] * 5, max_tokens=3, ignore_end=True))]
        assert len(seen) == 1  # whoever stops listening cancels the rest


def test_closing_beside_other_calls(engine):
    scheduler = avocet.Scheduler(engine)
    answers, ended = [], []

    def work():
        try:
            while True:
                try:
                    answers.append(scheduler.submit(prompt="once", max_tokens=50, ignore_end=True))
                except avocet.FullError:
                    scheduler.drain(PATIENCE)
        except ValueError:
            ended.append(True)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    scheduler.close()
    for thread in threads:
        thread.join(timeout=PATIENCE)
        assert not thread.is_alive()
    assert all(answer.result(timeout=PATIENCE).finish in ("cancelled", "length")
               for answer in answers)
    assert not scheduler._answers and len(ended) == 4


def test_one_bad_request_fails_alone(scheduler):
    results = scheduler.batch([avocet.Request(prompt="once"), avocet.Request(prompt=[10 ** 6]),
                               avocet.Request(prompt=[5] * 1000), avocet.Request(prompt="the")],
                              max_tokens=4, ignore_end=True)
    assert isinstance(results[0], avocet.Result) and isinstance(results[3], avocet.Result)
    assert isinstance(results[1], avocet.AvocetError)
    assert isinstance(results[2], avocet.ContextError)
    with pytest.raises(ValueError):
        scheduler.submit(avocet.Request())
    mixed = scheduler.batch([avocet.Request(), "once", avocet.Request(prompt="zero\0byte"),
                             avocet.Request(prompt="x", adapters=[5]), [2 ** 40]],
                            max_tokens=2, ignore_end=True)
    assert [isinstance(outcome, avocet.Result) for outcome in mixed] == [False, True, False, False,
                                                                         False]
    assert all(isinstance(outcome, avocet.ArgumentError) for outcome in mixed
               if not isinstance(outcome, avocet.Result))


def test_adapters_by_object_and_name(model, engine, adapter_paths):
    with avocet.Registry(model) as registry:
        registry.load("one", adapter_paths[0])
        one = registry.take("one")
        with avocet.Scheduler(engine, registry=registry) as scheduler:
            base, by_object, by_name, missing = scheduler.batch(
                [avocet.Request(prompt="once"), avocet.Request(prompt="once", adapters=[one]),
                 avocet.Request(prompt="once", adapters=["one"]),
                 avocet.Request(prompt="once", adapters=["other"])],
                max_tokens=12, ignore_end=True)
            assert by_object.text == by_name.text != base.text
            assert isinstance(missing, avocet.NotFoundError)
        one.close()


def test_nothing_new_while_draining(scheduler):
    assert scheduler.drain(5.0)
    outcomes = scheduler.batch(["once", "the"])
    assert all(isinstance(outcome, avocet.FullError) for outcome in outcomes)


def test_the_engine_is_the_schedulers(engine):
    with engine.session(), pytest.raises(ValueError, match="open sessions"):
        avocet.Scheduler(engine)
    with avocet.Scheduler(engine):
        with pytest.raises(ValueError, match="Scheduler"):
            engine.session()
    engine.session().close()


def test_many_threads_submit(scheduler):
    expected = scheduler.generate(prompt="once", max_tokens=16, ignore_end=True).text
    texts = []

    def work():
        for _ in range(5):
            texts.append(scheduler.generate(prompt="once", max_tokens=16, ignore_end=True).text)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [expected] * 40
    info = scheduler.info
    assert info.finished == 41 and info.running == 0 and info.new_tokens == 41 * 16


def test_a_full_queue_says_when(model_path):
    with avocet.Model(model_path) as model, \
            avocet.Engine(model, sessions_max=1, context_max=128) as engine, \
            avocet.Scheduler(engine, waiting_max=2) as scheduler:
        answers = []
        with pytest.raises(avocet.FullError) as caught:
            for _ in range(200):
                answers.append(scheduler.submit(prompt="once", max_tokens=100, ignore_end=True))
        assert caught.value.retry_seconds > 0
        results = scheduler.batch(["once"] * 12, max_tokens=3, ignore_end=True)  # waits its turn
        assert all(isinstance(result, avocet.Result) for result in results)
        assert scheduler.drain(30.0)
        assert all(answer.result(1.0).new_tokens == 100 for answer in answers)


def test_speculation(model, tmp_path):
    """Answers do not depend on it, results count it, and a corpus outlives its scheduler."""
    ids, path = [5, 40, 17, 9, 33, 21, 8, 50], tmp_path / "drafts"
    answers = {}
    for speculate in ("off", None, "corpus", "corpus"):
        with avocet.Engine(model, sessions_max=2, context_max=128, speculate=speculate,
                           draft_tokens=7, draft_controller="fixed") as engine:
            corpus = path if speculate == "corpus" else None
            with avocet.Scheduler(engine, draft_corpus=corpus) as scheduler:
                result = scheduler.generate(prompt=ids, max_tokens=40, ignore_end=True)
                plain = scheduler.generate(prompt=ids, max_tokens=40, ignore_end=True,
                                           speculation="off")
                assert plain.drafted_tokens == plain.accepted_tokens == 0
                assert [token.id for token in plain.tokens] == [token.id for token in result.tokens]
                assert scheduler.info.accepted_tokens == result.accepted_tokens
                if corpus is not None:
                    scheduler.save_corpus(corpus)
                elif speculate == "off":
                    with pytest.raises(avocet.ArgumentError, match="corpus"):
                        scheduler.save_corpus(path)
            answers.setdefault(speculate, []).append(result)
    tokens = {tuple(token.id for token in one.tokens) for group in answers.values()
              for one in group}
    assert len(tokens) == 1
    again = answers["corpus"][1]
    assert again.accepted_tokens > 20
    assert 0 <= sum(token.drafted for token in again.tokens) - again.accepted_tokens <= 1
    with avocet.Engine(model, sessions_max=1, context_max=128) as engine:
        with engine.session() as session:
            with pytest.raises(avocet.ArgumentError, match="magic"):
                session.generate(ids, max_tokens=2, speculation="magic")
            with pytest.raises(avocet.ArgumentError, match="draft_tokens"):
                session.generate(ids, max_tokens=2, draft_tokens=99)
    with pytest.raises(avocet.ArgumentError, match="speculate"):
        avocet.Engine(model, speculate="magic")
