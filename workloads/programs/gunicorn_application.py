"""Answers with a table of rows, as JSON or as HTML, from dictionaries made for each request."""

import json

ROWS = [
    {"name": f"row {n}", "value": n * n, "tags": [str(n % k) for k in range(2, 8)]}
    for n in range(5000)
]


def application(environ, start_response):
    number = int(environ["QUERY_STRING"] or 0)
    rows = [dict(row, at=number) for row in ROWS[number % 4000 : number % 4000 + 800]]
    text = (
        json.dumps(rows)
        if number % 2
        else "".join(f"<li>{row['name']}: {row['value']}" for row in rows)
    )
    body = text.encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
