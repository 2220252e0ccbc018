"""avocet.train: an adapter that applies, rewards in Python, runs that are stopped and resumed."""
import json
import math

import pytest

import avocet


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
