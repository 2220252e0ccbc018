"""The manifests in deploy/: options that the command has, ports and labels that fit each other;
and, where they are installed, the schemas of Kubernetes (kubernetes-validate), of compose files
(Debian's docker-compose), of custom resources (AVOCET_CRDS names a folder with their definitions),
and promtool."""
import importlib.util
import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from command import call

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose/compose.yaml"
KUBERNETES = sorted(path for path in DEPLOY.glob("*.yaml"))
FILES = sorted([*KUBERNETES, *DEPLOY.glob("compose/*.y*ml"),
                *DEPLOY.glob("compose/grafana/*.yaml")])
CORE = ("apps/v1", "v1", "policy/v1", "autoscaling/v2", "networking.k8s.io/v1")
COMPOSE_SCHEMAS = (os.environ.get("AVOCET_COMPOSE_SPEC", ""),
                   "/usr/lib/python3/dist-packages/compose/config/compose_spec.json")


def has(*modules):
    return all(importlib.util.find_spec(module) for module in modules)


def documents(path):
    import yaml
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def resources():
    """(file, resource) of all manifests for Kubernetes."""
    return [(path.name, document) for path in KUBERNETES for document in documents(path)]


def walk(value):
    yield value
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from walk(item)


class Text(unittest.TestCase):
    """What needs no parser of YAML."""

    def test_options_are_those_of_the_command(self):
        said = call("serve", "--help").stdout.decode()
        known = set(re.findall(r"--[a-z][a-z-]+", said))
        seen = set()
        for path in (*KUBERNETES, COMPOSE, DEPLOY / "Containerfile"):
            for line in path.read_text().splitlines():
                place = line.split("#")[0]
                if re.search(r"prometheus|--storage|apt-get|useradd|podman|HEALTHCHECK", place):
                    continue
                if re.search(r"args:|command:|ENTRYPOINT|^ +- --", place):
                    flags = set(re.findall(r"--[a-z][a-z-]+", place))
                    self.assertEqual(flags - known, set(), f"{path.name}: {line}")
                    seen |= flags
        self.assertLessEqual({"--grpc", "--kv-events", "--keys", "--allow-host", "--host"}, seen)

    def test_names_of_metrics_and_paths(self):
        routes = (ROOT / "docs/api.md").read_text()
        metrics = (ROOT / "docs/telemetry.md").read_text()
        for path in FILES:
            text = path.read_text()
            for name in re.findall(r"vllm:\w+", text):
                self.assertIn(f"`{name}", metrics, path.name)
            for route in re.findall(r"path: (/[a-z]+)\b(?!/)", text):
                if "/v1" not in route and "/var" not in route:
                    self.assertIn(f"`{route}`", routes, path.name)
            self.assertNotIn("\t", text, path.name)

    def test_docs_name_every_file(self):
        said = (DEPLOY / "README.md").read_text()
        for path in (*KUBERNETES, COMPOSE):
            self.assertTrue(f"`{path.name}`" in said, f"README.md does not name {path.name}")


