"""What is given wrongly is said in our words, and never reaches the library."""
import pytest

import avocet

JUNK = [None, 5, 1.5, "text", b"bytes", [], {}, object()]


@pytest.fixture
def things(model, engine, adapter_paths, heads, tmp_path):
    """One open object of every class."""
    with avocet.Adapter(model, adapter_paths[0]) as adapter, \
            avocet.Registry(model) as registry, avocet.Telemetry() as telemetry, \
            avocet.Grammar(model, "root ::= \"a\"") as grammar, \
            avocet.Engine(model, context_max=128, threads=1) as other, \
            avocet.Scheduler(other) as scheduler, engine.session() as session, \
            engine.batch() as batch:
        yield {"Model": model, "Engine": engine, "Adapter": adapter, "Registry": registry,
               "Telemetry": telemetry, "Grammar": grammar, "Scheduler": scheduler,
               "Session": session, "Batch": batch, "Heads": heads, "path": tmp_path}


# Every argument that is an object of ours: what it must be, whether None is good, and the call.
TAKES = {
    "Engine(model)": ("Model", False, lambda t, x: avocet.Engine(x)),
    "Engine(telemetry)": ("Telemetry", True,
                          lambda t, x: avocet.Engine(t["Model"], telemetry=x)),
    "Engine(draft_heads)": ("Heads", False,
                            lambda t, x: avocet.Engine(t["Model"], draft_heads=[x])),
    "Engine(draft_model)": ("Model", True,
                            lambda t, x: avocet.Engine(t["Model"], draft_model=x)),
    "Model(draft_of)": ("Model", True, lambda t, x: avocet.Model("path", draft_of=x)),
    "Heads(model)": ("Model", False, lambda t, x: avocet.Heads(x, "path")),
    "plan(model)": ("Model", False, lambda t, x: avocet.plan(x)),
    "Adapter(model)": ("Model", False, lambda t, x: avocet.Adapter(x, "path")),
    "Registry(model)": ("Model", False, lambda t, x: avocet.Registry(x)),
    "Grammar(model)": ("Model", False, lambda t, x: avocet.Grammar(x, schema={})),
    "Sampling.of": ("Model", False, lambda t, x: avocet.Sampling.of(x)),
    "Session(engine)": ("Engine", False, lambda t, x: avocet.Session(x)),
    "Batch(engine)": ("Engine", False, lambda t, x: avocet.Batch(x)),
    "Scheduler(engine)": ("Engine", False, lambda t, x: avocet.Scheduler(x)),
    "Scheduler(registry)": ("Registry", True,
                            lambda t, x: avocet.Scheduler(t["Engine"], registry=x)),
    "session(adapters)": ("Adapter", False, lambda t, x: t["Engine"].session([x])),
    "session((adapter, weight))": ("Adapter", False,
                                   lambda t, x: t["Engine"].session([(x, 0.5)])),
    "step": ("Batch", False, lambda t, x: t["Engine"].step(x)),
    "add": ("Session", False, lambda t, x: t["Batch"].add(x, [1])),
    "logits": ("Session", False, lambda t, x: t["Batch"].logits(x)),
    "hidden": ("Session", False, lambda t, x: t["Batch"].hidden(x)),
    "tap": ("Session", False, lambda t, x: t["Batch"].tap(x, 0)),
    "ChatRequest(model)": ("Model", False, lambda t, x: avocet.ChatRequest(x, "{}")),
    "ChatRequest(sampling)": ("Sampling", True,
                              lambda t, x: avocet.ChatRequest(t["Model"], '{"prompt": "a"}',
                                                              sampling=x)),
    "ChatRequest(grammar)": ("Grammar", True,
                             lambda t, x: avocet.ChatRequest(t["Model"], '{"prompt": "a"}',
                                                             grammar=x)),
    "chat(sampling)": ("Sampling", True,
                       lambda t, x: t["Scheduler"].chat([{"role": "user", "content": "a"}],
                                                        sampling=x)),
    "chat(adapters)": ("Adapter", False,
                       lambda t, x: t["Scheduler"].chat([{"role": "user", "content": "a"}],
                                                        adapters=[x])),
    "generate(sampling)": ("Sampling", True,
                           lambda t, x: t["Session"].generate([5], max_tokens=1, sampling=x)),
    "submit(sampling)": ("Sampling", True,
                         lambda t, x: t["Scheduler"].generate(prompt="a", max_tokens=1,
                                                              sampling=x)),
    "submit(request)": ("Request", True, lambda t, x: t["Scheduler"].submit(x, prompt="once")),
}


