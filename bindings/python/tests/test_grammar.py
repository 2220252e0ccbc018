import json

import pytest

import avocet

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9},
                                           "b": {"enum": ["x", "y"]}},
          "required": ["a", "b"]}


def test_session(model, engine):
    ids = model.tokenize("once", begin=True)
    with avocet.Grammar(model, schema=SCHEMA) as grammar, engine.session() as session:
        for seed in range(5):
            session.truncate(0)
            answer = session.generate(ids, max_tokens=60, grammar=grammar,
                                      sampling=avocet.Sampling(temperature=1.5, seed=seed))
            assert answer.finish == "stop_token"
            value = json.loads(answer.text)
            assert list(value) == ["a", "b"] and 0 <= value["a"] <= 9 and value["b"] in "xy"
        session.truncate(0)
        assert session.generate(ids, grammar='root ::= "upon" [0-9]{2}').text[:4] == "upon"
        session.truncate(0)
        assert session.generate(ids, schema={"const": [1]}).text == "[1]"


def test_scheduler(model, scheduler):
    with avocet.Grammar(model, schema=json.dumps(SCHEMA)) as grammar:
        answers = scheduler.batch(["once", "upon", "a time"], max_tokens=60, grammar=grammar)
        assert all(set(json.loads(answer.text)) == {"a", "b"} for answer in answers)
    assert scheduler.generate(prompt="once", schema={"enum": ["z"]}).text == '"z"'
    assert scheduler.generate(prompt="once", grammar='root ::= "in" "in"').text == "inin"


def test_refused(model, engine):
    with pytest.raises(avocet.UnsupportedError, match="multipleOf"):
        avocet.Grammar(model, schema={"multipleOf": 3})
    with pytest.raises(avocet.FormatError, match="line 1"):
        avocet.Grammar(model, "root = 1")
    with pytest.raises(ValueError):
        avocet.Grammar(model, 'root ::= "a"', schema={})
    with avocet.Grammar(model, trigger="e") as grammar, engine.session() as session:
        with pytest.raises(ValueError):
            session.generate([1], grammar=grammar, schema={})
