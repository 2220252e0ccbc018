#!/usr/bin/env python3
"""Random JSON schemas, answers of a tiny model with random weights, and what jsonschema says of
them: every answer that ends must be valid.

usage: PYTHONPATH=bindings/python:tests/support grammar_schema.py COUNT SEED

Needs jsonschema (PyPI) and NumPy. Schemas that are refused are counted by their reason; exits 1
with the schema and the answer where one is not valid. (\W is ASCII in ECMA 262 and Unicode in
Python: patterns here do without.)
"""
import collections
import json
import random
import sys
import tempfile

import avocet
import jsonschema
import tiny_model

NAMES = ["a", "ab", "b", "name", "é", 'q"', ""]


def number(dice):
    return dice.choice([dice.randint(-20, 20), dice.randint(-2000, 2000) / 100, 0, 0.5])


def bounds(dice, integer):
    keys = {}
    low = number(dice)
    if dice.random() < 0.7:
        keys[dice.choice(["minimum", "exclusiveMinimum"])] = low
    if dice.random() < 0.7:
        keys[dice.choice(["maximum", "exclusiveMaximum"])] = low + abs(number(dice))
    return {"type": "integer" if integer else "number", **keys}


def text(dice):
    kind = dice.randrange(4)
    if kind == 0:
        low = dice.randint(0, 3)
        return {"type": "string", "minLength": low, "maxLength": low + dice.randint(0, 4)}
    if kind == 1:
        return {"type": "string", "format": dice.choice(["date", "time", "date-time", "uuid",
                                                         "ipv4"])}
    if kind == 2:
        return {"type": "string", "pattern": dice.choice(
            ["^[a-c]{1,4}$", r"^\d{2}-\d{2}$", "^(x|yy)?z$", r"^\d.$", "^[^a-z]{2}$", "^é+$"])}
    return {"enum": dice.sample(["x", "é\n", 'a"b', 1, 2.5, None, [1, "x"], {"k": 0}, False],
                                dice.randint(1, 4))}


def thing(dice, depth):
    names = dice.sample(NAMES, dice.randint(0, 4))
    made = {"type": "object", "properties": {name: schema(dice, depth - 1) for name in names}}
    if names and dice.random() < 0.7:
        made["required"] = dice.sample(names, dice.randint(1, len(names)))
    extra = dice.randrange(4)
    if extra < 2:
        made["additionalProperties"] = False if extra == 0 else {"type": "boolean"}
    return made


def array(dice, depth):
    made = {"type": "array", "items": schema(dice, depth - 1)}
    low = dice.randint(0, 2)
    made["minItems"], made["maxItems"] = low, low + dice.randint(0, 2)
    if dice.random() < 0.3:
        made["prefixItems"] = [schema(dice, depth - 1) for _ in range(dice.randint(1, 2))]
    return made


def schema(dice, depth):
    kind = dice.randrange(10 if depth > 0 else 5)
    if kind == 0:
        return {"type": dice.choice(["null", "boolean", ["boolean", "null"]])}
    if kind in (1, 2):
        return bounds(dice, kind == 1)
    if kind in (3, 4):
        return text(dice)
    if kind in (5, 6):
        return thing(dice, depth)
    if kind == 7:
        return array(dice, depth)
    parts = [schema(dice, depth - 1) for _ in range(dice.randint(1, 3))]
    if kind == 8:
        return {dice.choice(["anyOf", "oneOf"]): parts}
    return {"allOf": [thing(dice, depth - 1), thing(dice, depth - 1)]}


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        model = avocet.Model(tiny_model.write(folder))
        engine = avocet.Engine(model, sessions_max=16, context_max=160, threads=1)
        with avocet.Scheduler(engine) as scheduler:
            for number_of in range(count):
                dice = random.Random(seed * 1000003 + number_of)
                wanted = schema(dice, 3)
                try:
                    grammar = avocet.Grammar(model, schema=wanted)
                except avocet.AvocetError as error:
                    counts["refused: " + str(error).split(":", 1)[-1][:60]] += 1
                    continue
                requests = [avocet.Request(
                    prompt="once", grammar=grammar, max_tokens=150,
                    sampling=avocet.Sampling(temperature=dice.choice([0.0, 1.0, 3.0]), seed=n,
                                             top_k=dice.choice([0, 3])))
                    for n in range(6)]
                for answer in scheduler.batch(requests):
                    if isinstance(answer, Exception):
                        sys.exit(f"{json.dumps(wanted)}: {answer}")
                    counts[answer.finish] += 1
                    if answer.finish != "stop_token":
                        continue
                    try:
                        validator = jsonschema.Draft202012Validator
                        validator(wanted, format_checker=validator.FORMAT_CHECKER).validate(
                            json.loads(answer.text))
                    except (ValueError, jsonschema.ValidationError) as error:
                        sys.exit(f"{json.dumps(wanted, ensure_ascii=False)}\n{answer.text}\n{error}")
    for what, times in counts.most_common():
        print(f"{times:7} {what}")


main()
