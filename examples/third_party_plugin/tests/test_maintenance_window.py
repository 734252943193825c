import os
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkrein import Ask, Call, Deny
from checkrein.call import ToolInfo
from checkrein_maintenance_window import CalendarError, MaintenanceWindow, read_calendar


def calendar(*lines):
    return "\r\n".join(
        ["BEGIN:VCALENDAR", "VERSION:2.0", "BEGIN:VEVENT", *lines, "END:VEVENT", "END:VCALENDAR"]
    )


def opens(text, *, zone=UTC, begin=datetime(2026, 1, 1, tzinfo=UTC), days=40):
    """The starts of all windows, as text in UTC."""
    end = begin + timedelta(days=days)
    return [
        f"{opening:%m-%d %H:%M}"
        for event in read_calendar(text, zone)
        for opening, _ in event.windows(begin, end)
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["DTSTART:20260105T220000Z", "DTEND:20260105T230000Z"], ["01-05 22:00"]),
        (["DTSTART:20260105T220000", "DURATION:PT1H"], ["01-05 21:00"]),
        (["DTSTART;TZID=America/New_York:20260105T220000", "DURATION:PT1H"], ["01-06 03:00"]),
        (['DTSTART;TZID="Asia/Tokyo":20260105T090000', "DURATION:PT1H"], ["01-05 00:00"]),
        (["DTSTART;VALUE=DATE:20260105"], ["01-04 23:00"]),
        (
            ["DTSTART:20260105T220000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;INTERVAL=2;COUNT=3"],
            ["01-05 22:00", "01-07 22:00", "01-09 22:00"],
        ),
        (
            ["DTSTART:20260105T100000Z", "DURATION:PT1H", "RRULE:FREQ=WEEKLY;BYDAY=MO,TH;COUNT=3"],
            ["01-05 10:00", "01-08 10:00", "01-12 10:00"],
        ),
        (
            [
                "DTSTART:20260105T100000Z",
                "DURATION:PT1H",
                "RRULE:FREQ=WEEKLY;UNTIL=20260119T100000Z",
                "EXDATE:20260112T100000Z",
            ],
            ["01-05 10:00", "01-19 10:00"],
        ),
        (["DTSTART:20260105T220000Z", "DURATION:PT1H", "STATUS:CANCELLED"], []),
    ],
)
def test_what_is_read(lines, expected):
    assert opens(calendar(*lines), zone=ZoneInfo("Europe/Berlin")) == expected


def test_the_start_of_the_week_decides_which_weeks_are_skipped():
    # The example of RFC 5545, 3.8.5.3: the two differ by WKST only.
    lines = ["DTSTART:19970805T090000Z", "DURATION:PT1H"]
    rule = "RRULE:FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST="
    begin = datetime(1997, 8, 1, tzinfo=UTC)
    monday = opens(calendar(*lines, rule + "MO"), begin=begin)
    sunday = opens(calendar(*lines, rule + "SU"), begin=begin)
    assert monday == ["08-05 09:00", "08-10 09:00", "08-19 09:00", "08-24 09:00"]
    assert sunday == ["08-05 09:00", "08-17 09:00", "08-19 09:00", "08-31 09:00"]


def test_a_repeated_window_follows_the_wall_clock_through_summer_time():
    text = calendar(
        "DTSTART;TZID=Europe/Berlin:20260327T020000", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=4"
    )
    begin = datetime(2026, 3, 25, tzinfo=UTC)
    assert opens(text, begin=begin) == ["03-27 01:00", "03-28 01:00", "03-29 01:00", "03-30 00:00"]


def test_other_components_and_folded_lines_are_passed_over():
    text = calendar(
        "SUMMARY:Patch\r\n  night",
        'ATTENDEE;MEMBER="mailto:a@x","mailto:b@x":mailto:c@x',
        "DTSTART:2026010\r\n 5T220000Z",
        "DURATION:PT1H",
        "BEGIN:VALARM",
        "DURATION:PT15M",
        "TRIGGER:-PT5M",
        "END:VALARM",
    )
    assert opens(text) == ["01-05 22:00"]


