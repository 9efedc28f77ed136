"""A bare HTTP library: answers what it was sent."""

import sys

import uvicorn


async def echo(scope, receive, send):
    message = await receive()
    body = message.get("body", b"")
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    port = int(sys.argv[1])
    uvicorn.run(echo, port=port, loop="uvloop", http="httptools", lifespan="off", log_level="warning", access_log=False)
