"""Debian's Chromium through its driver: the W3C WebDriver protocol by plain HTTP, nothing else.

A Browser has its own driver process, profile and log; everything that the page asked for, reported
or violated since the last question can be read back.
"""
import base64
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from command import PATIENCE, wait_until

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
ENTER, ESCAPE, TAB, BACKSPACE = "\ue007", "\ue00c", "\ue004", "\ue003"
SHIFT, CONTROL, UP, DOWN, LEFT, RIGHT, SPACE = ("\ue008", "\ue009", "\ue013", "\ue015", "\ue012",
                                                "\ue014", "\ue00d")

# Seen from the first line of the page on: what the policy stopped, and what nobody caught.
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
    window.violations.push(event.violatedDirective + " " + event.blockedURI));
window.failures = [];
window.addEventListener("error", (event) => window.failures.push(String(event.message)));
window.addEventListener("unhandledrejection", (event) =>
    window.failures.push(String(event.reason)));
"""


def skip_without_browser():
    """Ends the test as skipped, and says how to get what is missing."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if missing:
        print(f"skipped: no {' and no '.join(missing)} here; "
              "on Debian: apt-get install chromium chromium-driver")
        sys.exit(77)


class Element:
    def __init__(self, browser, name):
        self.browser, self.name = browser, name

    def ask(self, method, path, body=None):
        return self.browser.ask(method, f"/element/{self.name}/{path}", body)

    def click(self):
        self.ask("POST", "click", {})

    def type(self, text):
        self.ask("POST", "value", {"text": text})

    def clear(self):
        self.ask("POST", "clear", {})

    @property
    def text(self):
        return self.ask("GET", "text")

    @property
    def shown(self):
        return self.ask("GET", "displayed")

    def property(self, name):
        return self.ask("GET", f"property/{name}")

    def attribute(self, name):
        return self.ask("GET", f"attribute/{name}")


class Browser:
    def __init__(self, *arguments, width=1280, height=860):
        self.profile = tempfile.TemporaryDirectory(prefix="avocet-chromium-",
                                                   ignore_cleanup_errors=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.driver = subprocess.Popen(["chromedriver", f"--port={port}"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.root = f"http://127.0.0.1:{port}"
        self.session = None
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                            "--disable-dev-shm-usage", "--disable-background-networking",
                            "--disable-component-update", "--disable-sync", "--hide-scrollbars",
                            f"--user-data-dir={self.profile.name}",
                            f"--window-size={width},{height}",
                            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
                            *arguments],
                   "perfLoggingPrefs": {"enableNetwork": True, "enablePage": False}}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options,
                  "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        try:
            self.wait_for_driver()
            answer = self.raw("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self.session = answer["sessionId"]
            self.cdp("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        except BaseException:
            self.close()
            raise

    def wait_for_driver(self):
        def ready():
            try:
                return self.raw("GET", "/status")["ready"]
            except (urllib.error.URLError, ConnectionError):
                return False
        wait_until(ready, "chromedriver")

    def close(self):
        if self.session is not None:
            try:
                self.raw("DELETE", f"/session/{self.session}")
            except (OSError, AssertionError):
                pass
        self.driver.terminate()
        self.driver.wait()
        self.profile.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    # ---- The protocol ----

    def raw(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + path, data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            said = json.load(error)["value"]
            raise AssertionError(f"{method} {path}: {said['error']}: {said['message']}") from None

    def ask(self, method, path, body=None):
        return self.raw(method, f"/session/{self.session}{path}", body)

    def cdp(self, command, **parameters):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url):
        self.ask("POST", "/url", {"url": url})

    def reload(self):
        self.ask("POST", "/refresh", {})

    def run(self, script, *arguments):
        """The value that a function with this body returns; promises are waited for."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def all(self, css):
        found = self.ask("POST", "/elements", {"using": "css selector", "value": css})
        return [Element(self, element[ELEMENT]) for element in found]

    def find(self, css):
        found = self.ask("POST", "/element", {"using": "css selector", "value": css})
        return Element(self, found[ELEMENT])

    def active(self):
        return Element(self, self.ask("GET", "/element/active")[ELEMENT])

    def keys(self, *keys):
        """Pressed one after the other where the focus is; a tuple is a chord."""
        steps = []
        for key in keys:
            chord = key if isinstance(key, tuple) else (key,)
            steps += [{"type": "keyDown", "value": one} for one in chord]
            steps += [{"type": "keyUp", "value": one} for one in reversed(chord)]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard",
                                                   "actions": steps}]})

    def write(self, text):
        self.keys(*text)

    def move_to(self, element, x=0, y=0):
        self.ask("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [
            {"type": "pointerMove", "duration": 0, "x": x, "y": y,
             "origin": {ELEMENT: element.name}}]}]})

    def wait(self, script, *arguments, why=None):
        """Until a function with this body returns something true; that value."""
        end = time.monotonic() + PATIENCE
        while True:
            value = self.run(script, *arguments)
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(why or f"never true: {script}")
            time.sleep(0.03)

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.ask("GET", "/screenshot")))

    def resize(self, width, height):
        self.ask("POST", "/window/rect", {"width": width, "height": height})

    def phone(self):
        """A small screen with touch, as a telephone has."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2,
                 mobile=True)
        self.cdp("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=5)

    def media(self, **features):
        """media(prefers_color_scheme="dark")"""
        self.cdp("Emulation.setEmulatedMedia", features=[
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    # ---- What was seen ----

    def requests(self):
        """Addresses asked for since the last call, of any kind."""
        found = []
        for entry in self.ask("POST", "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                parameters = message["params"]
                found.append(parameters.get("request", parameters)["url"])
        return found

    def complaints(self):
        """What the browser wrote into its console since the last call, warnings and worse."""
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"})
                if entry["level"] in ("WARNING", "SEVERE")]