@pytest.mark.parametrize("name", TAKES)
def test_objects_of_the_wrong_class(things, name):
    kind, optional, call = TAKES[name]
    given = [thing for own, thing in things.items() if own != kind] + JUNK
    given += [getattr(avocet, kind), avocet.Sampling if kind != "Sampling" else avocet.Request()]
    for wrong in given:
        if wrong is None and optional:
            continue
        with pytest.raises(TypeError, match=kind):
            call(things, wrong)


def test_every_constructor_and_method_is_in_the_list(things):
    """Whoever adds an argument of our classes adds it above."""
    import inspect
    import typing
    classes = {value for value in vars(avocet).values() if isinstance(value, type)
               and hasattr(value, "handle")}
    names = {kind.__name__ for kind in classes} | {"Sampling", "Request"}
    found = {}
    for kind in classes | {avocet.Sampling, avocet.Answer}:
        for method, function in vars(kind).items():
            if isinstance(function, classmethod):
                function = function.__func__
            if not inspect.isfunction(function) or method.startswith("_") and method != "__init__":
                continue
            for parameter in list(inspect.signature(function).parameters.values())[1:]:
                text = parameter.annotation if isinstance(parameter.annotation, str) else \
                    getattr(parameter.annotation, "__name__", str(parameter.annotation))
                if text.startswith("Optional["):  # of the class that is being made
                    text = text[len("Optional["):-1]
                elif "Optional" in str(parameter.annotation):
                    text = [getattr(part, "__name__", str(part))
                            for part in typing.get_args(parameter.annotation)][0]
                if text in names:
                    found.setdefault((kind.__name__, method), []).append(text)
    assert sum(map(len, found.values())) >= 15  # or this sees nothing
    listed = {kind for kind, _, _ in TAKES.values()}
    known = {("Engine", "__init__"), ("Adapter", "__init__"), ("Registry", "__init__"),
             ("Grammar", "__init__"), ("Session", "__init__"), ("Batch", "__init__"),
             ("Scheduler", "__init__"), ("Engine", "step"), ("Batch", "add"), ("Batch", "logits"),
             ("Session", "generate"), ("Scheduler", "submit"), ("Scheduler", "generate"),
             ("Scheduler", "batch"), ("Scheduler", "stream"), ("Answer", "__init__"),
             ("Batch", "hidden"), ("Batch", "tap"), ("ChatRequest", "__init__"),
             ("Heads", "__init__"), ("Model", "__init__")}
    assert set(found) <= known and listed <= names


def test_grammars_of_requests(things):
    for wrong in [things["Model"], things["Session"], 5, 1.5, object()]:
        with pytest.raises(TypeError, match="grammar"):
            things["Session"].generate([5], grammar=wrong)
        with pytest.raises(TypeError, match="grammar"):
            things["Scheduler"].submit(prompt="a", grammar=wrong)
        with pytest.raises(TypeError, match="schema"):
            things["Session"].generate([5], schema=wrong)


def test_what_belongs_to_another_engine_or_model(things, model_path, adapter_paths):
    with avocet.Model(model_path) as model, \
            avocet.Engine(model, context_max=128, threads=1, sessions_max=4) as engine, \
            engine.session() as session, engine.batch() as batch:
        with pytest.raises(avocet.ArgumentError):
            things["Batch"].add(session, [5])
        with pytest.raises(avocet.ArgumentError):
            things["Engine"].step(batch)
        with pytest.raises(LookupError):
            things["Batch"].logits(session)
        with pytest.raises(avocet.ArgumentError):
            engine.session([things["Adapter"]])
        with pytest.raises(avocet.ArgumentError):
            session.generate([5], grammar=things["Grammar"])
    with avocet.Model(model_path) as model, \
            avocet.Engine(model, context_max=128, threads=1) as engine:
        with avocet.Scheduler(engine) as scheduler:
            for fields in ({"adapters": [things["Adapter"]]}, {"grammar": things["Grammar"]}):
                with pytest.raises(avocet.ArgumentError):
                    scheduler.generate(prompt="once", max_tokens=2, **fields)
        with pytest.raises(ValueError, match="another model"):
            avocet.Scheduler(engine, registry=things["Registry"])


def test_adapters_are_a_list(things):
    for wrong in (things["Adapter"], "one", 5, {"one": 1}):
        with pytest.raises(TypeError, match="adapters must be a list"):
            things["Engine"].session(wrong)
        with pytest.raises(TypeError, match="adapters must be a list"):
            things["Scheduler"].submit(prompt="a", adapters=wrong)
    for wrong in ((things["Adapter"],), (things["Adapter"], 1, 2), (), (things["Adapter"], "1")):
        with pytest.raises(TypeError, match="adapter"):
            things["Engine"].session([wrong])
        with pytest.raises(TypeError, match="adapter"):
            things["Scheduler"].submit(prompt="a", adapters=[wrong])


