"""Triton's client from PyPI, unchanged. Skipped where it is absent (pip install
tritonclient[grpc])."""
import queue
import tempfile
import unittest
from pathlib import Path

from clients import needs

needs("grpc", "numpy", "tritonclient")
import numpy  # noqa: E402
import tritonclient.grpc as triton  # noqa: E402

import tiny_model  # noqa: E402
from api_server import Server  # noqa: E402

OPTIONS = b'{"max_tokens":8,"seed":3,"temperature":0.8}'


def tensor(name, value):
    kind, data = ("BOOL", numpy.array([value])) if isinstance(value, bool) else (
        "BYTES", numpy.array([value], dtype=object))
    made = triton.InferInput(name, [1], kind)
    made.set_data_from_numpy(data)
    return made


class Triton(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="avocet-triton-")
        cls.server = Server(tiny_model.write(Path(cls.scratch.name)), "--name", "tiny", "--threads",
                            "1", "--grpc", "0")
        cls.client = triton.InferenceServerClient(f"127.0.0.1:{cls.server.grpc_port}")
        body = {"prompt": "once", "max_tokens": 8, "seed": 3, "temperature": 0.8}
        cls.wanted = cls.server.post("/v1/completions", body)["choices"][0]["text"].encode()

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        with cls.server:
            pass
        cls.scratch.cleanup()

    def test_facts(self):
        self.assertTrue(self.client.is_server_live() and self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("tiny"))
        self.assertFalse(self.client.is_model_ready("none"))
        self.assertEqual(self.client.get_server_metadata().name, "avocet")
        self.assertEqual(self.client.get_model_metadata("tiny").platform, "avocet")

    def test_infer(self):
        inputs = [tensor("text_input", b"once"), tensor("sampling_parameters", OPTIONS)]
        told = self.client.infer("tiny", inputs, request_id="9")
        self.assertEqual(told.as_numpy("text_output")[0], b"once" + self.wanted)
        self.assertEqual(told.get_response().id, "9")
        flags = [tensor("exclude_input_in_output", True), tensor("return_num_output_tokens", True)]
        told = self.client.infer("tiny", inputs + flags, outputs=[
            triton.InferRequestedOutput("text_output")])
        self.assertEqual(told.as_numpy("text_output")[0], self.wanted)
        self.assertEqual(told.as_numpy("num_output_tokens")[0], 8)
        with self.assertRaisesRegex(triton.InferenceServerException, "none"):
            self.client.infer("none", inputs)

    def test_stream(self):
        told = queue.Queue()
        self.client.start_stream(lambda result, error: told.put((result, error)))
        inputs = [tensor("text_input", b"once"), tensor("sampling_parameters", OPTIONS),
                  tensor("stream", True)]
        for number in range(3):
            self.client.async_stream_infer("tiny", inputs, request_id=str(number))
        for number in range(3):
            text, last = b"", False
            while not last:
                result, error = told.get(timeout=300)
                self.assertIsNone(error)
                self.assertEqual(result.get_response().id, str(number))
                text += result.as_numpy("text_output")[0]
                last = result.get_response().parameters["triton_final_response"].bool_param
            self.assertEqual(text, self.wanted)
        self.client.async_stream_infer("none", inputs)
        self.assertIn("none", str(told.get(timeout=300)[1]))
        self.client.stop_stream()


if __name__ == "__main__":
    unittest.main()
