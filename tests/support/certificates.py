"""A certificate for this machine that signs itself, for tests of TLS."""
import shutil
import subprocess


def make(folder):
    """(certificate, key) as PEM files in the folder; None where there is no openssl."""
    if shutil.which("openssl") is None:
        return None
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out",
                    certificate], check=True, stderr=subprocess.DEVNULL)
    return certificate, key
