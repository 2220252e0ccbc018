import json

import pytest

import avocet
from conftest import write_adapter


def test_proof_of_application(model, adapter_paths):
    with avocet.Adapter(model, adapter_paths[0]) as adapter:
        info = adapter.info
        assert info.modules_matched == info.modules_expected == 4
        assert info.rank_max == 4 and info.method == "lora" and len(info.digest) == 32
        modules = adapter.modules
        assert len(modules) == 4 and all(module.norm > 0 and module.scale == 4.0
                                         for module in modules)


def test_packed_is_the_same(model, adapter_paths, tmp_path):
    with avocet.Adapter(model, adapter_paths[0]) as adapter:
        adapter.pack(tmp_path / "packed.avoa")
        with avocet.Adapter(model, tmp_path / "packed.avoa") as packed:
            assert packed.info.digest == adapter.info.digest
            assert packed.modules == adapter.modules


def test_refusals(model, tmp_path):
    folder = write_adapter(tmp_path / "broken", 3)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["r"] = 5
    (folder / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(avocet.AvocetError, match="rank|r"):
        avocet.Adapter(model, folder)
    with pytest.raises(avocet.AvocetError):
        avocet.Adapter(model, tmp_path / "nowhere")


def test_sessions_carry_adapters(model, engine, adapter_paths):
    ids = model.tokenize("once upon", begin=True)

    def answer(adapters):
        with engine.session(adapters) as session:
            return [token.id for token in
                    session.generate(ids, max_tokens=12, ignore_end=True).tokens]
    with avocet.Adapter(model, adapter_paths[0]) as one, \
            avocet.Adapter(model, adapter_paths[1]) as two:
        base = answer([])
        assert answer([one]) != base and answer([two]) != base
        assert answer([(one, 0.0)]) == base
        assert answer([one, two]) == answer([two, one])
        assert answer([(one, 1.0)]) == answer([one])
        with pytest.raises(avocet.AvocetError):
            answer([one, one])


def test_registry(model, adapter_paths):
    with avocet.Registry(model) as registry:
        registry.load("style", adapter_paths[0])
        first = registry.take("style")
        registry.load("style", adapter_paths[1], pinned=True)
        second = registry.take("style")
        assert first.info.digest != second.info.digest
        entries = registry.list()
        assert [entry.name for entry in entries] == ["style"] and entries[0].pinned
        registry.unload("style")
        with pytest.raises(avocet.NotFoundError, match="style"):
            registry.take("style")
        for name in ("../escape", "/absolute", ""):
            with pytest.raises(avocet.AvocetError):
                registry.load(name, adapter_paths[0])
        first.close()
        second.close()
