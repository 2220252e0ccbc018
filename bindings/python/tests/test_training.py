"""avocet.train: an adapter that applies, rewards in Python, runs that are stopped and resumed."""
import http.server
import json
import math
import os
import threading
import urllib.request

import pytest

import avocet
from conftest import ROOT

DEMO = ROOT / "models/demo.avo"
if "AVOCET" in os.environ:  # the command of the build that is tested
    os.environ["AVOCET_COMMAND"] = os.environ["AVOCET"]


@pytest.fixture(scope="module")
def model(model_path):
    with avocet.Model(model_path) as opened:
        yield opened


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n"
                            for text in ("once upon a time", "a dog ran", "the dog sat")))
    return path


def test_an_adapter_is_trained(model, texts, tmp_path):
    steps = []
    result = avocet.train(model, "sft", tmp_path / "out", data=texts, steps=6, batch=2, lr=0.01,
                          rank=4, target=["q_proj", "v_proj"], on_step=steps.append)
    assert [one.step for one in steps] == [1, 2, 3, 4, 5, 6] and result.step == result.steps == 6
    assert steps[-1].loss < steps[0].loss and steps[0].metrics["step"] == 1
    assert math.isnan(result.best_loss) and math.isnan(steps[0].reward)
    with avocet.Adapter(model, tmp_path / "out") as adapter:
        assert not adapter.info.idle and adapter.info.rank_max == 4


def test_stopped_and_resumed(model, texts, tmp_path):
    same = {"data": texts, "steps": 5, "batch": 2, "rank": 4}
    avocet.train(model, "sft", tmp_path / "whole", **same)
    with pytest.raises(avocet.CancelledError, match="stopped after step 2 of 5"):
        avocet.train(model, "sft", tmp_path / "parts", on_step=lambda one: one.step < 2, **same)
    lines = []
    result = avocet.train(model, "sft", tmp_path / "parts", resume=True, log=lines.append, **same)
    assert result.first_step == 2 and "resuming behind step 2" in lines[0]
    name = "adapter_model.safetensors"
    assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_new_adapters_are_told(model, texts, tmp_path):
    out = tmp_path / "out"
    same = {"data": texts, "steps": 5, "batch": 2, "rank": 2, "save_every": 4}
    seen = []

    def renewed(step):
        with avocet.Adapter(model, out) as adapter:
            assert adapter.info.rank_max == 2
        seen.append(step)

    avocet.train(model, "sft", out, on_adapter=renewed, adapter_every=2, **same)
    assert seen == [2, 4, 5]
    with pytest.raises(avocet.AvocetError, match="on_adapter is missing"):
        avocet.train(model, "sft", tmp_path / "none", adapter_every=2, **same)
    with pytest.raises(ZeroDivisionError):
        avocet.train(model, "sft", tmp_path / "broken", on_adapter=lambda step: 1 // 0, **same)


def test_published(model, texts, tmp_path):
    asked, status = [], [200]

    class Server(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, self.headers["Authorization"], json.loads(body)))
            self.send_response(status[0])
            self.end_headers()
            self.wfile.write(b"no such root")

        def log_message(self, *_):
            pass

    same = {"data": texts, "steps": 2, "batch": 2, "rank": 2}
    with http.server.HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            avocet.train(model, "sft", tmp_path / "mine", publish=url, adapter_every=1, **same)
            path = str(tmp_path / "mine")
            assert asked == [("/v1/load_lora_adapter", None,
                              {"lora_name": "mine", "lora_path": path})] * 2
            status[0] = 403
            with pytest.warns(UserWarning, match="refuses the adapter of step 2: 403 no such root"):
                avocet.train(model, "sft", tmp_path / "mine2", publish=url + "/v1",
                             publish_name="other", publish_key="secret", **same)
            assert asked[-1] == ("/v1/load_lora_adapter", "Bearer secret",
                                 {"lora_name": "other", "lora_path": path + "2"})
        finally:
            server.shutdown()
            thread.join()
    with pytest.warns(UserWarning, match="cannot load the adapter of step 2"):
        avocet.train(model, "sft", tmp_path / "gone", publish=url, **same)
    with pytest.raises(ValueError, match="need publish"):
        avocet.train(model, "sft", tmp_path / "bad", publish_ca="ca.pem", **same)
    with pytest.raises(ValueError, match="must begin with http"):
        avocet.train(model, "sft", tmp_path / "bad", publish="localhost", **same)


