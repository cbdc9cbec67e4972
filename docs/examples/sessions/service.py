"""The example of docs/studying-a-service.md: a service that remembers what each visitor looked at.

A request is a line of JSON, `{"visitor": "v7", "page": "/shoes/12", "title": "..."}`, and so is the
answer, `{"visits": 3}`. Each visitor's last pages are kept packed, as they would go to a disk or
to another machine: a request unpacks them, adds one, and packs them again.

Usage: service.py PORT
"""

import asyncio
import json
import sys

HOST = "127.0.0.1"
PAGES_KEPT = 40

packed: dict[str, bytes] = {}


def visit(request: dict[str, str]) -> dict[str, int]:
    session = json.loads(packed.get(request["visitor"], b'{"visits": 0, "pages": []}'))
    session["visits"] += 1
    session["pages"].append({"page": request["page"], "title": request["title"]})
    session["pages"] = session["pages"][-PAGES_KEPT:]
    packed[request["visitor"]] = json.dumps(session).encode()
    return {"visits": session["visits"]}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(json.dumps(visit(json.loads(line))).encode() + b"\n")
        await writer.drain()
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, HOST, int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
