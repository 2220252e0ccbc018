"""Closing beside calls that are inside, from other threads and from callbacks."""
import ctypes
import gc
import subprocess
import sys
import threading
import time

import pytest

import avocet
from avocet import _abi
from avocet._library import Native, call, library
from command import PATIENCE
from conftest import write_adapter


def beside(work, *threads):
    """Calls `work` in a thread, the others meanwhile; what it returned or raised."""
    outcome = []

    def run():
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)
    first = threading.Thread(target=run, daemon=True)
    first.start()
    for other in threads:
        other()
    first.join(timeout=PATIENCE)
    assert not first.is_alive()
    return outcome[0]


def beside_close(work, close):
    """Calls `work` until that says ValueError, whatever it calls is closed; how often it worked."""
    begun = threading.Event()

    def until_closed():
        count = 0
        try:
            while True:
                work()
                count += 1
                begun.set()
        except ValueError as error:
            assert "closed" in str(error), error
        return count

    def shortly():
        assert begun.wait(PATIENCE)
        time.sleep(0.003)  # somewhere in the middle of a later one
        close()
    count = beside(until_closed, shortly)
    assert isinstance(count, int) and count > 0


def test_measuring_beside_close(model):
    rate = None
    while not isinstance(rate, float):  # or the close came before the call
        assert rate is None or isinstance(rate, ValueError) and "closed" in str(rate)
        engine = avocet.Engine(model, context_max=128, threads=2)
        rate = beside(engine.measure, lambda: time.sleep(0.1), engine.close)
    assert rate > 0 and engine.closed
    with pytest.raises(ValueError, match="closed"):
        engine.measure()


def test_tokenizing_beside_close(model_path):
    for _ in range(60):
        model = avocet.Model(model_path)
        text = "once upon a time " * 400
        beside_close(lambda: model.tokenize(text), model.close)


def test_telemetry_beside_close():
    for _ in range(60):
        telemetry = avocet.Telemetry()

        def ask():
            telemetry.snapshot()
            with telemetry.tracing():
                telemetry.trace(1.0)
        beside_close(ask, telemetry.close)


def test_a_registry_beside_close(model, adapter_paths):
    for _ in range(30):
        registry = avocet.Registry(model)
        taken = []

        def turn():
            registry.load("one", adapter_paths[0])
            taken.append(registry.take("one"))
            registry.list()
        beside_close(turn, registry.close)
        assert all(adapter.info.modules_matched > 0 for adapter in taken)


def test_an_adapter_beside_close(model, engine, adapter_paths):
    with avocet.Scheduler(engine) as scheduler:
        for _ in range(40):
            adapter = avocet.Adapter(model, adapter_paths[0])

            def turn():
                scheduler.generate(prompt="once", adapters=[adapter], max_tokens=2)
                assert adapter.info.digest and adapter.modules
            beside_close(turn, adapter.close)
        assert scheduler.drain(PATIENCE)


def test_everything_is_closed_beside_a_generation(model_path):
    for _ in range(10):
        model = avocet.Model(model_path)
        engine = avocet.Engine(model, context_max=128, threads=1)
        session = engine.session()
        begun = threading.Event()
        ids = model.tokenize("once", begin=True)
        result = beside(lambda: session.generate(ids, max_tokens=60, ignore_end=True,
                                                 on_token=lambda token: begun.set()),
                        lambda: begun.wait(PATIENCE), session.close, engine.close, model.close)
        assert result.new_tokens == 60 and session.closed and engine.closed and model.closed


def test_closing_inside_a_callback(model_path):
    for close in ("session", "engine", "model"):
        with avocet.Model(model_path) as model, \
                avocet.Engine(model, context_max=128, threads=1) as engine, \
                engine.session() as session:
            ids = model.tokenize("once", begin=True)
            opened = {"session": session, "engine": engine, "model": model}[close]
            result = session.generate(ids, max_tokens=9, ignore_end=True,
                                      on_token=lambda token: opened.close())
            assert result.new_tokens == 9 and session.closed


def test_sessions_come_and_go_in_threads(model):
    """More threads than sessions: a closed one is free for the next at once."""
    wrong = []
    turn = threading.Lock()  # logits are there until the engine's next step, whoever asks for it
    with avocet.Engine(model, context_max=64, sessions_max=4, threads=1) as engine:
        ids = model.tokenize("once", begin=True)

        def work():
            try:
                for _ in range(15):
                    with engine.session() as session, engine.batch() as batch:
                        batch.add(session, ids)
                        with turn:
                            engine.step(batch)
                            assert len(batch.logits(session)) == 1
                    engine.session()  # left to the garbage collector
            except BaseException as error:
                wrong.append(error)
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            gc.collect()
        assert not wrong
        assert engine.kv.pages_used == 0


def test_a_kept_exception_keeps_nothing_open(model):
    with avocet.Engine(model, context_max=64, sessions_max=1) as engine:
        session = engine.session()
        with pytest.raises(avocet.ContextError) as kept:
            session.generate([5] * 500)
        session.close()
        engine.session().close()
        assert kept.value.__traceback__ is not None


