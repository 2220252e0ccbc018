"""Requests of tests/golden/answers.py through the Python package: sessions that are continued,
forked, truncated, saved, restored and used as a ring, and requests to a scheduler.

usage: golden_sessions.py ISA     in the folder of golden_models; prints lines "name answer"
"""
import hashlib
import os
import sys

from golden_requests import VARIABLES

NAMES = ["generate", "continued", "forked", "truncated", "saved-file", "restored", "reused", "ring",
         "ring-file", "adapters", "stopped", "grammar", "token-events", "batch", "stream", "embed",
         "chat", "chat-tokens", "chat-variables", "chat-closed"]


def shown(result):
    """An answer without timings, as one line."""
    tokens = " ".join(f"{token.id}:{token.text!r}:{token.index}:{token.logprob!r}:{token.top!r}"
                      for token in result.tokens)
    return f"{result.text!r} {result.finish} {result.prompt_tokens} {result.new_tokens} {tokens}"


def file_digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class Sessions:
    def __init__(self, avocet, folder):
        self.avocet = avocet
        self.folder = folder
        self.model = avocet.Model("bytes")
        self.engine = avocet.Engine(self.model, sessions_max=8, context_max=256, threads=2)
        self.greedy = avocet.Sampling(top_logprobs=2)
        self.hot = avocet.Sampling(temperature=1.0, seed=6, top_logprobs=1)
        self.ids = self.model.tokenize("The tide is out and the birds walk far out. ")

    def timelines(self):
        session = self.engine.session()
        yield shown(session.generate(self.ids, max_tokens=30, ignore_end=True,
                                     sampling=self.greedy))
        yield shown(session.generate(self.ids[:9], max_tokens=9, ignore_end=True,
                                     sampling=self.hot))
        fork = session.fork()
        yield shown(fork.generate(self.ids[:3], max_tokens=9, ignore_end=True,
                                  sampling=self.hot)) + " " + shown(
            session.generate(self.ids[3:6], max_tokens=9, ignore_end=True, sampling=self.hot))
        session.truncate(37)
        yield shown(session.generate(self.ids[:4], max_tokens=9, ignore_end=True,
                                     sampling=self.greedy)) + f" {session.tokens}"
        path = os.path.join(self.folder, "session")
        session.save(path)
        yield file_digest(path)
        again = self.engine.session()
        again.restore(path)
        yield shown(again.generate((), max_tokens=12, ignore_end=True,
                                   sampling=self.hot)) + f" {again.tokens}"
        other = self.engine.session()
        found = other.reuse(self.ids)
        yield f"{found} " + shown(other.generate(self.ids[found:], max_tokens=9, ignore_end=True,
                                                 sampling=self.greedy))
        for one in (session, fork, again, other):
            one.close()

    def rings(self):
        ring = self.engine.session(ring_window=64, ring_keep=8)
        yield shown(ring.generate(self.ids, max_tokens=150, ignore_end=True,
                                  sampling=self.hot)) + f" {ring.tokens}"
        path = os.path.join(self.folder, "ring")
        ring.save(path)
        yield file_digest(path)
        ring.close()

    def constrained(self):
        one = self.avocet.Adapter(self.model, "one")
        two = self.avocet.Adapter(self.model, "two")
        with self.engine.session([one, (two, 0.5)]) as session:
            yield shown(session.generate(self.ids, max_tokens=9, ignore_end=True,
                                         sampling=self.greedy))
        with self.engine.session() as session:
            yield shown(session.generate(self.ids, max_tokens=60, stop=["e", "A", "zz"],
                                         stop_tokens=[80], sampling=self.hot))
        with self.engine.session() as session:
            yield shown(session.generate(self.ids, max_tokens=40, sampling=self.hot, schema={
                "type": "array", "items": {"type": "integer"}, "maxItems": 3}))
        with self.engine.session() as session:
            seen = []
            session.generate(self.ids, max_tokens=20, ignore_end=True, sampling=self.hot,
                             on_token=lambda token: seen.append(token) or len(seen) < 7)
            yield repr([(token.id, token.text) for token in seen])

    def scheduled(self):
        request = self.avocet.Request
        requests = [request(prompt="The sea", sampling=self.hot),
                    request(prompt=self.ids, sampling=self.greedy, stop=["a"]),
                    request(messages=[{"role": "user", "content": "hi"}], sampling=self.hot),
                    request(prompt="x", prompt_logprobs=True, answer=False)]
        with self.avocet.Scheduler(self.engine) as scheduler:
            results = scheduler.batch(requests, max_tokens=12)
            yield " ".join(shown(result) + repr(result.prompt) for result in results)
            yield repr([(token.id, token.text) for token in
                        scheduler.submit(prompt="The sea", max_tokens=12, sampling=self.hot)])
            pooled = scheduler.batch([request(prompt="The sea", answer=False, pooling=kind)
                                      for kind in ("mean", "last")])
            yield repr([[float(number).hex() for number in result.embedding] for result in pooled])
            talk = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
            yield shown(scheduler.generate(messages=talk, max_tokens=4, sampling=self.greedy))
        yield repr(self.model.chat_tokens(talk))
        with self.avocet.Model("showing") as model:
            yield repr(model.chat_tokens(talk, variables=VARIABLES))
            yield repr(model.chat_tokens(talk, generation_prompt=False))


def main():
    os.environ["AVO_ISA"] = sys.argv[1]
    import tempfile
    import avocet
    with tempfile.TemporaryDirectory(prefix="avocet-golden-") as folder:
        sessions = Sessions(avocet, folder)
        answers = [*sessions.timelines(), *sessions.rings(), *sessions.constrained(),
                   *sessions.scheduled()]
    assert len(answers) == len(NAMES)
    for name, answer in zip(NAMES, answers):
        print(name, answer)


if __name__ == "__main__":
    main()
