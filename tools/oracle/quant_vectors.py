#!/usr/bin/env python3
"""Makes tests/fixtures/quant/vectors.bin: random blocks of every type with the f32 bits that the
`gguf` package (GGUF's types), torch (FP8, BF16) and numpy (the rest) decode them to.

Records, little-endian, until the end of the file:
  u32 type (quant.h)   u32 elements   u32 bytes   bytes of source   elements × u32 expected bits
Scales take every special f16: zeros, subnormals, the largest, infinities, NaNs.
Usage: quant_vectors.py [FILE]
"""
import pathlib
import struct
import sys

import gguf
import numpy as np
import torch

SPECIAL = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7D01]
PLAIN_HALF = SPECIAL + [0x3C00, 0xBC00, 0x3555, 0xFE00, 0xFFFF, 0x7FFF, 0x0002]
# type, quant.h number, offsets of the f16 scales in a block
BLOCKS = [
    ("Q4_0", 66, [0]), ("Q4_1", 67, [0, 2]), ("Q5_0", 70, [0]), ("Q5_1", 71, [0, 2]),
    ("Q8_0", 72, [0]), ("Q2_K", 74, [80, 82]), ("Q3_K", 75, [108]), ("Q4_K", 76, [0, 2]),
    ("Q5_K", 77, [0, 2]), ("Q6_K", 78, [208]), ("IQ4_NL", 84, [0]), ("IQ4_XS", 87, [0]),
    ("MXFP4", 103, []),
]
generator = np.random.default_rng(20260301)


def record(number, source, expected):
    expected = np.ascontiguousarray(expected, dtype=np.float32).reshape(-1)
    source = bytes(source)
    return struct.pack("<III", number, expected.size, len(source)) + source + expected.tobytes()


def block_record(name, number, scale_offsets):
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = 28 if elements == 32 else 6
    blocks = generator.integers(0, 256, (count, size), dtype=np.uint8)
    for index in range(count):
        for place, offset in enumerate(scale_offsets):
            if elements == 32:
                special = index < len(SPECIAL) + 4
                value = SPECIAL[(index + 5 * place) % len(SPECIAL)]
            else:
                special = index < 3
                value = SPECIAL[(2 + 5 * index + 4 * place) % len(SPECIAL)]
            if not special:
                value = int(np.float16(generator.normal() * 0.02).view(np.uint16))
            blocks[index, offset:offset + 2] = np.frombuffer(struct.pack("<H", value), np.uint8)
        if name == "MXFP4" and index < 8:
            blocks[index, 0] = [0, 1, 2, 3, 127, 128, 254, 255][index]
    with np.errstate(all="ignore"):
        decoded = gguf.quants.dequantize(blocks, kind)
    return record(number, blocks.tobytes(), decoded)


def plain_records():
    half = np.concatenate([np.array(PLAIN_HALF, np.uint16),
                           generator.integers(0, 65536, 200, dtype=np.uint16)])
    single = np.concatenate([np.array([0, 0x80000000, 1, 0x7F800000, 0xFF800000, 0x7FC00000,
                                       0x7F7FFFFF, 0x00800000], np.uint32),
                             generator.integers(0, 2**32, 56, dtype=np.uint32)]).view(np.float32)
    double = np.concatenate([np.array([0.0, -0.0, 1e300, -1e300, 1e-320, np.inf, np.nan, 0.1,
                                       1 + 2**-24, 1 + 3 * 2**-24, 2**-150, 3 * 2**-150]),
                             generator.normal(size=52)])
    bytes_ = np.arange(256, dtype=np.uint8)
    tensor = torch.from_numpy(bytes_.copy())
    with np.errstate(all="ignore"):
        yield record(0, single.tobytes(), single)
        yield record(1, half.tobytes(), gguf.quants.dequantize(half.view(np.uint8),
                                                              gguf.GGMLQuantizationType.F16))
        yield record(2, half.tobytes(), gguf.quants.dequantize(half.view(np.uint8),
                                                              gguf.GGMLQuantizationType.BF16))
        yield record(3, double.tobytes(), double.astype(np.float32))
        yield record(4, bytes_.tobytes(), tensor.view(torch.float8_e4m3fn).float().numpy())
        yield record(5, bytes_.tobytes(), tensor.view(torch.float8_e5m2).float().numpy())
        for number, dtype in [(6, np.int8), (7, np.uint8), (8, np.int16), (9, np.uint16),
                              (10, np.int32), (11, np.uint32), (12, np.int64), (13, np.uint64)]:
            info = np.iinfo(dtype)
            values = np.concatenate([
                np.array([0, 1, info.min, info.max, info.max - 1, info.max // 2 + 1], dtype),
                generator.integers(info.min, info.max, 42, dtype=dtype, endpoint=True)])
            yield record(number, values.tobytes(), values.astype(np.float32))
        flags = np.array([0, 1, 1, 0, 0, 1], np.uint8)
        yield record(14, flags.tobytes(), flags.astype(bool).astype(np.float32))


def main():
    default = pathlib.Path(__file__).parents[2] / "tests/fixtures/quant/vectors.bin"
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(plain_records()) + b"".join(block_record(*b) for b in BLOCKS))
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
