"""The verse lines from which prompts of the dataset ``sonnet`` are drawn, as benchmarks of the field do."""

from __future__ import annotations

from collections.abc import Callable

from pytest_sparkperf.core.prompts.template import Prompt

_INSTRUCTION = (
    "Here are some lines of verse, in no order. Pick as many of them as you can and continue the poem in the "
    "same metre, four lines to a stanza.\n\n"
)
LINES = tuple(
    """\
The harbour keeps its lanterns low at night,
And counts the ships that never turned for home;
A keeper climbs to set the lamp alight,
And reads by it a letter edged with foam.
The tide has learned the alphabet of stone,
It spells a name and wipes the slate again;
No wave has ever broken quite alone,
No gull has ever asked the reason when.
We mended nets with fingers stiff from cold,
And sang of summers none of us had seen;
The oldest hand, who could not well be told
From weathered oak, remembered it was green.
So let the fog come in and fold the bay:
What we have tied will hold until the day.
The orchard stands in rows of patient grey,
Each branch a ledger of the frost and rain;
The ladders lean the way they leaned in May,
When blossom weighed as much as later grain.
A basket waits beneath the crooked tree,
Half full of light, half full of fallen fruit;
The wasps hold court, the judge a bumblebee,
The jury sleeps against the mossy root.
My father pruned with one eye on the sky,
And cut to give the sun a place to rest;
He never told the youngest of us why
The bough that bore the least was handled best.
Now every autumn, reaching, I recall
The sound of apples choosing when to fall.
The railway crosses fields it never owned,
And lends the hares a shadow every hour;
A signal box, abandoned and enthroned,
Grows ivy for a flag and weeds for flower.
The timetable still hangs behind the glass,
Its trains run punctually through faded ink;
The stationmaster's bench has gone to grass,
The fire bucket gives the birds to drink.
At noon a whistle seems to stir the air,
Though nothing moves but thistle-down and heat;
An old man lifts his hat to no one there
And lets an unseen lady take the seat.
Whoever waits here learns to read the rails:
They hum of distance when all other fails.
The mill has lost its wheel but not its stream,
Which turns the memory of turning yet;
The beams are soft with flour and with dream,
The stones lie face to face and don't forget.
A sack hung up against the northern wall
Still keeps the shape of somebody's right arm;
The swallows quarter in the weighing hall,
And mice inherit what is left of charm.
Upstream the boys build dams of sticks and clay,
And argue where the river ought to run;
It hears them out, then takes the ancient way,
And wears their work to silver in the sun.
Who grinds no corn may grind the afternoon
To something fine, and sift it through the moon.
The clockmaker has stopped to hear the rain,
It keeps a looser time than he can sell;
His pendulums go out and come again
Like buckets lowered in a shallow well.
A cuckoo waits behind its painted door,
Rehearsing one small word it knows by heart;
The floor is strewn with seconds, and the drawer
With hours that somebody has pulled apart.
He winds the town each Sunday after prayer,
The church, the school, the bank, the barber's shop;
And if one day he were no longer there,
The shadows would go on, the bells would stop.
He sets his own watch slow, and tells no lie:
It gives the evening time to say goodbye.""".splitlines()
)
# About 500 tokens.
_LINES_PER_PROMPT = 40


def verse_prompt(number: int, draw: Callable[[int], int]) -> Prompt:
    """Return an instruction and lines drawn at random; ``draw(n)`` returns a number from 0 to n - 1."""
    left = list(LINES)
    lines = [left.pop(draw(len(left))) for _ in range(_LINES_PER_PROMPT)]
    return Prompt(f"sonnet-{number}", _INSTRUCTION + "\n".join(lines))
