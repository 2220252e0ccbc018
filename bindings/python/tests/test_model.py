import gc
import json

import pytest

import avocet


def test_info_and_tokens(model):
    info = model.info
    assert info.architecture == "llama" and info.format == "llama2c"
    assert info.layers == 2 and info.has_tokenizer and not info.has_chat_template
    ids = model.tokenize("once upon a time", begin=True)
    assert ids[0] == info.token_begin
    assert model.detokenize(ids).strip() == "once upon a time"
    assert model.tokenize("") == []
    long = "upon " * 5000
    assert model.detokenize(model.tokenize(long)).strip() == long.strip()


def test_errors_have_the_librarys_text(tmp_path, model):
    with pytest.raises(avocet.AvocetError, match="nothing-here"):
        avocet.Model(tmp_path / "nothing-here")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 100)
    with pytest.raises(avocet.AvocetError, match="broken.gguf") as caught:
        avocet.Model(broken)
    assert caught.value.status != 0
    with pytest.raises(avocet.NotFoundError):
        model.check_chat()


def test_closing_in_any_order(model_path):
    model = avocet.Model(model_path)
    engine = avocet.Engine(model, sessions_max=2)
    session = engine.session()
    model.close()  # closes what was opened from it first
    assert engine.closed and session.closed
    with pytest.raises(ValueError, match="closed"):
        model.tokenize("x")
    engine = avocet.Engine(avocet.Model(model_path))  # the engine keeps its model alive
    gc.collect()
    assert engine.device
    del engine
    gc.collect()


def test_plan(model):
    plan = avocet.plan(model, sessions_max=4, context_max=64, kv_type="int8")
    assert plan.kv_type == "int8" and plan.kv_pages * plan.kv_page_tokens >= 4 * 64
    with pytest.raises(avocet.ArgumentError, match="kv_type"):
        avocet.plan(model, kv_type="int3")


def test_progress_can_cancel(model_path):
    seen = []
    with avocet.Model(model_path, progress=lambda what, done, total: seen.append(what) or True):
        pass
    assert isinstance(seen, list)


def test_messages_with_tool_calls_reach_the_template(tmp_path):
    import chat_model
    folder = chat_model.write_random_model(tmp_path)
    config = folder / "tokenizer_config.json"
    template = "{% for m in messages %}{{ m.role }}:{{ m.content }}" \
        "{% for c in m.tool_calls or [] %}!{{ c.function.arguments.n }}{% endfor %};{% endfor %}"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": template}))
    called = [{"role": "user", "content": "a"},
              {"role": "assistant", "content": "b", "tool_calls": [
                  {"function": {"name": "f", "arguments": {"n": 7}}}]}]
    with avocet.Model(folder) as model:
        ids = model.chat_tokens(called)
        assert model.detokenize(ids) == "user:a;assistant:b!7;"
        plain = model.chat_tokens([{"role": "user", "content": "a"}])
        assert model.detokenize(plain) == "user:a;"
        with pytest.raises(TypeError, match="variables must be a mapping"):
            model.chat_tokens(called, variables=3)
        with avocet.Engine(model) as engine, avocet.Scheduler(engine) as scheduler:
            result = scheduler.submit(avocet.Request(messages=called, max_tokens=2)).result()
            assert result.prompt_tokens == len(ids)
