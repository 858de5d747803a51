"""The words of a simulated model, and the draws that choose among them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b

# At most six letters each, so that a word and the space before it are one piece of the tokenizer.
WORDS = """
about above across after again agent along always among answer arrive array batch before begin below
block branch bridge buffer build bytes cache carry chain change check class clear clock close cloud code
column common core corner count cover cross cycle data decode deep depth design detail digit direct draft
drive early edge engine enough entry equal error even event every exact expert fact fair fast field
figure first fixed flow focus form frame free fresh from full gate given global grain graph great group
half handle hash head heat held high hold idea image index inner input item join just keep kernel large
later layer lead learn least length level light limit line link list local long loop lower main many map
mark mask match matter memory merge method middle mind mode model more most move much name narrow near
need next node noise note number offset often once open order other outer output over page pair parse
part pass past path phase place plain plan point pool port power prefix prompt proof queue quick quiet
quote range rate read ready real record reduce region report rest result right ring round route rule
sample scale scan search second seed sense set shape share short show side signal simple single slice
small solid sort source space speed split stable stack stage start state step store stream string strong
table take target task tensor term test text thread time token tool total trace train tree true tuple
turn type under union unit until update upper usage value vector verify view wait walk wave weight well
when where while whole wide within word work write yield zero zone
""".split()  # noqa: SIM905 - quoted one by one the list would fill a page


def prompt_digest(prompt_ids: Sequence[int], nonce: str = "") -> bytes:
    """Return what the answer hangs on: the prompt, and for sampled text the draw's own ``nonce``."""
    return blake2b(array("I", prompt_ids).tobytes(), digest_size=16, key=nonce.encode()[:64]).digest()


def forked(digest: bytes, label: str) -> bytes:
    """Return another digest, fixed by this one and a label."""
    return blake2b(digest + label.encode(), digest_size=16).digest()


def draw(digest: bytes, label: str, position: int = 0) -> int:
    """Return a 64-bit number that is fixed by the digest, a label and a position."""
    text = f"{label}:{position}".encode()
    return int.from_bytes(blake2b(digest + text, digest_size=8).digest(), "big")


def uniform(digest: bytes, label: str, position: int) -> float:
    """Return a number in [0, 1) that is fixed by the digest, a label and a position."""
    return draw(digest, label, position) / 2.0**64


def word(digest: bytes, label: str, position: int = 0) -> str:
    """Return a word that is fixed by the digest, a label and a position."""
    return WORDS[draw(digest, label, position) % len(WORDS)]