def test_served(texts, tmp_path):
    """A server of the run's own answers with the adapter while a step is under way."""
    lines, answers = [], []

    def step(one):
        found = [line for line in lines if "has the adapter of step" in line]
        if found and not answers:
            url, name = found[0].split(" ")[0], found[0].split('"')[1]
            body = json.dumps({"model": name, "prompt": "The duck", "max_tokens": 4,
                               "temperature": 0, "ignore_eos": True}).encode()
            request = urllib.request.Request(f"{url}/v1/completions", body,
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=300) as answer:
                answers.append(json.load(answer)["choices"][0]["finish_reason"])

    config = tmp_path / "serve.json"
    config.write_text(json.dumps({"sessions": 1, "threads": 1, "kv_tokens": 256, "ctx": 128,
                                  "no_sandbox": True}))
    same = {"data": texts, "steps": 4, "batch": 1, "rank": 2, "threads": 1}
    with avocet.Model(DEMO) as demo:
        avocet.train(demo, "sft", tmp_path / "live", serve=0, serve_every=2, serve_config=config,
                     on_step=step, log=lines.append, **same)
        assert answers == ["length"], lines
        avocet.train(demo, "sft", tmp_path / "alone", **same)
        name = "adapter_model.safetensors"
        assert (tmp_path / "live" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
        with pytest.raises(avocet.ArgumentError, match="must be PORT or HOST:PORT"):
            avocet.train(demo, "sft", tmp_path / "bad", serve="nowhere", **same)
        with pytest.raises(ValueError, match="need serve"):
            avocet.train(demo, "sft", tmp_path / "bad", serve_every=3, **same)


def test_draft_heads_are_trained(model, texts, tmp_path):
    steps = []
    result = avocet.train(model, "heads", tmp_path / "out", data=texts, steps=6, batch=2, drafts=2,
                          muon_lr=0.05, on_step=steps.append)
    assert result.step == 6 and steps[-1].loss < steps[0].loss
    assert 0 <= steps[-1].metrics["accepted_2"] <= steps[-1].metrics["accepted_1"] <= 1
    with avocet.Heads(model, tmp_path / "out" / "heads.safetensors") as heads:
        assert avocet.Engine(model, draft_heads=[heads]) is not None
    with pytest.raises(avocet.AvocetError, match="window is 3"):
        avocet.train(model, "heads", tmp_path / "bad", data=texts, window=3)


def test_rewards_in_python(model, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "once", "answer": "a"}\n{"prompt": "upon", "answer": "b"}\n')
    seen = []

    def letters(prompts, completions, items):
        seen.append((prompts, items))
        return [text.count(item["answer"]) for text, item in zip(completions, items)]

    same = {"data": path, "steps": 2, "batch": 2, "group": 3, "answer": 5, "rank": 2,
            "no_template": True}
    steps = []
    avocet.train(model, "rl", tmp_path / "out", rewards={"letters": (letters, 0.5)},
                 on_step=steps.append, **same)
    assert len(seen) == 2 and len(seen[0][0]) == 6 and seen[0][1][0]["prompt"] in ("once", "upon")
    assert "rewards/letters/mean" in steps[0].metrics and not math.isnan(steps[0].reward)
    for broken, error in ((lambda *_: [1], ValueError), (lambda *_: ["x"] * 6, TypeError),
                          (lambda *_: 1 // 0, ZeroDivisionError)):
        with pytest.raises(error):
            avocet.train(model, "rl", tmp_path / "broken", rewards={"broken": broken}, **same)


def test_what_cannot_be(model, texts, tmp_path):
    with pytest.raises(avocet.ArgumentError, match="must be sft, dpo, rl, pretrain or heads"):
        avocet.train(model, "teach", tmp_path / "x", data=texts)
    with pytest.raises(avocet.FormatError, match='unknown setting "rnak"'):
        avocet.train(model, "sft", tmp_path / "x", data=texts, rnak=3)
    with pytest.raises(TypeError):
        avocet.train("model", "sft", tmp_path / "x", data=texts)
    with pytest.raises(TypeError):
        avocet.train(model, "rl", tmp_path / "x", data=texts, rewards={"one": 1})
    with pytest.raises(KeyError):
        def raises(_):
            raise KeyError("mine")
        avocet.train(model, "sft", tmp_path / "y", data=texts, steps=3, on_step=raises)
