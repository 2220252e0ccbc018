"""Ctrl-C and other signals reach the caller and end what runs; leaving a stream cancels it."""
import gc
import os
import signal
import threading
import time

import pytest

import avocet
from command import PATIENCE, wait_until


@pytest.fixture
def long_scheduler(model_path):
    """Room for answers that take a while."""
    with avocet.Model(model_path) as model, \
            avocet.Engine(model, sessions_max=4, context_max=32768, threads=1) as engine, \
            avocet.Scheduler(engine) as scheduler:
        yield scheduler


LONG = {"prompt": "once", "max_tokens": 32000, "ignore_end": True}


def wait_cancelled(scheduler, count):
    """Until that many have been cancelled, and nothing runs."""
    def cancelled():
        info = scheduler.info
        assert info.finished == 0, "it went on to its end"
        return info.cancelled == count and info.running == 0 and info.waiting == 0
    wait_until(cancelled)


def test_leaving_a_loop_cancels(long_scheduler):
    for token in long_scheduler.submit(**LONG):
        break
    wait_cancelled(long_scheduler, 1)
    with pytest.raises(KeyError):
        for token in long_scheduler.submit(**LONG):
            raise KeyError
    wait_cancelled(long_scheduler, 2)


def test_closing_and_dropping_an_iterator_cancels(long_scheduler):
    tokens = iter(long_scheduler.submit(**LONG))
    next(tokens)
    tokens.close()
    with pytest.raises(StopIteration):
        next(tokens)
    wait_cancelled(long_scheduler, 1)
    iter(long_scheduler.submit(**LONG)).close()  # before its first token
    wait_cancelled(long_scheduler, 2)
    tokens = iter(long_scheduler.submit(**LONG))
    next(tokens)
    del tokens
    gc.collect()
    wait_cancelled(long_scheduler, 3)


def test_an_answer_is_a_context(long_scheduler):
    with long_scheduler.submit(**LONG) as answer:
        pass
    assert answer.result(timeout=PATIENCE).finish == "cancelled"
    with long_scheduler.submit(prompt="once", max_tokens=3, ignore_end=True) as answer:
        assert len(list(answer)) == 3
    assert answer.result(timeout=PATIENCE).finish == "length"
    assert [token.id for token in answer] == []  # walked already


def signal_when(condition, number=signal.SIGINT):
    """A thread that sends the signal as soon as the condition holds."""
    def watch():
        wait_until(condition)
        os.kill(os.getpid(), number)
    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def signal_after_work(seconds, number=signal.SIGINT):
    """After so much CPU time of this process, which the machine's load does not change."""
    end = time.process_time() + seconds
    return signal_when(lambda: time.process_time() > end, number)


def test_ctrl_c_in_generate_of_a_scheduler(long_scheduler):
    watch = signal_when(lambda: long_scheduler.info.running == 1)
    with pytest.raises(KeyboardInterrupt):
        long_scheduler.generate(**LONG)
    watch.join()
    wait_cancelled(long_scheduler, 1)


MANY = 130000  # tokens, of minutes


@pytest.fixture
def long_session(model_path):
    with avocet.Model(model_path) as model, \
            avocet.Engine(model, context_max=MANY + 1000, threads=1) as engine, \
            engine.session() as session:
        yield session


def test_ctrl_c_in_generate_of_a_session(long_session, capfd):
    handler = signal.getsignal(signal.SIGINT)
    for _ in range(5):  # wherever it lands
        watch = signal_after_work(0.03)
        with pytest.raises(KeyboardInterrupt):
            long_session.generate([5], max_tokens=MANY, ignore_end=True)
        watch.join()
        assert len(long_session) < MANY
        long_session.truncate(0)
    assert signal.getsignal(signal.SIGINT) is handler
    assert "ignored" not in capfd.readouterr().err
    assert long_session.generate([5], max_tokens=3, ignore_end=True).finish == "length"


def test_other_handlers_raise_or_do_not(long_session):
    class Alarm(Exception):
        pass

    def alarm(number, frame):
        raise Alarm
    heard = []
    old = signal.signal(signal.SIGALRM, alarm), signal.signal(
        signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.03)
        with pytest.raises(Alarm):
            long_session.generate([5], max_tokens=MANY, ignore_end=True)
        long_session.truncate(0)
        watch = signal_after_work(0.01, signal.SIGUSR1)
        whole = long_session.generate([5], max_tokens=2000, ignore_end=True)
        watch.join()
        assert whole.finish == "length" and heard == [signal.SIGUSR1]  # harmless: it goes on
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old[0])
        signal.signal(signal.SIGUSR1, old[1])


def test_ctrl_c_within_on_token(long_session):
    slept = []

    def wait(token):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(PATIENCE)
        slept.append(token)
    with pytest.raises(KeyboardInterrupt):
        long_session.generate([5], max_tokens=9, on_token=wait)
    assert not slept


def test_the_prompt_is_watched(long_session):
    seen = []
    long_session.generate([5] * 3000, max_tokens=1, ignore_end=True,
                          on_prefill=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (3000, 3000) and len(seen) > 1
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    long_session.truncate(0)
    ended = long_session.generate([5] * 3000, max_tokens=1, on_prefill=lambda done, total: False)
    assert ended.finish == "cancelled" and ended.new_tokens == 0
    assert len(long_session) < 3000
    long_session.truncate(0)
    with pytest.raises(KeyError):
        long_session.generate([5] * 3000, max_tokens=1, on_prefill=lambda done, total: {}[done])


def test_sessions_of_other_threads_know_no_signals(long_session):
    results = []
    thread = threading.Thread(target=lambda: results.append(
        long_session.generate([5], max_tokens=200, ignore_end=True).finish))
    thread.start()
    thread.join()
    assert results == ["length"]
