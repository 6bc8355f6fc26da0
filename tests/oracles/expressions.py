"""The expressions and zones with which the evaluator is compared with the oracle."""

from __future__ import annotations

import random

WRITTEN = """
* * * * *
*/5 * * * *
*/15 * * * *
*/30 * * * *
7-59/13 * * * *
0 * * * *
30 * * * *
59 * * * *
0,30 * * * *
0 */1 * * *
0 0-23 * * *
15 0-23/1 * * *
*/20 */1 * * 1-5
30 * 1,15 * *
30 * * * sun
30 * * * sat
45 * L * *
0 */2 * * *
30 */2 * * *
0 1-23/2 * * *
15 */3 * * *
0 */6 * * *
*/10 */4 * * *
* 0-22 * * *
*/15 1-23 * * *
0 0 * * *
30 0 * * *
59 23 * * *
0 1 * * *
30 1 * * *
59 1 * * *
0 2 * * *
1 2 * * *
15 2 * * *
30 2 * * *
45 2 * * *
59 2 * * *
0 3 * * *
30 3 * * *
0 4 * * *
30 1,2,3 * * *
0,15,30,45 0-3 * * *
*/10 2 * * *
*/7 1-3 * * *
5,25,45 23,0 * * *
0 22-23,0-4 * * *
30 2 * * 0
30 1 * * sun
30 2 * * 6,7
0 0 * * 5
0 0 * * fri-sun
0 3 * mar,oct,nov sun
30 2 8-14 3 *
30 2 8-14 3 0
30 1 1-7 11 ?
30 1 ? 11 0
30 2 ? 3 sun#2
30 1 ? 11 SUN#1
0 2 ? * 0#1
0 2 ? 3,10 0L
30 2 ? * 7L
30 1 ? 3,9,10 SUNL
0 0 L * *
30 2 L * ?
0 23 L-1 * *
30 2 L-3 * *
30 0 LW * *
30 2 15W * *
30 2 1W * *
0 3 31W * *
0 0 1,L * *
0 0 1-30,L * 5
0 0 13 * 0-5,6#1,6#2,6#3,6#4,6#5
30 2 */2 * *
30 2 */2 * 0
0 1 1-31 * 0
0 1 1 * 0-6
0 2 1-15 * sat,sun
30 2 29 2 *
0 0 30 12 *
0 12 30,31 12 *
30 2 31 3,10 *
@hourly
@daily
@midnight
@weekly
@monthly
@yearly
@annually
0 30 2 * * *
30 30 2 * * *
59 59 1 * * *
0,30 0,30 1-3 * * *
*/10 * * * * *
*/20 59,0,1 * * * *
15 */30 * * * *
*/30 */15 1,2,3 * * *
1 0 0 * * *
0 30 2 * 3 ? 2026
0 30 1 ? 11 SUN#1 2024-2030
0 0 */2 * * ? 2000-2040/2
0 0 0 * * * 2011,2015,2018
0 */15 * * * * 2005-2035
0 30 2 ? 3,4 0L 2001-2039
H * * * *
H H * * *
H H(0-3) * * *
H(0-29)/10 * * * *
H/15 1-3 * * *
H H/2 * * *
H 2 * * H
H 1 H * *
H H H H *
H/20 H(1-3) * * *
H 30 2 * * *
0 2 ? * 1/2
0 2 * * 1-7/2
0 2 10/7 * *
20/20 1/1 * * *
"""

_STRANGE = """
America/New_York America/Chicago America/Los_Angeles America/St_Johns America/Havana America/Asuncion America/Santiago
America/Sao_Paulo America/Caracas America/Godthab America/Scoresbysund America/Miquelon America/Port-au-Prince
America/Argentina/San_Luis America/Boa_Vista America/Metlakatla Africa/Cairo Africa/Casablanca Africa/El_Aaiun
Africa/Juba Africa/Khartoum Africa/Sao_Tome Africa/Windhoek Africa/Tripoli Antarctica/Troll Antarctica/Casey
Antarctica/Macquarie Antarctica/Vostok Asia/Beirut Asia/Gaza Asia/Tehran Asia/Amman Asia/Pyongyang Asia/Colombo
Asia/Kathmandu Asia/Dhaka Asia/Almaty Asia/Jerusalem Asia/Shanghai Atlantic/Azores Australia/Lord_Howe Australia/Sydney
Australia/Adelaide Europe/Dublin Europe/London Europe/Berlin Europe/Volgograd Europe/Samara Europe/Istanbul
Europe/Moscow Pacific/Apia Pacific/Fakaofo Pacific/Norfolk Pacific/Fiji Pacific/Tongatapu Pacific/Chatham
Pacific/Easter Pacific/Bougainville UTC
"""
STRANGE_ZONES = _STRANGE.split()
"""Zones whose clocks jump at midnight, by half an hour, by a day, against the season, twice a month, for good."""

HOURS = ["0", "1", "2", "3", "23", "0-2", "1-4", "2,3", "*", "*/2", "*/3", "1-23/2", "22-23", "0,12", "2-23", "0-23"]
MINUTES = ["0", "1", "15", "29", "30", "31", "45", "59", "*/10", "*/20", "0-10", "20-40/5", "0,30", "*/45", "50/3"]
DAYS = ["*"] * 12 + ["?", "L", "1-14", "*/3", "25-31", "LW", "L-2", "8W"]
MONTHS = ["*"] * 8 + ["3,10,11", "mar-apr", "*/2", "9-12"]
WEEKDAYS = ["*"] * 12 + ["0", "sun", "sat,sun", "1-5", "0#1", "0L", "fri-sun", "*/2"]
SECONDS = ["", "", "", "", "", "0 ", "30 ", "0,59 "]


def expressions(number: int) -> list[str]:
    """Those that people write, then others put together from fields that matter where clocks jump."""
    found = [line for line in WRITTEN.splitlines() if line]
    dice = random.Random("expressions")
    while len(found) < number:
        day, weekday = dice.choice(DAYS), dice.choice(WEEKDAYS)
        fields = [dice.choice(MINUTES), dice.choice(HOURS), day, dice.choice(MONTHS), weekday]
        made = dice.choice(SECONDS) + " ".join(fields)
        if made not in found:
            found.append(made)
    return found[:number]