def test_heads_are_a_list(things):
    for wrong in (things["Heads"], "one", 5, None, {"one": 1}):
        with pytest.raises(TypeError, match="draft_heads must be a list"):
            avocet.Engine(things["Model"], draft_heads=wrong)


def test_paths_and_texts(things):
    model, registry, session = things["Model"], things["Registry"], things["Session"]
    for wrong in (None, 5, model, ["path"]):
        for call in (avocet.Model, lambda x: avocet.Adapter(model, x),
                     lambda x: avocet.Heads(model, x), session.save,
                     session.restore, things["Adapter"].pack, lambda x: registry.load("a", x),
                     things["Telemetry"].append_history):
            with pytest.raises(TypeError, match="path must be a path"):
                call(wrong)
        for call in (registry.unload, registry.take, lambda x: registry.load(x, "path")):
            with pytest.raises(TypeError, match="name must be a text"):
                call(wrong)
        with pytest.raises(TypeError, match="text"):
            model.tokenize(wrong)
    for options in ({"kv_type": 5}, {"device": model}, {"pin": 1}):
        with pytest.raises(TypeError, match="must be a text"):
            avocet.Engine(model, **options)
    for name in ("tenant", "cache_salt"):
        with pytest.raises(TypeError, match=f"{name} must be a text"):
            things["Scheduler"].submit(prompt="a", **{name: 5})


def test_token_ids(things):
    model, session, batch = things["Model"], things["Session"], things["Batch"]
    for wrong in ("abc", b"abc", 5, None, [1.5], ["a"], [None], {1: 2}, [True]):
        for call in (lambda x: batch.add(session, x), session.generate, session.reuse,
                     model.detokenize, lambda x: session.generate([5], stop_tokens=x)):
            with pytest.raises(TypeError, match="token ids"):
                call(wrong)
    with pytest.raises(TypeError, match="token"):
        model.token_ends("a")


@pytest.mark.parametrize("fields,words", [
    ({"prompt": 5}, "prompt must be a text or a list of token ids"),
    ({"prompt": [1.5]}, "token ids"),
    ({"prompt": {"a": 1}}, "prompt must be"),
    ({"messages": "hello"}, "messages must be a list"),
    ({"messages": []}, "messages must not be empty"),
    ({"messages": ["hello"]}, "a message must have a role and a content"),
    ({"messages": [{"role": "user"}]}, 'a message lacks "content"'),
    ({"messages": [{"role": "user", "content": 5}]}, "the content of a message must be a text"),
    ({"prompt": "a", "sampling": {"temperature": 1}}, "sampling must be a Sampling or None"),
    ({"prompt": "a", "sampling": avocet.Sampling(temperature="1")}, "temperature must be a number"),
    ({"prompt": "a", "sampling": avocet.Sampling(logit_bias=[5])}, "logit_bias must be a mapping"),
    ({"prompt": "a", "sampling": avocet.Sampling(logit_bias={"a": 1})}, "logit_bias"),
    ({"prompt": "a", "stop": "x"}, "stop must be a list of texts"),
    ({"prompt": "a", "stop": [5]}, "stop must be a text"),
    ({"prompt": "a", "deadline": "1"}, "deadline must be a number"),
    ({"prompt": "a", "max_tokens": "1"}, "max_new_tokens"),
    ({"prompt": "a", "pooling": []}, "pooling"),
    ({"messages": [{"role": "user", "content": "a"}], "chat_variables": [1]}, "variables"),
])
def test_fields_of_requests(things, fields, words):
    with pytest.raises((TypeError, ValueError), match=words):
        things["Scheduler"].submit(**fields)
    outcome, = things["Scheduler"].batch([avocet.Request(**fields)])
    assert isinstance(outcome, avocet.ArgumentError) and words.split()[0] in str(outcome)


def test_a_text_is_no_list_of_prompts(things):
    for wrong in ("abc", b"abc", avocet.Request(prompt="a"), 5, None):
        with pytest.raises(TypeError, match="requests must be a list"):
            things["Scheduler"].batch(wrong)
        with pytest.raises(TypeError, match="requests must be a list"):
            things["Scheduler"].stream(wrong)  # at once, not with the first result
    with pytest.raises(TypeError, match="prompt=…"):
        things["Scheduler"].submit("once")
