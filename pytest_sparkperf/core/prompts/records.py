"""The JSON prompt: a document of nested records and an extraction task."""

from __future__ import annotations

from pytest_sparkperf.core.prompts.template import PromptTemplate

_HEAD = """$place $thing network, weekly export. The JSON document below lists measuring stations with \
their sensors, their last readings and the visits of the maintenance crew. Work through it and do the task \
after it.

```json
{
  "network": "$place",
  "quantity": "$thing",
  "schema": 4,
  "period": {"from": "2024-03-04", "to": "2024-03-10"},
  "stations": [
"""

_SECTIONS = (
    """    {
      "id": "st-017", "title": "Upper weir", "elevation_m": 412, "active": true,
      "sensors": [
        {"kind": "$thing", "unit": "mm", "volts": 3.58, "readings": [4.2, 4.4, 5.1, 9.8, 7.3, 6.0, 5.2]},
        {"kind": "temperature", "unit": "C", "volts": 3.61, "readings": [6.5, 7.0, 6.1, 4.9, 5.5, 8.2, 9.0]}
      ],
      "visits": [{"date": "2024-02-27", "work": "cleaned", "minutes": 35}]
    }""",
    """    {
      "id": "st-023", "title": "Old sawmill", "elevation_m": 388, "active": true,
      "sensors": [
        {"kind": "$thing", "unit": "mm", "volts": 3.12, "readings": [3.9, null, null, 8.7, 6.6, 5.8, null]}
      ],
      "visits": [
        {"date": "2024-01-15", "work": "battery replaced", "minutes": 50},
        {"date": "2024-03-06", "work": "inspected, connector loose", "minutes": 20}
      ]
    }""",
    """    {
      "id": "st-031", "title": "Chapel hill", "elevation_m": 655, "active": false,
      "sensors": [
        {"kind": "$thing", "unit": "inch", "volts": 2.87, "readings": []},
        {"kind": "wind", "unit": "m/s", "volts": 3.47, "readings": [11.2, 9.5, 14.8, 21.3, 17.0, 8.8, 7.9]}
      ],
      "visits": []
    }""",
    """    {
      "id": "st-040", "title": "Ferry landing", "elevation_m": 301, "active": true,
      "sensors": [
        {"kind": "$thing", "unit": "mm", "volts": 3.66, "readings": [5.0, 5.3, 6.4, 12.9, 10.1, 7.7, 6.2]},
        {"kind": "level", "unit": "cm", "volts": 3.40, "readings": [141, 143, 150, 188, 176, 160, 152]}
      ],
      "visits": [{"date": "2024-03-09", "work": "gauge realigned", "minutes": 90}]
    }""",
)

_TAIL = """
  ]
}
```

Task. Answer with one JSON object and nothing else. It has the key "alerts": a list with one entry per \
sensor whose volts are below 3.3 V or which misses a reading, each entry holding the station's id and \
title, the kind of the sensor, its voltage, the number of missing readings and a sentence that says what \
the crew should do. It also has the key "peaks": for each station the highest reading of $thing in \
millimetres and its date, or null where there is none, ordered by elevation from the lowest station up. \
Convert inches where they occur, and do not round.
"""

RECORDS = PromptTemplate(
    name="json",
    places=("Tundra", "Savanna", "Estuary", "Plateau", "Fjord", "Delta", "Steppe", "Moorland"),
    things=("rainfall", "snowmelt", "seepage", "drainage", "runoff", "moisture", "snowfall", "erosion"),
    head=_HEAD,
    sections=_SECTIONS,
    separator=",\n",
    tail=_TAIL,
)