@unittest.skipUnless(has("yaml"), "SKIPPED: PyYAML is not here")
class Parsed(unittest.TestCase):
    def test_labels_ports_and_volumes_fit(self):
        pods = {}  # labels to the names of ports
        for file, resource in resources():
            self.assertLessEqual({"apiVersion", "kind", "metadata"}, set(resource), file)
            if resource["kind"] == "Deployment":
                pod = resource["spec"]["template"]
                labels = resource["spec"]["selector"]["matchLabels"]
                self.assertEqual({**pod["metadata"]["labels"], **labels}, pod["metadata"]["labels"])
                ports = [port for container in pod["spec"]["containers"]
                         for port in container["ports"]]
                names = {port["name"] for port in ports}
                numbers = {port["containerPort"] for port in ports}
                pods.setdefault(json.dumps(labels), []).append((names, numbers))
                volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
                for value in walk(pod):
                    if isinstance(value, dict) and "mountPath" in value:
                        self.assertIn(value["name"], volumes)
                    if isinstance(value, dict) and "httpGet" in value:
                        self.assertIn(value["httpGet"]["port"], names | numbers)
                    if isinstance(value, dict) and "grpc" in value and "port" in value["grpc"]:
                        self.assertIn(value["grpc"]["port"], numbers)
        for file, resource in resources():
            spec = resource["spec"]
            if resource["kind"] == "Service":
                known = pods[json.dumps(spec["selector"])]
                for port in spec["ports"]:
                    self.assertTrue(any(port["targetPort"] in names for names, _ in known), file)
            elif resource["kind"] == "InferencePool":
                (_, numbers), = pods[json.dumps(spec["selector"]["matchLabels"])]
                self.assertLessEqual({port["number"] for port in spec["targetPorts"]}, numbers)
            elif resource["kind"] in ("PodDisruptionBudget", "NetworkPolicy"):
                chosen = spec.get("selector") or spec["podSelector"]
                self.assertIn(json.dumps(chosen["matchLabels"]), pods, file)

    def test_the_grace_period_is_longer_than_draining(self):
        for file, resource in resources():
            for value in walk(resource):
                if isinstance(value, dict) and "terminationGracePeriodSeconds" in value:
                    self.assertGreater(value["terminationGracePeriodSeconds"], 30, file)

    def test_compose(self):
        compose, = documents(COMPOSE)
        services = compose["services"]
        for name, service in services.items():
            self.assertLessEqual(set(service.get("depends_on", ())), set(services), name)
            for volume in service["volumes"]:
                source = volume.split(":")[0]
                if source.startswith("."):
                    self.assertTrue((COMPOSE.parent / source).exists(), volume)
        self.assertTrue((COMPOSE.parent / services["avocet"]["build"]["context"] /
                         services["avocet"]["build"]["dockerfile"]).is_file())
        for config in documents(COMPOSE.parent / "prometheus.yml"):
            target, = config["scrape_configs"][0]["static_configs"][0]["targets"]
            self.assertIn(target.split(":")[0], services)
        source, = documents(COMPOSE.parent / "grafana/sources.yaml")
        self.assertEqual(source["datasources"][0]["url"], "http://prometheus:9090")

    def test_compose_schema(self):
        found = [path for path in COMPOSE_SCHEMAS if path and os.path.exists(path)]
        if not found or not has("jsonschema"):
            self.skipTest("SKIPPED: jsonschema and Debian's docker-compose are not here")
        import jsonschema
        with open(found[0], encoding="utf-8") as file:
            jsonschema.Draft7Validator(json.load(file)).validate(documents(COMPOSE)[0])

    def test_kubernetes_schemas(self):
        if not has("kubernetes_validate"):
            self.skipTest("SKIPPED: kubernetes-validate is not here")
        import kubernetes_validate
        version = kubernetes_validate.latest_version()
        checked = 0
        for file, resource in resources():
            if resource["apiVersion"] in CORE:
                with self.subTest(file=file, kind=resource["kind"]):
                    kubernetes_validate.validate(resource, version, strict=True)
                    checked += 1
        self.assertGreater(checked, 6)

    def test_custom_resources(self):
        folder = os.environ.get("AVOCET_CRDS")
        if not folder or not has("jsonschema"):
            self.skipTest("SKIPPED: AVOCET_CRDS names no folder of definitions")
        import jsonschema
        schemas = {}
        for path in Path(folder).glob("*.yaml"):
            for crd in documents(path):
                for version in crd["spec"]["versions"]:
                    key = f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]
                    schemas[key] = version["schema"]["openAPIV3Schema"]
        for file, resource in resources():
            schema = schemas.get((resource["apiVersion"], resource["kind"]))
            if schema is not None:
                with self.subTest(file=file, kind=resource["kind"]):
                    jsonschema.Draft7Validator(schema).validate(resource)


@unittest.skipUnless(shutil.which("promtool"), "SKIPPED: promtool is not here")
class Prometheus(unittest.TestCase):
    def test_configurations(self):
        for path in (DEPLOY / "prometheus.yml", DEPLOY / "compose/prometheus.yml"):
            subprocess.run(["promtool", "check", "config", path], stdout=subprocess.DEVNULL,
                           check=True)


if __name__ == "__main__":
    unittest.main()
