"""The chat prompt: someone who asks for help with several things at once."""

from __future__ import annotations

from pytest_sparkperf.core.prompts.template import PromptTemplate

_HEAD = """$place $thing club is what I am writing about, and I hope you can help me think. I was voted in \
as its secretary two weeks ago, mostly because nobody else raised a hand, and I found out that almost \
everything the club knows lives in one shoebox and in the memory of people who are about to retire from it. \
We have sixty-four members, of whom perhaps twenty-five turn up in a normal week, a rented room above a \
bakery, and about three thousand in the bank. In October we hold an open day, which brings in nearly all of \
our new members, so there are eleven weeks left. Let me describe what worries me, one thing after another, \
and then ask my questions at the end.

"""

_SECTIONS = (
    """The first worry is money. Fees have not changed for nine years. Our rent goes up by a fifth in \
January, and the insurance for the $thing equipment went up last spring without anybody noticing until the \
bill came. I worked it out on the back of an envelope: if nothing changes we lose about seventy a month, so \
we would be broke in three and a half years, sooner if something breaks. Some of the older members live on \
small pensions and I do not want to frighten them away, but I also do not want to be the person who signed \
the last cheque. Asking for donations was tried once, with a tin beside the kettle, and produced eleven \
coins and a button.""",
    """Then there is the room. It holds thirty people if they are polite. On the open day we had seventy \
visitors last year, they queued down the stairs into the bakery, and the baker was kind about it exactly \
once. There is a school hall five minutes away which is free on Saturdays but costs a hundred and twenty \
for the day, and there is the park, which is free and wonderful unless it rains, and in October it rains \
about one day in three here. The hall wants an answer six weeks ahead and keeps half of the money if we \
cancel.""",
    """What keeps me awake is the teaching. Beginners come, they are given a chair and a smile, and then \
the good people go back to doing $thing among themselves because that is what they came for. Of nineteen \
people who joined after the last open day, five were still with us by Easter. I asked two of those who \
left. One said she never knew whether she was doing it right. The other said he felt he was in the way. \
Nobody was unkind to them; they were simply nobody's job. Four members would teach, I believe, if somebody \
asked them properly and told them what to teach.""",
    """And there is the matter of who does what. Our treasurer keeps the accounts in a notebook with a lock \
on it. The website was made by someone who has since moved abroad, and the password went with him. The key \
to the room exists four times, and I can name three of the people who have one. None of this is a disaster \
on its own, but last month the treasurer was in hospital for eight days, and for eight days we could not \
have paid a bill if we had wanted to. He came back cheerful and changed nothing.""",
    """I should also say what works, since I would hate to break it. Tuesday evenings are a joy: there is \
tea, the conversation wanders, and people who have done $thing for forty years sit beside people who have \
done it for forty minutes. Members lend each other books and tools without a list, and everything comes \
back. Twice a year we visit a club in another town, and whoever has a car takes whoever has none. We argue \
about the route all the way there and about the food all the way back. Whatever we change, I want that left \
alone.""",
)

_TAIL = """

So here is what I would like from you. First, suggest a way to raise the fees that covers the rent and that \
a pensioner can live with, and show me the sum, month by month, for the next two years. Second, tell me \
which of the three places you would take for the open day, what you would do if the weather turned, and by \
which week I have to decide. Third, sketch what the first six evenings of a beginner should look like, and \
who should be responsible for them, so that more than five of nineteen stay. Fourth, make me a short list \
of the things that must be written down before anybody else falls ill, the most urgent first. The treasurer \
will read your answer too, so let it be one that he can live with, and let the sums be simple enough to be \
checked with a pencil. Please answer in that order, with a heading for each, and ask me at the end about \
whatever you would need to know to give better advice about $thing.
"""

CONVERSATION = PromptTemplate(
    name="chat",
    places=(
        "Riverside",
        "Northgate",
        "Oakfield",
        "Millbrook",
        "Eastbridge",
        "Westmoor",
        "Southbank",
        "Hillcrest",
    ),
    things=("chess", "rowing", "pottery", "weaving", "archery", "cycling", "baking", "juggling"),
    head=_HEAD,
    sections=_SECTIONS,
    separator="\n\n",
    tail=_TAIL,
)
