"""Telemetry of an engine and its scheduler, as the snapshot, the metrics and the trace say it."""
import csv
import io
import json

import avocet
import pytest


def test_counts_are_those_of_the_requests(model_path, tmp_path):
    with avocet.Telemetry(model_name="tiny") as telemetry, avocet.Model(model_path) as model, \
            avocet.Engine(model, sessions_max=2, threads=2, telemetry=telemetry) as engine:
        empty = telemetry.snapshot()
        assert empty["requests"]["submitted"] == 0 and empty["latency"]["total"]["p50"] is None
        with avocet.Scheduler(engine) as scheduler, telemetry.tracing():
            results = scheduler.batch([avocet.Request(prompt="once", max_tokens=5, ignore_end=True)
                                       for _ in range(4)])
            telemetry.write_trace(tmp_path / "trace.json")
        snapshot = telemetry.snapshot()
        assert snapshot["model"] == "tiny" and snapshot["threads"] == 2
        assert snapshot["requests"]["finished"] == 4 and snapshot["requests"]["running"] == 0
        assert snapshot["tokens"]["new"] == sum(result.new_tokens for result in results) == 20
        assert snapshot["latency"]["inter_token"]["count"] <= 16
        assert snapshot["kv"]["free"] + snapshot["kv"]["cached"] == snapshot["kv"]["pages"]
        stages = {stage["name"]: stage for stage in snapshot["stages"]}
        assert stages["sample"]["count"] == 20 and stages["sample"]["seconds"] > 0
        # Seconds of phases are those of one worker. On a busy machine the other may compute all.
        steps = stages["prefill"]["count"] + stages["decode"]["count"]
        assert stages["attention"]["count"] == steps > 1
        rows = {(row["name"], row["labels"]): row["value"]
                for row in csv.DictReader(io.StringIO(telemetry.csv()))}
        labels = '{model_name="tiny",engine="0"}'
        assert float(rows["vllm:generation_tokens_total", labels]) == 20
        # Of all time; the snapshot counts those of the last minute.
        assert float(rows["vllm:inter_token_latency_seconds_count", labels]) == 16
        assert f"vllm:generation_tokens_total{labels} 20\n" in telemetry.prometheus()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"step", "attention", "deliver"} <= {event["name"] for event in events}


def test_the_limit_is_measured_when_asked_for(model_path):
    with avocet.Telemetry() as telemetry, avocet.Model(model_path) as model, \
            avocet.Engine(model, threads=1, telemetry=telemetry) as engine:
        assert telemetry.snapshot()["bandwidth"]["limit_bytes_per_second"] is None
        assert engine.measure() > 1e8
        assert telemetry.snapshot()["bandwidth"]["limit_bytes_per_second"] > 1e8


def test_telemetry_outlives_its_engines(model_path):
    telemetry = avocet.Telemetry()
    with avocet.Model(model_path) as model:
        engine = avocet.Engine(model, telemetry=telemetry)
        telemetry.close()  # closes the engine first
        assert engine.closed
    with pytest.raises(ValueError):
        telemetry.prometheus()
    with pytest.raises(avocet.ArgumentError):
        avocet.Telemetry(spans_max=2**31)
