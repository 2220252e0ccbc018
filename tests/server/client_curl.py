"""curl reads a stream. Skipped where it is absent."""
import json
import shutil
import subprocess
import sys
import unittest

from clients import HELLO, Clients

if shutil.which("curl") is None:
    print("skipped: curl is not installed")
    sys.exit(77)


class Curl(Clients):
    def test_stream(self):
        body = json.dumps({"messages": HELLO, "max_tokens": 4, "stream": True})
        done = subprocess.run(["curl", "-sN", "--max-time", "30", "-H",
                               "Content-Type: application/json", "-d", body,
                               self.server.url + "/v1/chat/completions"],
                              stdout=subprocess.PIPE, check=True, text=True)
        self.assertTrue(done.stdout.endswith("data: [DONE]\n\n"), done.stdout)


if __name__ == "__main__":
    unittest.main()
