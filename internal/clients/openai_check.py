"""Drives a router with the unmodified openai client and checks every answer.

Usage: openai_check.py BASE_URL MODEL. Prints one line a check; exits 1 at the first fault.
"""
import asyncio
import sys

import openai

base, model = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=base + "/v1", api_key="unused", max_retries=0)
ask = [{"role": "user", "content": "sing of whales"}]


def check(name, ok, got=None):
    print(("ok   " if ok else "FAIL ") + name + ("" if ok else f": {got!r}"), flush=True)
    if not ok:
        sys.exit(1)


def text(stream):
    parts, finish, usage = [], None, None
    for chunk in stream:
        if chunk.usage:
            usage = chunk.usage
        for c in chunk.choices:
            piece = c.delta.content if hasattr(c, "delta") else c.text
            parts.append(piece or "")
            finish = c.finish_reason or finish
    return "".join(parts), finish, usage


models = client.models.list()
check("models", [m.id for m in models.data] == [model], models)

whole = client.completions.create(model=model, prompt="sing of whales", max_tokens=12, temperature=0)
check("completion", whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 12, whole)
got, finish, usage = text(client.completions.create(model=model, prompt="sing of whales", max_tokens=12, temperature=0, stream=True,
                                                    stream_options={"include_usage": True}))
check("completion, streamed", got == whole.choices[0].text and finish == "length" and usage.completion_tokens == 12, got)

chat = client.chat.completions.create(model=model, messages=ask, max_tokens=9, temperature=0)
check("chat", bool(chat.choices[0].message.content) and chat.choices[0].message.role == "assistant", chat)
got, finish, usage = text(client.chat.completions.create(model=model, messages=ask, max_tokens=9, temperature=0, stream=True))
check("chat, streamed", got == chat.choices[0].message.content and usage is None, got)
got, _, _ = text(client.chat.completions.create(model=model, messages=ask, max_completion_tokens=9, temperature=0, stream=True))
check("chat, max_completion_tokens", got == chat.choices[0].message.content, got)

probs = client.chat.completions.create(model=model, messages=ask, max_tokens=4, temperature=0, logprobs=True, top_logprobs=2)
check("chat, logprobs", len(probs.choices[0].logprobs.content) == 4, probs)
wide = client.completions.create(model=model, prompt="sing", max_tokens=4, n=2, seed=7, temperature=0.5)
check("two choices", len(wide.choices) == 2 and wide.usage.completion_tokens == 8, wide)
tools = [{"type": "function", "function": {"name": "depth", "parameters": {"type": "object", "properties": {"m": {"type": "number"}}}}}]
called = client.chat.completions.create(model=model, messages=ask, max_tokens=4, temperature=0, tools=tools, tool_choice="none")
check("tools are passed", called.choices[0].message is not None, called)
extra = client.completions.create(model=model, prompt="sing", max_tokens=2, extra_body={"an_unknown_field": {"deep": [0.7]}, "priority": 0}, user="me")
check("unknown fields", extra.choices[0].text is not None, extra)
raw = client.completions.with_raw_response.create(model=model, prompt="sing", max_tokens=2, extra_headers={"x-request-id": "mine-1"})
check("request id out", len(raw.headers["x-request-id"]) == 36, dict(raw.headers))

for name, kind, call in [
    ("unknown model", openai.NotFoundError, lambda: client.completions.create(model="other", prompt="x")),
    ("bad sampling value", openai.BadRequestError, lambda: client.completions.create(model=model, prompt="x", temperature=-1)),
    ("prompt beyond the context", openai.BadRequestError, lambda: client.completions.create(model=model, prompt=[1] * 9000)),
]:
    try:
        call()
        check(name, False, "no error")
    except openai.APIStatusError as e:
        check(name, isinstance(e, kind) and bool(e.body and e.body.get("message")), e)

stream = client.completions.create(model=model, prompt="sing of whales", max_tokens=400, temperature=0, stream=True)
for _ in zip(range(3), stream):
    pass
stream.close()
check("a stream that is left", True)


async def together():
    a = openai.AsyncOpenAI(base_url=base + "/v1", api_key="unused", max_retries=0)
    answers = await asyncio.gather(*[a.completions.create(model=model, prompt="sing of whales", max_tokens=12, temperature=0) for _ in range(16)])
    check("16 at once", all(x.choices[0].text == whole.choices[0].text for x in answers), answers[0])

    async def one():
        parts = []
        async for c in await a.chat.completions.create(model=model, messages=ask, max_tokens=9, temperature=0, stream=True):
            parts += [x.delta.content or "" for x in c.choices]
        return "".join(parts)

    streams = await asyncio.gather(*[one() for _ in range(16)])
    check("16 streams at once", all(s == chat.choices[0].message.content for s in streams), streams[0])


asyncio.run(together())
