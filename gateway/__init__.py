"""Streams a chat from any large language model to any web client, in one event vocabulary, and stops when the client leaves.

Imports point down the floors:

    6  wiring       __main__, commands · server (socket, signals) · protocol (one client's connection) ·
                    cycle (one request on it) · app (routes) · front_page · wiring (settings → one value) ·
                    connections (its providers) · descriptions (of the mapped ones) · settings
    5  the story    answer (one client) · count_tokens · generation (attempts at the targets)
    4  I/O          telemetry · log · admission · access · upstream (one exchange with a provider) · simulate_server ·
                    play (a script as a provider) · http1 (the transport) · http1_connection (one of its) ·
                    proxied (the same through a proxy) · tls
    3  decisions    deadlines (which clock strikes next) · failover (what to try next) · routing (name → targets) ·
                    rules (what an alias lets through)
    2  translation  formats (one per wire format, both its sides) · simulator (a request → a script) ·
                    model_list (names → what /v1/models says)
    1  wire         body (bytes → JSON) · refusals (what a provider's error says) · message (events → one message) ·
                    sequence (the grammar) · deltas (what one says) · usage (counts, laid over each other) ·
                    framing (any body → frames) · sse (bytes → frames) · kept (how much of one answer)
    0  words        errors (one table of causes) · chat (the request) · events (the stream) · json_text

Floors 0 to 3 know no I/O, no clock and no randomness. How a token travels is told in the README.
"""

__version__ = "0.1.0"