@pytest.mark.parametrize(
    ("lines", "number", "problem"),
    [
        (["DTSTART:20260105T220000Z"], 4, "neither DTEND nor DURATION"),
        (["DURATION:PT1H"], 3, "no DTSTART"),
        (["DTSTART:20261305T220000Z", "DURATION:PT1H"], 4, "month"),
        (["DTSTART:tomorrow", "DURATION:PT1H"], 4, "neither a date nor a time"),
        (["DTSTART;TZID=W. Europe:20260105T220000", "DURATION:PT1H"], 4, "unknown time zone"),
        (["DTSTART;TZID=../../etc:20260105T220000", "DURATION:PT1H"], 4, "unknown time zone"),
        (["DTSTART:20260105T220000Z", "DTEND:20260105T210000Z"], 5, "ends before"),
        (["DTSTART:20260105T220000Z", "DTEND;VALUE=DATE:20260106"], 5, "not of the form"),
        (["DTSTART:20260105T220000Z", "DURATION:P1"], 5, "DURATION"),
        (["DTSTART:20260105T220000Z", "DURATION:P999999W"], 5, "longer than 366 days"),
        (["DTSTART:20260105T220000Z", "DURATION:PT1H", "RRULE:FREQ=MONTHLY"], 6, "FREQ=MONTHLY"),
        (["DTSTART:20260105T220000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;BYHOUR=3"], 6, "BYHOUR"),
        (["DTSTART:20260105T220000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=0"], 6, "COUNT=0"),
        (["DTSTART:20260105T220000Z", "DURATION:PT1H", "RRULE:FREQ=WEEKLY;BYDAY=1MO"], 6, "'1MO'"),
        (["DTSTART:20260105T220000Z", "DURATION:PT1H", "RRULE:FREQ=WEEKLY;BYDAY=TU"], 6, "DTSTART"),
        (["DTSTART:20260105T220000Z", "DURATION:P8D", "RRULE:FREQ=DAILY"], 6, "longer than 7"),
        (["DTSTART:20260105T220000Z", "DURATION:PT1H", "RDATE:20260106T220000Z"], 6, "RDATE"),
        (["DTSTART:20260105T220000Z", "DURATION:PT1H", "EXDATE;VALUE=DATE:20260105"], 6, "EXDATE"),
        (["DTSTART:20260105T220000Z", "DURATION:PT1H", "what is this"], 6, "NAME:VALUE"),
        (["DTSTART:20260105T220000Z", "DURATION:PT1H", "END:VALARM"], 6, "without its BEGIN"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(lines, number, problem):
    with pytest.raises(CalendarError, match=problem) as refused:
        read_calendar(calendar(*lines))
    assert refused.value.line == number


@pytest.mark.parametrize("text", ["", "\0\1", "BEGIN:VCALENDAR\nBEGIN:VEVENT", "<html></html>"])
def test_garbage_is_refused(text):
    with pytest.raises(CalendarError):
        read_calendar(text)


WORDS = ["DTSTART", "DTEND", "DURATION", "RRULE", "EXDATE", "STATUS", "TZID", ":", ";", "=", ","]
WORDS += ["20260105T220000Z", "20260105", "PT1H", "P1W", "FREQ=DAILY", "FREQ=WEEKLY", "COUNT=9999"]
WORDS += ["INTERVAL=9999", "BYDAY=MO", "89991231T235959", "19700101", "\r\n", " ", "UNTIL=", "X"]


@given(st.lists(st.sampled_from(WORDS), max_size=30).map("".join))
@example("DTSTART:89991231\r\nRRULE:FREQ=DAILY;COUNT=9999;INTERVAL=9999")
@example("DTSTART:19700101\r\nRRULE:FREQ=WEEKLY;UNTIL=89991231")
def test_any_text_gives_windows_or_a_calendar_error(body):
    try:
        events = read_calendar(calendar(body), ZoneInfo("Asia/Tokyo"))
    except CalendarError:
        return
    for event in events:
        for opening, closing in event.windows(event.start - timedelta(1), event.start):
            assert opening < closing


def call(name="restart_db", kind="tool"):
    return Call("1", "s", kind, name, {}, ToolInfo(name))


OPEN = datetime(2026, 1, 5, 22, 30, tzinfo=UTC)
NIGHTLY = calendar("DTSTART:20260105T220000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "maintenance.ics"
    path.write_text(NIGHTLY, encoding="utf-8")
    return path


def guard(file, now=OPEN, **options):
    return MaintenanceWindow(file, ["restart_*"], now=lambda: now, **options)


@pytest.mark.parametrize(
    ("clock", "allowed"),
    [("21:59:59", False), ("22:00:00", True), ("22:59:59", True), ("23:00:00", False)],
)
def test_a_tool_runs_inside_its_window_only(file, clock, allowed):
    hour, minute, second = map(int, clock.split(":"))
    now = OPEN.replace(day=9, hour=hour, minute=minute, second=second)
    verdict = guard(file, now).pre_call(call())
    assert (verdict is None) == allowed
    if not allowed:
        day = "09" if hour < 22 else "10"
        assert verdict == Deny(
            "restart_db runs only in a maintenance window; "
            f"the next one opens at 2026-01-{day} 22:00 UTC",
            "maintenance_window",
        )


def test_other_tools_and_model_calls_are_not_its_matter(file):
    closed = guard(file, OPEN.replace(hour=3))
    assert closed.pre_call(call("my_restart_db")) is None
    assert closed.pre_call(call("restart_model", kind="model")) is None
    assert closed.pre_call(call()) is not None


def test_a_person_may_be_asked_instead(file):
    verdict = guard(file, OPEN.replace(hour=3), outside="ask").pre_call(call())
    assert isinstance(verdict, Ask)


def test_a_changed_calendar_is_read_again(file):
    window = guard(file)
    assert window.pre_call(call()) is None
    file.write_text(NIGHTLY.replace("T220000Z", "T020000Z"), encoding="utf-8")
    assert isinstance(window.pre_call(call()), Deny)


@pytest.mark.parametrize("outside", ["deny", "ask"])
@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda file: file.unlink(), "cannot be read"),
        (lambda file: (file.unlink(), file.mkdir()), "cannot be read"),
        (lambda file: file.write_text("garbage"), "line 1"),
        (lambda file: file.write_bytes(NIGHTLY.encode() + b"\xff"), "not UTF-8"),
        (lambda file: file.write_text(NIGHTLY[:-20]), "cut off|without"),
        (lambda file: os.truncate(file, 2_000_000), "larger than"),
    ],
)
def test_a_calendar_that_cannot_be_used_closes_every_window(file, spoil, problem, outside):
    window = guard(file, outside=outside)
    assert window.pre_call(call()) is None
    spoil(file)
    for _ in range(2):
        verdict = window.pre_call(call())
        assert isinstance(verdict, Deny)
        assert problem.split("|")[0] in verdict.reason or problem.split("|")[-1] in verdict.reason
    if file.is_dir():
        file.rmdir()
    file.write_text(NIGHTLY, encoding="utf-8")
    assert window.pre_call(call()) is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"calendar": "absent.ics", "tools": ["x"]}, "absent.ics"),
        ({"tools": []}, "tools"),
        ({"tools": "restart"}, "tools"),
        ({"tools": ["x"], "timezone": "Mars/Base"}, "timezone"),
        ({"tools": ["x"], "outside": "allow"}, "outside"),
    ],
)
def test_wrong_settings_are_refused_at_the_start(file, options, problem):
    with pytest.raises(ValueError, match=problem):
        MaintenanceWindow(**{"calendar": file, **options})


def test_a_calendar_with_a_fault_is_refused_at_the_start(file):
    file.write_text(NIGHTLY.replace("DAILY", "YEARLY"), encoding="utf-8")
    with pytest.raises(CalendarError, match="line 6"):
        guard(file)
