#!/usr/bin/env python3
"""Enqueues one task by one XADD, with nothing but the standard library and docs/wire-format.md.

    enqueue.py HOST PORT QUEUE [--prefix P] [--name N] [--payload JSON] [--codec msgpack|json]
               [--max-retries N] [--header NAME=VALUE]...
        adds the task and prints the id of its stream entry
    enqueue.py --print-hex [--codec msgpack|json]
        prints the bytes of the envelope for fixed values, to be compared with the golden files
"""

import argparse
import json
import os
import socket
import struct
import sys
import time
import uuid


def pack(value):
    """MessagePack, each value in its shortest form."""
    if value is None:
        return b"\xc0"
    if value is True or value is False:
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return pack_int(value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return sized(len(value), None, 0, 0xC4, 0xC5, 0xC6) + value
    if isinstance(value, str):
        text = value.encode()
        return sized(len(text), 0xA0, 31, 0xD9, 0xDA, 0xDB) + text
    if isinstance(value, (list, tuple)):
        return sized(len(value), 0x90, 15, None, 0xDC, 0xDD) + b"".join(map(pack, value))
    if isinstance(value, dict):
        pairs = b"".join(pack(key) + pack(item) for key, item in value.items())
        return sized(len(value), 0x80, 15, None, 0xDE, 0xDF) + pairs
    raise TypeError(f"cannot pack {type(value).__name__}")


def pack_int(value):
    if -32 <= value < 128:
        return struct.pack(">b", value)
    unsigned = [(0xCC, ">B", 8), (0xCD, ">H", 16), (0xCE, ">I", 32), (0xCF, ">Q", 64)]
    signed = [(0xD0, ">b", 7), (0xD1, ">h", 15), (0xD2, ">i", 31), (0xD3, ">q", 63)]
    for marker, layout, bits in unsigned if value >= 0 else signed:
        if -(1 << bits) <= value < (1 << bits):
            return bytes([marker]) + struct.pack(layout, value)
    raise OverflowError(f"{value} does not fit 64 bits")


def sized(length, fix, fix_max, one, two, four):
    if fix is not None and length <= fix_max:
        return bytes([fix | length])
    if one is not None and length < 1 << 8:
        return bytes([one, length])
    if length < 1 << 16:
        return bytes([two]) + struct.pack(">H", length)
    return bytes([four]) + struct.pack(">I", length)


def envelope(task_id, name, enqueued_at, payload, codec, parts):
    body = pack(payload) if codec == "msgpack" else json.dumps(payload, separators=(",", ":")).encode()
    return pack([
        1,  # version
        task_id.bytes,
        name,
        None,  # nobody waits for the result
        enqueued_at,
        body,
        {"msgpack": 0, "json": 1}[codec],
        0,  # failed attempts
        parts,
    ])


def uuid7():
    """A UUIDv7: 48 bits of milliseconds, the rest random."""
    raw = bytearray(struct.pack(">Q", time.time_ns() // 1_000_000)[2:] + os.urandom(10))
    raw[6] = 0x70 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return uuid.UUID(bytes=bytes(raw))


def command(host, port, *words):
    """One command of the Redis protocol, and its one-line or bulk reply."""
    request = b"*%d\r\n" % len(words)
    for word in words:
        request += b"$%d\r\n%s\r\n" % (len(word), word)
    with socket.create_connection((host, port), timeout=5) as connection:
        connection.sendall(request)
        reply = connection.makefile("rb")
        line = reply.readline().rstrip(b"\r\n")
        if line.startswith(b"$") and line != b"$-1":
            return reply.read(int(line[1:])).decode()
        sys.exit(f"redis answered: {line.decode(errors='replace')}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("host", nargs="?")
    parser.add_argument("port", nargs="?", type=int)
    parser.add_argument("queue", nargs="?")
    parser.add_argument("--prefix", default="streamfleet")
    parser.add_argument("--name", default="image.resize")
    parser.add_argument("--payload", default='{"url":"https://example.org/a.png"}')
    parser.add_argument("--codec", choices=["msgpack", "json"], default="msgpack")
    parser.add_argument("--max-retries", type=int)
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--print-hex", action="store_true")
    options = parser.parse_args()
    payload = json.loads(options.payload)

    if options.print_hex:
        fixed = uuid.UUID("0190a8c4-5f9e-7c3a-9b1d-2e4f6a8c0b1d")
        print(envelope(fixed, options.name, 1_700_000_000_000, payload, options.codec, {}).hex())
        return
    if options.queue is None:
        parser.error("host, port and queue are needed")

    parts = {}
    if options.max_retries is not None:
        parts["r"] = options.max_retries
    if options.header:
        parts["h"] = dict(header.split("=", 1) for header in options.header)
    now = time.time_ns() // 1_000_000
    stored = envelope(uuid7(), options.name, now, payload, options.codec, parts)
    key = f"{options.prefix}:{{{options.queue}}}:s"
    print(command(options.host, options.port, b"XADD", key.encode(), b"*", b"t", stored))


if __name__ == "__main__":
    main()
