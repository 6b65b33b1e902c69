"""`GET /`: one plain page that says what this is and how to try it. No script, no style from elsewhere."""

from html import escape

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Chat Stream Gateway</title>
<style>
  :root {{ color-scheme: light dark; }}
  body {{ font: 16px/1.6 system-ui, sans-serif; max-width: 50rem; margin: 12vh auto; padding: 0 1.5rem; }}
  h1 {{ font-size: 1.5rem; margin: 0; }}
  p {{ margin: .8rem 0; }}
  pre {{ padding: 1rem; border-radius: .5rem; overflow-x: auto; background: color-mix(in srgb, currentColor 8%, transparent); }}
  code {{ font: 14px/1.5 ui-monospace, monospace; }}
  small {{ opacity: .7; }}
</style>
<h1>Chat Stream Gateway</h1>
<p>It is running. Post a chat and watch the answer arrive, event by event:</p>
<pre><code>curl -N {key}-d '{{"messages":[{{"role":"user","content":"hi"}}]}}' {url}/chat</code></pre>
<p>The same as plain text: <code>{url}/chat?format=text</code>, or one JSON event a line: <code>{url}/chat?format=ndjson</code>.</p>
<p>For other programs, <code>{url}</code> is the base URL of Claude's SDKs, <code>{url}/v1</code> of OpenAI's, and
<code>{url}/api/chat</code> the <code>api</code> of the AI SDK's <code>useChat</code>.</p>
<p>Models: {models}</p>
<p><small><a href="/v1/models">/v1/models</a> · <a href="/healthz">/healthz</a> · <a href="/readyz">/readyz</a> ·
<a href="/live">/live</a> (finished streams as they happen)</small></p>
</html>
"""


def front_page(url: str, models: tuple[str, ...], *, keyed: bool = False) -> str:
    """`url`: this gateway's own, as the browser wrote it; `keyed`: a chat needs a key."""
    key = "-H 'Authorization: Bearer KEY' " if keyed else ""
    return PAGE.format(url=escape(url), key=key, models=", ".join(f"<code>{escape(name)}</code>" for name in models))