def test_natives_are_freed(model_path):
    def alive():
        gc.collect()
        return sum(isinstance(thing, Native) for thing in gc.get_objects())
    before = alive()
    with avocet.Model(model_path) as model, avocet.Engine(model) as engine, \
            engine.session() as session:
        session.generate([5], max_tokens=2)
        assert not engine._turn._late
    assert alive() == before


def test_one_scheduler_an_engine(engine):
    with avocet.Scheduler(engine):
        with pytest.raises(ValueError, match="a Scheduler uses"):
            avocet.Scheduler(engine)
        with pytest.raises(ValueError, match="a Scheduler uses"):
            engine.measure()
        handle, options = _abi.Handle(), _abi.SchedulerOptions()
        with pytest.raises(avocet.ArgumentError, match="a scheduler uses the engine"):
            call(library.avo_scheduler_open, engine.handle, ctypes.byref(options),
                 ctypes.byref(handle))
        assert not handle
        rate = ctypes.c_double()
        with pytest.raises(avocet.ArgumentError, match="a scheduler uses the engine"):
            call(library.avo_engine_measure, engine.handle, ctypes.byref(rate))
    engine.session().close()


def test_who_waits_for_an_engine_asks_again(engine):
    """A call that waits for its turn finds a scheduler when that comes."""
    entered = threading.Event()
    waiting = []

    def wait():
        entered.set()
        return engine.session()
    with engine._turn:
        outcome = []

        def run():
            try:
                outcome.append(wait())
            except ValueError as error:
                outcome.append(error)
        thread = threading.Thread(target=run)
        thread.start()
        assert entered.wait(PATIENCE)
        time.sleep(0.05)
        waiting.append(avocet.Scheduler(engine))
    thread.join(timeout=PATIENCE)
    assert not thread.is_alive()
    assert isinstance(outcome[0], ValueError) and "a Scheduler uses" in str(outcome[0])
    waiting[0].close()


def test_progress_raises(model_path):
    with pytest.raises(KeyError, match="mine"):
        avocet.Model(model_path, progress=lambda *_: {}["mine"])
    with pytest.raises(avocet.CancelledError):
        avocet.Model(model_path, progress=lambda *_: False)


def test_a_stream_that_nobody_hears(scheduler):
    for _ in range(20):
        stream = scheduler.stream(["once"] * 12, max_tokens=100, ignore_end=True)
        next(stream)
        stream.close()
    with pytest.raises(RuntimeError, match="mine"):
        for _index, _outcome in scheduler.stream(["once"] * 12, max_tokens=100, ignore_end=True):
            raise RuntimeError("mine")
    gc.collect()
    assert scheduler.drain(PATIENCE)
    assert not scheduler._answers and scheduler.info.running == 0


EXIT = """
import sys, threading
sys.path[:0] = {paths!r}
import avocet
model = avocet.Model({model!r})
telemetry = avocet.Telemetry()
registry = avocet.Registry(model)
registry.load("one", {adapter!r})
taken = registry.take("one")
served = avocet.Engine(model, context_max=128, sessions_max=4, threads=1, telemetry=telemetry)
scheduler = avocet.Scheduler(served, registry=registry)
answers = [scheduler.submit(prompt="once", max_tokens=100, ignore_end=True, adapters=["one"])
           for _ in range(8)]
stream = scheduler.stream(["once"] * 8, max_tokens=100)
next(stream)
engine = avocet.Engine(model, context_max=128, threads=2)
session, batch = engine.session(), engine.batch()
batch.add(session, [5])
engine.step(batch)
view = batch.logits(session)
other = avocet.Engine(model, context_max=128, threads=1)
own = other.session()
def work():
    while True:
        own.truncate(0)
        own.generate([5], max_tokens=50, ignore_end=True, on_token=lambda token: None)
threading.Thread(target=work, daemon=True).start()
threading.Thread(target=lambda: list(answers[0]), daemon=True).start()
{end}
"""


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)", "del model, registry, engine",
                                 "globals()['cycle'] = [globals()]"])
def test_the_interpreter_ends_with_everything_open(model_path, tmp_path, end):
    adapter = write_adapter(tmp_path / "adapter", 3)
    code = EXIT.format(paths=sys.path, model=str(model_path), adapter=str(adapter), end=end)
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                               timeout=PATIENCE, check=False)
        assert ended.returncode == 0 and ended.stderr == "", ended.stderr


def test_nothing_is_called_back_after_the_end(model_path):
    """Daemons that generate, or would again, are outside the library when Python goes; a handler of
    atexit may still use it."""
    code = f"""
import atexit, sys, threading
sys.path[:0] = {sys.path!r}
begun = threading.Event()
def last():  # behind ours, which is registered later
    from avocet import _ending
    with engines[0].session() as session:
        print(_ending._inside, session.generate([5], max_tokens=3, ignore_end=True).new_tokens)
atexit.register(last)
import avocet
model = avocet.Model({str(model_path)!r})
engines = [avocet.Engine(model, context_max=128, sessions_max=2, threads=1) for _ in range(3)]
def work(engine):
    session = engine.session()
    while True:
        session.truncate(0)
        session.generate([5], max_tokens=100, ignore_end=True, on_token=lambda token: begun.set())
for engine in engines:
    threading.Thread(target=work, args=(engine,), daemon=True).start()
begun.wait()
"""
    for _ in range(5):
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                               timeout=PATIENCE, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0 3\n", "")
