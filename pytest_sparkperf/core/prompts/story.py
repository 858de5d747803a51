"""The prose prompt: an essay on a workshop, to be continued."""

from __future__ import annotations

from pytest_sparkperf.core.prompts.template import PromptTemplate

_HEAD = """$place $thing workshop, an essay in the making. What follows is the first half of a longer piece \
on people who mend what others throw away. Read it for its tone and its pace, and then continue it as asked \
at the end.

The street bends twice before it reaches the water, as if it had thought better of it, and in the second \
bend stands a house with a green door that has not been shut within living memory. Above the door hangs a \
board on which the word $thing can still be read by those who know that it is there. There is no bell. You \
walk in, you wait until your eyes have made their peace with the dark, and then you see that what you took \
for walls are shelves, that the shelves go up to the ceiling and that on every one of them something is \
waiting.

"""

_SECTIONS = (
    """Waiting is the trade of the place. A $thing comes in wrapped in a towel, carried in both arms like a \
child with a fever, and the first thing that happens to it is nothing. It is set on the long table beneath \
the window, and there it stays for a day or for a week. The mender says that a broken thing tells you what \
is wrong with it if you do not ask too soon. Customers from the new houses on the hill find this hard to \
bear. They look at their watches. They ask whether there is a form to fill in. There is no form, there is a \
pencil on a string, and a ledger in which the rain has written too.""",
    """The tools hang in an order that nobody has explained. The files are arranged by sound, the finest \
being the one you can barely hear, and the hammers by the size of the mistake they are able to make. A \
drawer holds nothing but screws that were left over, each in a paper bag with a date on it, for it is held \
to be certain that one day the $thing will return from which the screw is missing. It happened once, eleven \
years ago, in a thunderstorm. It is still talked about, and the bag hangs framed beside the stove, a little \
crooked, because the nail for it was needed elsewhere.""",
    """In winter the work is done close to the fire, and slower. The window freezes from the bottom up, so \
that the boats seem to sail along the top of a white page. Children come after school, not because they \
care for repairs but since it is warm, and because nobody here asks them how their day has been. They are \
given something to hold. A child that holds a lamp long enough begins to look where the light falls, and a \
child that looks begins to see, and in this way, without a word having been said about it, the street has \
been supplied with people who can mend a $thing for as long as there has been a street.""",
    """Not everything can be saved. There is a shelf for that as well, the lowest one, behind the door, and \
whatever is put there is called a donor, with some respect. From a donor come springs and hinges, a strip \
of brass, a knob that fits nothing and will one day fit exactly. To throw away a donor is the only thing \
that was ever forbidden in this house. The mender's reasoning is simple, and it took me years to find it as \
large as it is: nothing is broken all over. Somewhere in the worst of it there is a part that never failed \
anybody. Once a month the shelf is dusted, from left to right, and nothing on it is moved by more than a \
finger's breadth.""",
    """Prices are a matter of conversation. The ledger knows sums, but also a basket of plums, a morning's \
help with the roof, the promise of a letter. A bank once sent a young man in good shoes to find out whether \
the workshop could be made to grow. He stayed until the evening. What he wrote in his report is not known, \
but he came back in the spring, on a Saturday and in other shoes, with his grandmother's $thing under his \
arm, and he has his own hook for his coat now, the third from the left. The figures he once drew up were \
good, he says, but they had no column for plums.""",
)

_TAIL = """

Continue the essay from here. Write in the same voice, unhurried and exact, with a dry kindness and without \
a moral. Tell of the day on which the water came into the street, of what was carried upstairs first and \
what was left behind, and of the one object on the long table that no one had come to claim. Let the mender \
speak no more than three times. Do not name the town, do not explain the title, and let the last paragraph \
return to the green door and to the $thing on the board above it.
"""

STORY = PromptTemplate(
    name="prose",
    places=("Willow", "Lantern", "Tanner", "Copper", "Juniper", "Cobble", "Weaver", "Heron"),
    things=("clock", "radio", "kettle", "fiddle", "camera", "lantern", "compass", "bicycle"),
    head=_HEAD,
    sections=_SECTIONS,
    separator="\n\n",
    tail=_TAIL,
)
